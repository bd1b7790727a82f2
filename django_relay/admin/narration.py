"""What happened to a job, in words: an event becomes a line of the timeline.

Whatever an event's data holds, it is told or passed over; nothing in here can raise for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.dateparse import parse_datetime
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_relay.states import EventKind

from . import words
from .history import Event
from .words import Moment

Words = str | Promise
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

TITLES: dict[str, Words] = {
    _E.ENQUEUED: gettext_lazy("Enqueued"),
    _E.UNBLOCKED: gettext_lazy("Unblocked"),
    _E.CLAIMED: gettext_lazy("Claimed"),
    _E.SUCCEEDED: gettext_lazy("Succeeded"),
    _E.RETRIED: gettext_lazy("Failed, to be tried again"),
    _E.FAILED: gettext_lazy("Failed for good"),
    _E.SNOOZED: gettext_lazy("Put aside by the task"),
    _E.RELEASED: gettext_lazy("Given back"),
    _E.RESCUED: gettext_lazy("Taken back from its worker"),
    _E.CANCEL_REQUESTED: gettext_lazy("Asked to stop"),
    _E.CANCELLED: gettext_lazy("Cancelled"),
    _E.RESCHEDULED: gettext_lazy("Given another time"),
    _E.MOVED: gettext_lazy("Moved"),
    _E.REQUEUED: gettext_lazy("Requeued"),
    _E.REFUSED: gettext_lazy("Late ending refused"),
}

_REASONS: dict[str, Words] = {
    "expired": gettext_lazy("its lease had run out"),
    "superseded": gettext_lazy("the job had been taken back"),
    "cancelled": gettext_lazy("the job had been cancelled"),
}
_WOULD_HAVE: dict[str, Words] = {
    "succeed": gettext_lazy("it would have succeeded"),
    "retry": gettext_lazy("it would have been a failure"),
    "fail": gettext_lazy("it would have failed for good"),
    "snooze": gettext_lazy("it would have put the job aside"),
    "release": gettext_lazy("it would have given the job back"),
}
_WHY: dict[str, Words] = {
    "its lease ran out": gettext_lazy("its lease ran out"),
    "its process died": gettext_lazy("its process died"),
    "its lease row was missing": gettext_lazy("its lease row was missing"),
}


@dataclass(frozen=True, slots=True)
class Line:
    """An event as a line of the timeline. ``milliseconds`` count from the job's enqueue."""

    event: Event
    tone: str
    title: Words
    note: str
    milliseconds: str
    since: str
    moment: Moment | None
    lease: str
    hue: int
    attempt: int | None
    worker: str
    actor: str
    error: str
    message: str
    traceback: str


def title(kind: str) -> Words:
    """Name a kind of event; an unknown one is told as it is."""
    return TITLES.get(kind, kind)


def line(event: Event, enqueued_at: datetime | None, now: datetime, attempt: int | None) -> Line:
    """Tell an event in words."""
    seconds = words.between(enqueued_at, event.at)
    error = event.error
    return Line(
        event=event,
        tone=TONES.get(event.kind, "plain"),
        title=title(event.kind),
        note=note(event),
        milliseconds=words.milliseconds(seconds),
        since=words.duration(seconds) if seconds is not None and seconds >= 10 else "",
        moment=words.moment(event.at, now),
        lease=words.letter(event.claim),
        hue=words.hue(event.claim),
        attempt=attempt if event.claim is not None else None,
        worker=event.worker or "",
        actor=words.actor(event.actor),
        error=str(error.get("class") or ""),
        message=str(error.get("message") or ""),
        traceback=event.traceback or "",
    )


def note(event: Event) -> str:
    """Say what is particular about an event, in one sentence without its full stop."""
    tell = _NOTES.get(event.kind)
    return tell(event) if tell else ""


def _ran(event: Event) -> str:
    ran = event.number("ran_ms")
    said = [] if ran is None else [_("after %(time)s") % {"time": words.duration(ran / 1000)}]
    renewals = event.number("renewals")
    if renewals:
        said.append(_("lease renewed %(n)s times") % {"n": f"{renewals:.0f}"})
    return ", ".join(said)


def _wait(event: Event) -> str:
    """Say how long the job waits from this event on."""
    until = _time(event, "run_after")
    if until is None or (until.tzinfo is None) != (event.at.tzinfo is None):
        return ""
    waits = until - event.at
    if waits < timedelta(milliseconds=1):
        return _("due at once")
    return _("next in %(time)s") % {"time": words.duration(waits.total_seconds())}


def _time(event: Event, name: str) -> datetime | None:
    text = event.data.get(name)
    try:
        return parse_datetime(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _enqueued(event: Event) -> str:
    said = {"scheduled": _("to run later"), "blocked": _("behind others")}
    return said.get(event.state or "", "")


def _failed(event: Event) -> str:
    return _joined(_ran(event), _lost(event))


def _retried(event: Event) -> str:
    return _joined(_ran(event), _wait(event))


def _released(event: Event) -> str:
    began = event.data.get("began")
    said = _("before it began") if began is False else _("by a stopping worker")
    return _joined(said, _ran(event) if began else "")


def _lost(event: Event) -> str:
    why = event.data.get("why")
    return str(_WHY.get(why, why)) if isinstance(why, str) else ""


def _rescued(event: Event) -> str:
    return _joined(_lost(event), _wait(event))


def _cancelled(event: Event) -> str:
    forced = _("by force") if event.data.get("forced") else ""
    return _joined(forced, _ran(event), _lost(event))


def _moved(event: Event) -> str:
    queue, priority = event.data.get("queue"), event.data.get("priority")
    return _("to queue %(queue)s, priority %(priority)s") % {"queue": queue, "priority": priority}


def _refused(event: Event) -> str:
    reason, verb = event.data.get("reason"), event.data.get("would_have")
    said = str(_REASONS.get(reason, reason)) if isinstance(reason, str) else ""
    late = event.number("late_ms")
    if late is not None:
        said = _("%(said)s, %(time)s after its lease ended") % {
            "said": said,
            "time": words.duration(late / 1000),
        }
    would = str(_WOULD_HAVE.get(verb, verb)) if isinstance(verb, str) else ""
    return "; ".join(part for part in (said, would) if part)


_NOTES: dict[str, Callable[[Event], str]] = {
    _E.ENQUEUED: _enqueued,
    _E.SUCCEEDED: _ran,
    _E.RETRIED: _retried,
    _E.FAILED: _failed,
    _E.SNOOZED: _retried,
    _E.RELEASED: _released,
    _E.RESCUED: _rescued,
    _E.CANCELLED: _cancelled,
    _E.RESCHEDULED: _wait,
    _E.MOVED: _moved,
    _E.REFUSED: _refused,
}


def attempts_of(events: Sequence[Event], first: int | None) -> list[int | None]:
    """Number events by attempt: one more after each failure, from one again after a requeue.

    ``first`` is the attempt under way before the first event, or None where that is not known.
    """
    numbers = []
    attempt = first
    for event in events:
        if event.kind == EventKind.REQUEUED:
            attempt = 1
        numbers.append(attempt)
        if event.failed and attempt is not None:
            attempt += 1
    return numbers
