"""An event as a line of the admin's list: the words are those of the replay."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils.dateparse import parse_datetime

from django_relay.recording import Moment
from django_relay.replay import wording
from django_relay.replay.wording import Words
from django_relay.states import EventKind

from . import words
from .history import Event

_E = EventKind

#: How the style sheet and the icons know a kind of event; any other is plain.
TONES: dict[str, str] = {
    _E.CLAIMED: "running",
    _E.SUCCEEDED: "successful",
    _E.RETRIED: "warning",
    _E.FAILED: "failed",
    _E.SNOOZED: "scheduled",
    _E.RELEASED: "scheduled",
    _E.RESCUED: "warning",
    _E.CANCEL_REQUESTED: "cancelled",
    _E.CANCELLED: "cancelled",
    _E.REFUSED: "refused",
    _E.RESCHEDULED: "scheduled",
}


@dataclass(frozen=True, slots=True)
class Line:
    """An event as a line of the list. ``milliseconds`` count from its job's enqueue."""

    event: Event
    tone: str
    title: Words
    note: str
    milliseconds: str
    moment: words.Moment | None
    lease: str
    hue: int
    worker: str
    actor: str
    error: str
    message: str
    traceback: str


def tone(kind: str) -> str:
    """Return the style sheet's word for a kind of event."""
    return TONES.get(kind, "plain")


def line(event: Event, enqueued_at: datetime | None, now: datetime) -> Line:
    """Tell an event in words."""
    found = event.data.get("error")
    error = found if isinstance(found, dict) else {}
    return Line(
        event=event,
        tone=tone(event.kind),
        title=wording.name(event.kind),
        note=wording.note(_moment(event, enqueued_at)),
        milliseconds=words.milliseconds(words.between(enqueued_at, event.at)),
        moment=words.moment(event.at, now),
        lease=words.letter(event.claim),
        hue=words.hue(event.claim),
        worker=event.worker or "",
        actor=wording.actor(event.actor),
        error=str(error.get("class") or ""),
        message=str(error.get("message") or ""),
        traceback=event.traceback or "",
    )


def _moment(event: Event, enqueued_at: datetime | None) -> Moment:
    """Return an event as a recording has it: with its times from the job's enqueue, if known."""
    data = dict(event.data)
    due = _milliseconds(enqueued_at, _time(data.pop("run_after", None)))
    if due is not None:
        data["run_after_ms"] = due
    at = _milliseconds(enqueued_at, event.at) or 0.0
    return Moment(at, event.job_id, event.kind, event.claim, data=data)


def _milliseconds(start: datetime | None, end: datetime | None) -> float | None:
    if start is None or end is None or (start.tzinfo is None) != (end.tzinfo is None):
        return None
    return (end - start).total_seconds() * 1000


def _time(text: object) -> datetime | None:
    try:
        return parse_datetime(text) if isinstance(text, str) else None
    except ValueError:
        return None
