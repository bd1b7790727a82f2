"""What happened, in words: an event or a mark of a recording becomes a title and a note.

The one place that puts events into words, for the replay and for the admin's list of events alike.
Whatever an event's data holds is told or passed over; nothing in here can raise for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_relay.recording import Mark, Moment

Words = str | Promise

TITLES: dict[str, Words] = {
    "enqueued": gettext_lazy("Enqueued"),
    "unblocked": gettext_lazy("Unblocked"),
    "claimed": gettext_lazy("Claimed"),
    "succeeded": gettext_lazy("Succeeded"),
    "retried": gettext_lazy("Failed, to be tried again"),
    "failed": gettext_lazy("Failed for good"),
    "snoozed": gettext_lazy("Put aside by the task"),
    "released": gettext_lazy("Given back"),
    "rescued": gettext_lazy("Taken back from its worker"),
    "cancel_requested": gettext_lazy("Asked to stop"),
    "cancelled": gettext_lazy("Cancelled"),
    "rescheduled": gettext_lazy("Given another time"),
    "moved": gettext_lazy("Moved"),
    "requeued": gettext_lazy("Requeued"),
    "refused": gettext_lazy("Late ending refused"),
}
_UNDER_LEASE: dict[str, Words] = {
    "claimed": gettext_lazy("Claimed under lease %(lease)s"),
    "succeeded": gettext_lazy("Succeeded under lease %(lease)s"),
}

#: The word for colours and signs; what is not here is plain.
TONES = {
    "claimed": "owned",
    "succeeded": "good",
    "retried": "odd",
    "failed": "bad",
    "released": "odd",
    "rescued": "odd",
    "cancelled": "odd",
    "refused": "bad",
}

_REASONS: dict[str, Words] = {
    "expired": gettext_lazy("its lease had run out"),
    "superseded": gettext_lazy("the job was no longer its own"),
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
_SIGNALS: dict[str, Words] = {
    "SIGKILL": gettext_lazy(
        "No farewell: nothing is written, and nobody renews its lease from here on."
    ),
    "SIGSTOP": gettext_lazy("Frozen: it holds its lease and cannot renew it."),
    "SIGCONT": gettext_lazy("It goes on as if nothing had happened."),
    "SIGTERM": gettext_lazy("It is to stop, and gives back what it runs."),
}
_NUMBERED = re.compile(r"worker (\d+)(?:/(\d+))?")


def clock(ms: float) -> str:
    """Write a time from enqueue: seconds with milliseconds, or minutes, hours, days where long."""
    seconds = ms / 1000
    if abs(seconds) < 120:
        return _("%(n)s s") % {"n": f"{seconds:.3f}"}
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return _("%(n)s min %(m)s s") % {"n": minutes, "m": f"{rest:02d}"}
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return _("%(n)s h %(m)s min") % {"n": hours, "m": f"{minutes:02d}"}
    return _("%(n)s d %(m)s h") % {"n": hours // 24, "m": hours % 24}


def number(data: Mapping[str, Any], name: str) -> float | None:
    """Return a number of an event's data, or None where there is none that says anything."""
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e16 else None


def name(kind: str) -> Words:
    """Name a kind of event; an unknown one is told as it is."""
    return TITLES.get(kind, kind)


def title(moment: Moment) -> str:
    """Name an event, with its lease where that is what it is about."""
    if moment.lease and moment.kind in _UNDER_LEASE:
        return _UNDER_LEASE[moment.kind] % {"lease": moment.lease}
    return str(name(moment.kind))


def note(moment: Moment) -> str:
    """Say what is particular about an event, but for its error and who wished it."""
    tell = _NOTES.get(moment.kind)
    return sentence(tell(moment)) if tell else ""


def whole_note(moment: Moment) -> str:
    """Say all that an event tells: what is particular, the error, and who wished it."""
    by = _("by %(actor)s") % {"actor": actor(moment.actor)} if moment.actor else ""
    return sentence("; ".join(part for part in (note(moment), error(moment), by) if part))


def error(moment: Moment) -> str:
    """Tell the error that an event brought, in one line."""
    found = moment.data.get("error")
    if not isinstance(found, dict):
        return ""
    kind = str(found.get("class") or "").rpartition(".")[2]
    said = first_line(str(found.get("message") or ""))
    return ": ".join(part for part in (kind, said) if part)


