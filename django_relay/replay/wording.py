"""What happened, in words: an event or a mark of a recording becomes a title and a note."""

from __future__ import annotations

from collections.abc import Callable

from django_relay.recording import Mark, Moment

TITLES = {
    "enqueued": "Accepted",
    "unblocked": "Unblocked",
    "claimed": "Claimed under lease {lease}",
    "succeeded": "Succeeded under lease {lease}",
    "retried": "Failed, to be tried again",
    "failed": "Failed for good",
    "snoozed": "Put aside by the task",
    "released": "Given back",
    "rescued": "Taken back from its worker",
    "cancel_requested": "Asked to stop",
    "cancelled": "Cancelled",
    "rescheduled": "Given another time",
    "moved": "Moved",
    "requeued": "Requeued",
    "refused": "Late ending refused",
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

_REASONS = {
    "expired": "its lease had run out",
    "superseded": "the job was no longer its own",
    "cancelled": "the job had been cancelled",
}
_WOULD_HAVE = {
    "succeed": "it would have succeeded",
    "retry": "it would have been a failure",
    "fail": "it would have failed for good",
    "snooze": "it would have put the job aside",
    "release": "it would have given the job back",
}


def clock(ms: float) -> str:
    """Write a time from enqueue: seconds with milliseconds, or minutes and hours where long."""
    seconds = ms / 1000
    if abs(seconds) < 120:
        return f"{seconds:.3f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def title(moment: Moment) -> str:
    """Name an event."""
    known = TITLES.get(moment.kind, moment.kind)
    return known.format(lease=moment.lease or "?")


def note(moment: Moment) -> str:
    """Say what is particular about an event; nothing where nothing is."""
    tell = _NOTES.get(moment.kind)
    said = tell(moment) if tell else ""
    error = moment.data.get("error")
    if isinstance(error, dict) and moment.kind != "refused":
        name = str(error.get("class") or "error").rpartition(".")[2]
        said = "; ".join(part for part in (said, name) if part)
    return said[:1].upper() + said[1:]


def mark(each: Mark) -> str:
    """Name what was done from outside."""
    return each.what[:1].upper() + each.what[1:]


def mark_note(each: Mark) -> str:
    """Say what a signal does."""
    word = each.what.partition(" ")[0]
    return {
        "SIGKILL": "No farewell: nothing is written, and nobody renews its lease from here on.",
        "SIGSTOP": "Frozen: it holds its lease and cannot renew it.",
        "SIGCONT": "It goes on as if nothing had happened.",
        "SIGTERM": "It is to stop, and gives back what it runs.",
    }.get(word, "")


def _enqueued(moment: Moment) -> str:
    state = moment.data.get("state")
    if state == "scheduled":
        return f"the job and its first event, committed together; to run later{_due(moment)}"
    return "the job and its first event, committed together"


def _claimed(moment: Moment) -> str:
    return "a fresh token, committed before the handler starts"


def _due(moment: Moment) -> str:
    due = moment.data.get("run_after_ms")
    return f", due at {clock(due)}" if isinstance(due, int | float) else ""


def _ended(moment: Moment) -> str:
    said = []
    ran, renewals = moment.data.get("ran_ms"), moment.data.get("renewals")
    if isinstance(ran, int | float):
        said.append(f"the handler ran {clock(ran)}")
    if isinstance(renewals, int) and renewals:
        said.append(f"the lease was renewed {renewals} {'time' if renewals == 1 else 'times'}")
    return ", ".join(said) + _due(moment)


def _rescued(moment: Moment) -> str:
    return str(moment.data.get("why") or "") + _due(moment)


def _refused(moment: Moment) -> str:
    reason, verb = str(moment.data.get("reason")), str(moment.data.get("would_have"))
    late = moment.data.get("late_ms")
    said = _REASONS.get(reason, reason)
    if isinstance(late, int | float):
        said += f", its lease had been over for {clock(late)}"
    return f"{said}; {_WOULD_HAVE.get(verb, verb)}. Nothing changes."


_NOTES: dict[str, Callable[[Moment], str]] = {
    "enqueued": _enqueued,
    "claimed": _claimed,
    "succeeded": _ended,
    "retried": _ended,
    "failed": _ended,
    "snoozed": _ended,
    "released": _ended,
    "cancelled": _rescued,
    "rescued": _rescued,
    "rescheduled": _due,
    "refused": _refused,
}
