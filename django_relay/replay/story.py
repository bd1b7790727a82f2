"""One job of a recording as what the page shows: beats, lanes, leases, waits, and a scale.

Everything is reckoned here, so that the script only draws: which lease is held when, until when it
was promised, when nobody kept it; and how recorded time is laid out, with long silences cut short.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from django_relay.recording import Mark, Moment, RecordedJob, Recording, Sight

from . import wording

#: More beats than this are not shown: the first and the last half of so many are.
BEATS = 400
#: A lease shows at most so many of its renewals.
RENEWALS = 200
#: A silence longer than this, in milliseconds, is cut to the second number on the page.
LONG, SHORT = 6000.0, 1500.0

_ENDINGS = frozenset(
    {"succeeded", "retried", "failed", "snoozed", "released", "rescued", "cancelled"}
)
_TIMES = frozenset({"expired_ms", "run_after_ms"})
_SILENCING = ("SIGKILL", "SIGSTOP")


@dataclass(frozen=True, slots=True)
class Beat:
    """One line of the list. ``lane`` is the place of its worker among the lanes, or None."""

    ms: float
    kind: str
    tone: str
    title: str
    note: str
    lease: str | None = None
    lane: int | None = None
    worker: str = ""

    @property
    def time(self) -> str:
        """When, from enqueue."""
        return wording.clock(self.ms)


@dataclass(frozen=True, slots=True)
class Span:
    """A lease on a lane: from the claim until its ending (None: it still runs).

    ``ends`` are pairs: seen then, it was to end then. ``silent``: when nobody kept it any more.
    """

    letter: str
    lane: int
    start: float
    until: float | None
    ended: str
    silent: float | None
    ends: list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Story:
    """A job to be followed. ``scale`` are pairs: a recorded time, its place on the page in ms."""

    job: RecordedJob
    beats: list[Beat]
    lanes: list[str]
    leases: list[Span]
    waits: list[tuple[float, float | None, str]]
    scale: list[tuple[float, float]]
    left_out: int = 0
    states: list[tuple[float, str]] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        """Return what the script needs."""
        return {
            "id": self.job.id,
            "lanes": self.lanes,
            "beats": [
                [b.ms, b.kind, b.tone, b.title, b.note, b.lease, b.lane, b.time] for b in self.beats
            ],
            "leases": [
                [s.letter, s.lane, s.start, s.until, s.ended, s.silent, s.ends] for s in self.leases
            ],
            "waits": self.waits,
            "states": self.states,
            "scale": self.scale,
        }


def tell(recording: Recording, job: RecordedJob) -> Story:
    """Make the story of one job of a recording; its times count from its own first event."""
    found = sorted((m for m in recording.moments if m.job == job.id), key=lambda m: m.ms)
    start, end = (found[0].ms, found[-1].ms) if found else (0.0, 0.0)
    moments = [_shifted(moment, start) for moment in found]
    sights = [
        replace(sight, ms=sight.ms - start, ends_ms=sight.ends_ms - start)
        for sight in recording.sights
        if sight.job == job.id
    ]
    lanes = list(dict.fromkeys(m.worker for m in moments if m.worker))
    marks = [
        replace(mark, ms=mark.ms - start)
        for mark in recording.marks
        if start <= mark.ms <= end and (not mark.target or any(_hits(mark, w) for w in lanes))
    ]
    leases = _leases(moments, sights, marks, lanes)
    beats = _beats(moments, marks, leases, lanes)
    shown = beats if len(beats) <= BEATS else beats[: BEATS // 2] + beats[-BEATS // 2 :]
    states = [(m.ms, str(m.data["state"])) for m in moments if "state" in m.data]
    states += [(m.ms, "running") for m in moments if m.kind == "claimed"]
    return Story(
        job=job,
        beats=shown,
        lanes=[label(lane, lanes) for lane in lanes],
        leases=leases[:BEATS],
        waits=_waits(moments)[:BEATS],
        scale=_scale([*(b.ms for b in shown), *_promises(leases)]),
        left_out=len(beats) - len(shown),
        states=sorted(states)[:BEATS],
    )


def _shifted(moment: Moment, start: float) -> Moment:
    data = {
        key: value - start if key in _TIMES and isinstance(value, int | float) else value
        for key, value in moment.data.items()
    }
    return replace(moment, ms=moment.ms - start, data=data)


def _hits(mark: Mark, worker: str | None) -> bool:
    """Whether something done to a worker, or to one child of it, was done to this child."""
    return worker is not None and f"{worker}/".startswith(f"{mark.target}/")


def label(worker: str, workers: Sequence[str]) -> str:
    """Name a worker; its child's number only where another child of it is there too."""
    whole, _, child = worker.rpartition("/")
    alone = sum(other.rpartition("/")[0] == whole for other in workers) == 1
    named = (whole or child) if alone else f"{whole}, process {child}"
    return named[:1].upper() + named[1:]


