"""One job's timeline and attempts, made of its history; what the job's page shows of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _

from django_relay.states import EventKind, State

from . import counts, narration, words
from .history import Event, History
from .narration import Line, Words
from .rows import Holder, Row
from .words import Moment

#: Attempts that a page shows, the newest.
ATTEMPTS = 20

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
    """One claim of a job: who had it, for how long, and how it ended."""

    lease: str
    hue: int
    attempt: int | None
    worker: str
    began: Moment | None
    took: str
    tone: str
    outcome: Words
    error: str
    message: str
    refused: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """A job's lines, oldest first; ``between`` says how many are left out after ``head``.

    ``earlier`` tells that there were attempts before those that are shown.
    """

    head: list[Line]
    tail: list[Line]
    between: str
    attempts: list[Attempt]
    earlier: bool


def build(row: Row, history: History, holder: Holder | None, now: datetime) -> Timeline:
    """Make the timeline of a job from its row, its events and its lease."""
    head = _lines(row, history.head, 1, now)
    start = _attempt_before(row, history.tail) if history.head else 1
    tail = _lines(row, history.tail, start, now)
    between = ""
    if history.between:
        capped = history.between + len(head) + len(tail) > counts.ENOUGH
        pattern = _("more than %(n)s") if capped else "%(n)s"
        between = pattern % {"n": f"{history.between - capped:,}"}
    attempts = _attempts(row, head + tail, holder, now)
    return Timeline(head, tail, between, attempts, earlier=len(attempts) == ATTEMPTS)


def _lines(row: Row, events: list[Event], first: int | None, now: datetime) -> list[Line]:
    numbers = narration.attempts_of(events, first)
    return [
        narration.line(event, row.enqueued_at, now, number)
        for event, number in zip(events, numbers, strict=True)
    ]


def _attempt_before(row: Row, events: list[Event]) -> int | None:
    """Reckon back from the job's own counter which attempt was under way before ``events``."""
    if any(event.kind == EventKind.REQUEUED for event in events):
        return None  # the counter started afresh since
    return max(row.failures - sum(event.failed for event in events), 0) + 1


def _attempts(row: Row, lines: list[Line], holder: Holder | None, now: datetime) -> list[Attempt]:
    by_claim: dict[int, list[Line]] = {}
    for line in lines:
        if line.event.claim is not None:
            by_claim.setdefault(line.event.claim, []).append(line)
    newest = max(by_claim, default=None)
    running = row.state == State.RUNNING
    return [
        _attempt(own, holder if running and claim == newest else None, now)
        for claim, own in list(by_claim.items())[-ATTEMPTS:]
    ]


def _attempt(lines: list[Line], holder: Holder | None, now: datetime) -> Attempt:
    claimed = next((line for line in lines if line.event.kind == EventKind.CLAIMED), None)
    ending = next((line for line in lines if line.event.kind in _ENDINGS), None)
    refused = next((line for line in lines if line.event.kind == EventKind.REFUSED), None)
    known = claimed or ending or lines[0]
    began = claimed.event.at if claimed else None
    outcome: Words = _("not known")
    tone, took = "plain", ""
    if ending is not None:
        outcome, tone, took = ending.title, ending.tone, _took(ending.event, began)
    elif holder is not None:
        outcome, tone, took = _("Running"), "running", words.span(holder.since, now)
    return Attempt(
        lease=known.lease,
        hue=known.hue,
        attempt=known.attempt,
        worker=known.worker,
        began=words.moment(began, now),
        took=took,
        tone=tone,
        outcome=outcome,
        error=ending.error if ending else "",
        message=words.first_line(ending.message) if ending else "",
        refused=refused.note if refused else "",
    )


def _took(ending: Event, began: datetime | None) -> str:
    ran = ending.number("ran_ms")
    if ran is not None:
        return words.duration(ran / 1000)
    return words.span(began, ending.at)