def first_line(text: str | None, limit: int = 200) -> str:
    """Return the first line of a text that is not empty, shortened to ``limit`` characters."""
    line = next((line.strip() for line in (text or "").splitlines() if line.strip()), "")
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def actor(who: str | None) -> str:
    """Return the name of who acted, without the key before it."""
    key, _space, rest = (who or "").partition(" ")
    return rest if rest and key.isdigit() else who or ""


def sentence(text: str) -> str:
    """Begin a text with a capital letter."""
    return text[:1].upper() + text[1:]


def worker(own: str, workers: Sequence[str]) -> str:
    """Name a worker of a recording; its child's number only where another child is there too.

    One that keeps its own name has that and no other.
    """
    numbered = _NUMBERED.fullmatch(own)
    if numbered is None:
        return own
    whole = own.partition("/")[0]
    if numbered[2] is None or sum(each.partition("/")[0] == whole for each in workers) == 1:
        return _("Worker %(n)s") % {"n": numbered[1]}
    return _("Worker %(n)s, process %(m)s") % {"n": numbered[1], "m": numbered[2]}


def mark(each: Mark) -> str:
    """Name what was done from outside."""
    return sentence(each.what)


def mark_note(each: Mark) -> str:
    """Say what a signal does."""
    return str(_SIGNALS.get(each.what.partition(" ")[0], ""))


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _word(moment: Moment, key: str, words: Mapping[str, Words]) -> str:
    said = moment.data.get(key)
    return str(words.get(said, said)) if isinstance(said, str) else ""


def _enqueued(moment: Moment) -> str:
    said = _("the job and its first event, committed together")
    if moment.data.get("state") == "scheduled":
        return _joined(said, _("to run later"), _due(moment))
    return _joined(said, _("behind others")) if moment.data.get("state") == "blocked" else said


def _claimed(moment: Moment) -> str:
    return _("a fresh token, committed before the handler starts")


def _due(moment: Moment) -> str:
    due = number(moment.data, "run_after_ms")
    if due is None:
        return ""
    return _("due at %(time)s") % {"time": clock(due)} if due > moment.ms + 1 else _("due at once")


def _ran(moment: Moment) -> str:
    said = []
    ran, renewals = number(moment.data, "ran_ms"), number(moment.data, "renewals")
    if ran is not None:
        said.append(_("the handler ran %(time)s") % {"time": clock(ran)})
    if renewals is not None and renewals >= 1:
        pattern = ngettext(
            "the lease was renewed once", "the lease was renewed %(n)s times", int(renewals)
        )
        said.append(pattern % {"n": int(renewals)})
    return ", ".join(said)


def _why(moment: Moment) -> str:
    return _word(moment, "why", _WHY)


def _ended(moment: Moment) -> str:
    return _joined(_why(moment), _ran(moment), _due(moment))


def _released(moment: Moment) -> str:
    if moment.data.get("began") is False:
        return _joined(_("before it began"), _why(moment))
    return _joined(_("by a stopping worker"), _ran(moment))


def _rescued(moment: Moment) -> str:
    return _joined(_why(moment), _due(moment))


def _cancelled(moment: Moment) -> str:
    return _joined(_("by force") if moment.data.get("forced") is True else "", _ended(moment))


def _moved(moment: Moment) -> str:
    queue, priority = moment.data.get("queue"), moment.data.get("priority")
    return _("to queue %(queue)s, priority %(priority)s") % {"queue": queue, "priority": priority}


def _refused(moment: Moment) -> str:
    late = number(moment.data, "late_ms")
    over = "" if late is None else _("its lease had been over for %(time)s") % {"time": clock(late)}
    reason = _joined(_word(moment, "reason", _REASONS), over)
    would = _word(moment, "would_have", _WOULD_HAVE)
    said = "; ".join(part for part in (reason, would) if part)
    return ". ".join(part for part in (said, _("Nothing changes.")) if part)


_NOTES: dict[str, Callable[[Moment], str]] = {
    "enqueued": _enqueued,
    "claimed": _claimed,
    "succeeded": _ended,
    "retried": _ended,
    "failed": _ended,
    "snoozed": _ended,
    "released": _released,
    "cancelled": _cancelled,
    "rescued": _rescued,
    "rescheduled": _due,
    "moved": _moved,
    "refused": _refused,
}