def _leases(
    moments: Sequence[Moment], sights: Sequence[Sight], marks: Sequence[Mark], lanes: list[str]
) -> list[Span]:
    endings: dict[str | None, Moment] = {}
    for moment in moments:
        if moment.kind in _ENDINGS:
            endings.setdefault(moment.lease, moment)
    seen: dict[str, list[tuple[float, float]]] = {}
    for sight in sights:
        seen.setdefault(sight.lease, []).append((sight.ms, sight.ends_ms))
    stops = [mark for mark in marks if mark.what.startswith(_SILENCING)]
    return [
        _span(moment, endings.get(moment.lease), seen.get(moment.lease, []), stops, lanes)
        for moment in moments
        if moment.kind == "claimed" and moment.lease
    ]


def _span(
    claim: Moment,
    ending: Moment | None,
    seen: list[tuple[float, float]],
    stops: Sequence[Mark],
    lanes: list[str],
) -> Span:
    until = ending.ms if ending else None
    # What was done to one child need not have hit this one: the job was lost, or it was not.
    lost = ending is None or ending.kind == "rescued"
    hits = [stop.ms for stop in stops if lost and _hits(stop, claim.worker) and stop.ms >= claim.ms]
    silent = min(hits, default=None)
    return Span(
        letter=claim.lease or "",
        lane=lanes.index(claim.worker) if claim.worker else 0,
        start=claim.ms,
        until=until,
        ended=ending.kind if ending else "",
        silent=None if silent is None or (until is not None and silent > until) else silent,
        ends=_ends(claim, ending, seen),
    )


def _ends(
    claim: Moment, ending: Moment | None, seen: list[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Tell until when a lease was promised as time went by."""
    if seen:
        step = len(seen) // RENEWALS + 1
        # The first look came a little later than the claim that made what it saw.
        return [(claim.ms, seen[0][1]), *seen[1:-1:step], *seen[1:][-1:]]
    over = ending.data.get("expired_ms") if ending else None
    return [(claim.ms, float(over))] if isinstance(over, int | float) else []


def _beats(
    moments: Sequence[Moment], marks: Sequence[Mark], leases: Sequence[Span], lanes: list[str]
) -> list[Beat]:
    places = {lane: place for place, lane in enumerate(lanes)}
    beats = [_beat(moment, places, lanes) for moment in moments]
    for mark in marks:
        word = mark.what.partition(" ")[0].lower()
        hit = next((lane for lane in lanes if mark.target and _hits(mark, lane)), "")
        place = places.get(hit)
        worker = label(hit, lanes) if hit else ""
        tone = "bad" if word == "sigkill" else "odd"
        said = wording.mark(mark), wording.mark_note(mark)
        beats.append(Beat(mark.ms, word, tone, *said, lane=place, worker=worker))
    for lease in leases:
        if lease.ended == "rescued" and lease.ends:
            over = lease.ends[-1][1]
            if lease.until is not None and over <= lease.until:
                said = (
                    f"Lease {lease.letter} runs out",
                    "By the database's clock; from here on it is no lease.",
                )
                beats.append(Beat(over, "over", "odd", *said, lease.letter, lease.lane))
    return sorted(beats, key=lambda beat: beat.ms)


def _beat(moment: Moment, places: dict[str, int], lanes: list[str]) -> Beat:
    worker = moment.worker or ""
    note = wording.note(moment)
    if moment.actor:
        note = "; ".join(part for part in (note, f"by {moment.actor}") if part)
    return Beat(
        ms=moment.ms,
        kind=moment.kind,
        tone=wording.TONES.get(moment.kind, "plain"),
        title=wording.title(moment),
        note=note,
        lease=moment.lease,
        lane=places.get(worker),
        worker=label(worker, lanes) if worker else "",
    )


def _waits(moments: Sequence[Moment]) -> list[tuple[float, float | None, str]]:
    """Tell when the job waited, for what; a wait without an end goes on."""
    waits: list[tuple[float, float | None, str]] = []
    for moment in moments:
        state = moment.data.get("state")
        if waits and waits[-1][1] is None and (moment.kind == "claimed" or state):
            waits[-1] = (waits[-1][0], moment.ms, waits[-1][2])
        if state in ("ready", "scheduled", "blocked"):
            waits.append((moment.ms, None, str(state)))
    return waits


def _promises(leases: Iterable[Span]) -> list[float]:
    return [end for lease in leases for _, end in lease.ends if lease.until is None]


def _scale(times: Sequence[float]) -> list[tuple[float, float]]:
    """Lay out recorded time: true to scale, but for silences that are cut short."""
    known = sorted({0.0, *times})
    scale = [(known[0], 0.0)]
    for before, after in pairwise(known):
        gap = after - before
        scale.append((after, scale[-1][1] + (gap if gap <= LONG else SHORT)))
    last, place = scale[-1]
    pad = max(place * 0.06, 250.0)
    return [*scale, (last + pad, place + pad)]
