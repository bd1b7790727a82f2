"""How the attempts of one job ended: who had it, for how long, with which error and traceback.

Made of the same recording as the replay, which tells how it came to that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.utils.translation import gettext as _

from django_relay.recording import Moment, Recording
from django_relay.replay import wording
from django_relay.replay.wording import Words
from django_relay.states import EventKind, State

from . import narration, words
from .rows import Holder, Row

#: Attempts that a page shows, the newest.
SHOWN = 20

_ENDINGS = frozenset(
    {
        EventKind.SUCCEEDED,
        EventKind.RETRIED,
        EventKind.FAILED,
        EventKind.SNOOZED,
        EventKind.RELEASED,
        EventKind.RESCUED,
        EventKind.CANCELLED,
    }
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One claim of a job and its end."""

    lease: str
    hue: int
    attempt: int | None
    worker: str
    began: words.Moment | None
    took: str
    tone: str
    outcome: Words
    error: str
    message: str
    traceback: str
    refused: str


@dataclass(frozen=True, slots=True)
class Attempts:
    """The newest attempts, oldest first; ``earlier`` tells that there were others before."""

    shown: list[Attempt]
    earlier: bool


@dataclass(frozen=True, slots=True)
class _Claim:
    """The events of one claim, and which attempt it was of."""

    moments: list[Moment]
    attempt: int | None

    def first(self, kinds: frozenset[EventKind]) -> Moment | None:
        return next((moment for moment in self.moments if moment.kind in kinds), None)


def build(
    row: Row,
    made: Recording,
    tracebacks: Mapping[int, str],
    *,
    holder: Holder | None,
    now: datetime,
) -> Attempts:
    """Tell the attempts of a job from its row, its recording and its lease."""
    left_out = made.jobs[0].left_out
    # What came before the gap has been told by its ends alone; an attempt is told whole.
    moments = made.moments[len(made.moments) // 2 :] if left_out else made.moments
    claims = _claims(moments, _attempt_before(row, moments) if left_out else 1)
    newest = max(claims, default=None)
    running = row.state == State.RUNNING
    shown = [
        _attempt(row, claim, tracebacks.get(number, ""), now=now)
        if not (running and number == newest)
        else _under_way(row, claim, holder, now=now)
        for number, claim in list(claims.items())[-SHOWN:]
    ]
    return Attempts(shown, earlier=left_out > 0 or len(claims) > SHOWN)


def _claims(moments: Sequence[Moment], attempt: int | None) -> dict[int, _Claim]:
    """Sort events by claim. An attempt counts up with each failure, and anew after a requeue."""
    claims: dict[int, _Claim] = {}
    for moment in moments:
        if moment.kind == EventKind.REQUEUED:
            attempt = 1
        if moment.claim is not None:
            claims.setdefault(moment.claim, _Claim([], attempt)).moments.append(moment)
        if _failed(moment) and attempt is not None:
            attempt += 1
    return claims


def _failed(moment: Moment) -> bool:
    """Whether an event used up one of the job's attempts."""
    ended = moment.kind == "failed" and moment.data.get("verb") in ("retry", "fail")
    return moment.kind == "retried" or ended


def _attempt_before(row: Row, moments: Sequence[Moment]) -> int | None:
    """Reckon back from the job's own counter which attempt was under way before these events."""
    if any(moment.kind == EventKind.REQUEUED for moment in moments):
        return None  # the counter started afresh since
    return max(row.failures - sum(map(_failed, moments)), 0) + 1


def _attempt(row: Row, claim: _Claim, traceback: str, *, now: datetime) -> Attempt:
    claimed = claim.first(frozenset({EventKind.CLAIMED}))
    ending = claim.first(_ENDINGS)
    refused = claim.first(frozenset({EventKind.REFUSED}))
    known = claimed or ending or claim.moments[0]
    found = ending.data.get("error") if ending else None
    error = found if isinstance(found, dict) else {}
    return Attempt(
        lease=words.letter(known.claim),
        hue=words.hue(known.claim),
        attempt=claim.attempt,
        worker=known.worker or "",
        began=words.moment(_at(row, claimed), now),
        took=_took(ending, claimed) if ending else "",
        tone=narration.tone(ending.kind) if ending else "plain",
        outcome=wording.name(ending.kind) if ending else _("not known"),
        error=str(error.get("class") or ""),
        message=wording.first_line(str(error.get("message") or "")),
        traceback=traceback,
        refused=wording.note(refused) if refused else "",
    )


def _under_way(row: Row, claim: _Claim, holder: Holder | None, *, now: datetime) -> Attempt:
    """Tell the attempt that runs now, if its lease is there to tell."""
    told = _attempt(row, claim, "", now=now)
    if holder is None or claim.first(_ENDINGS) is not None:
        return told
    took = words.span(holder.since, now)
    return replace(told, outcome=_("Running"), tone="running", took=took)


def _took(ending: Moment, claimed: Moment | None) -> str:
    ran = wording.number(ending.data, "ran_ms")
    if ran is None and claimed is not None:
        ran = ending.ms - claimed.ms
    return "" if ran is None else words.duration(ran / 1000)


def _at(row: Row, moment: Moment | None) -> datetime | None:
    """Return when an event was; None where that lies beyond what a page can write."""
    try:
        at = row.enqueued_at + timedelta(milliseconds=moment.ms) if moment else None
    except OverflowError:
        return None
    return at if at is None or 1 < at.year < 9999 else None
