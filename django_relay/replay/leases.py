"""The leases of a job as bars: who held which when, until when it was promised, and its silence.

What is not known is not drawn: the end that a lease had at a time is told only where it was seen,
or where it follows from the events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django_relay.recording import Mark, Moment, Sight

from . import wording
from .excerpt import Excerpt

#: A lease shows at most so many of its renewals.
RENEWALS = 200

_ENDINGS = frozenset(
    {"succeeded", "retried", "failed", "snoozed", "released", "rescued", "cancelled"}
)
_SILENCING = ("SIGKILL", "SIGSTOP")


@dataclass(frozen=True, slots=True)
class Span:
    """A lease on a lane: from the claim until its ending (None: it still runs).

    ``ends`` are pairs: seen then, it was to end then. ``silent``: when nobody kept it any more.
    ``over``: when it ran out, if it did.
    """

    letter: str
    lane: int
    start: float
    until: float | None
    ended: str
    silent: float | None
    ends: list[tuple[float, float]]
    over: float | None


def spans(
    excerpt: Excerpt,
    sights: Sequence[Sight],
    marks: Sequence[Mark],
    *,
    lanes: Mapping[str, int],
) -> list[Span]:
    """Return the leases of a job in the order of their claims."""
    endings: dict[str | None, Moment] = {}
    for moment in excerpt.moments:
        if moment.kind in _ENDINGS:
            endings.setdefault(moment.lease, moment)
    seen: dict[str, list[Sight]] = {}
    for sight in sights:
        seen.setdefault(sight.lease, []).append(sight)
    stops = [mark for mark in marks if mark.what.startswith(_SILENCING)]
    found = []
    for part in excerpt.parts:
        # How a lease ended that was claimed before a gap may be left out with the gap.
        unknown = part.end if part is not excerpt.parts[-1] else None
        for claim in part.moments:
            lane = lanes.get(claim.worker or "")
            if claim.kind == "claimed" and claim.lease and lane is not None:
                ending = endings.get(claim.lease)
                hits = _silencing(claim, ending, stops)
                until = ending.ms if ending else unknown
                looks = seen.get(claim.lease, [])
                found.append(_span(claim, ending, looks, until=until, silent=hits, lane=lane))
    return found


def _span(
    claim: Moment,
    ending: Moment | None,
    seen: Sequence[Sight],
    *,
    until: float | None,
    silent: float | None,
    lane: int,
) -> Span:
    over = wording.number(ending.data, "expired_ms") if ending else None
    if over is not None and (until is None or not claim.ms <= over < until):
        over = None  # it was taken back before it ran out
    return Span(
        letter=claim.lease or "",
        lane=lane,
        start=claim.ms,
        until=until,
        ended=ending.kind if ending else "",
        silent=None if silent is None or (until is not None and silent > until) else silent,
        ends=_seen(claim, seen) if seen else _known(claim, ending, over),
        over=over,
    )


def _silencing(claim: Moment, ending: Moment | None, stops: Sequence[Mark]) -> float | None:
    """Tell when its worker was silenced.

    What was done to one child need not have hit this one: the job was lost, or it was not.
    """
    lost = ending is None or ending.kind == "rescued"
    hits = [stop.ms for stop in stops if lost and hit(stop, claim.worker) and stop.ms >= claim.ms]
    return min(hits, default=None)


def hit(mark: Mark, worker: str | None) -> bool:
    """Whether something done to a worker, or to one child of it, was done to this child."""
    return worker is not None and f"{worker}/".startswith(f"{mark.target}/")


def _seen(claim: Moment, seen: Sequence[Sight]) -> list[tuple[float, float]]:
    """Tell how its end moved as it was looked at."""
    step = len(seen) // RENEWALS + 1
    pairs = [(sight.ms, sight.ends_ms) for sight in seen]
    # A first look before any renewal came a little later than the claim that made what it saw.
    first = (seen[0].ms if seen[0].renewals else claim.ms, seen[0].ends_ms)
    return [first, *pairs[1:-1:step], *pairs[1:][-1:]]


def _known(claim: Moment, ending: Moment | None, over: float | None) -> list[tuple[float, float]]:
    """Tell what follows from the events: the end that it had, and from when on if not renewed."""
    if over is None or ending is None:
        return []
    renewed = wording.number(ending.data, "renewals")
    return [(over if renewed else claim.ms, over)]
