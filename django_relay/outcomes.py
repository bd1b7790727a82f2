"""What became of an attempt, as a value.

``execution`` makes an Outcome, ``transitions.settle`` writes it. The outcome says what the handler
did; what becomes of the job (another attempt, or none) the settling statement decides from the
job's own counters.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, NamedTuple

#: No delay is longer than this, in seconds: ten years. It keeps every date inside the calendar.
MAX_DELAY = 10 * 365 * 86400.0


class Verb(StrEnum):
    """How an owner gives up its lease."""

    SUCCEED = "succeed"
    RETRY = "retry"
    FAIL = "fail"
    SNOOZE = "snooze"
    RELEASE = "release"


class Outcome(NamedTuple):
    """One ending. ``result`` and ``data`` are JSON texts, ``delay`` is in seconds."""

    verb: Verb
    result: str | None = None
    data: str | None = None
    delay: float = 0.0

    @property
    def error(self) -> dict[str, str] | None:
        """The error of a failed attempt: class, message and traceback."""
        found: dict[str, str] | None = json.loads(self.data).get("error") if self.data else None
        return found


def succeeded(result: str) -> Outcome:
    """The handler returned; ``result`` is its return value as JSON text."""
    return Outcome(Verb.SUCCEED, result=result)


def raised(error: dict[str, Any], *, delay: float) -> Outcome:
    """The handler raised; try again after ``delay`` seconds unless attempts have run out."""
    return Outcome(Verb.RETRY, data=json.dumps({"error": error}), delay=_bounded(delay))


def untellable(kind: type[BaseException]) -> Outcome:
    """Something of this type happened around the handler that no more could be learned about."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    message = "The attempt ended in a way that could not be described."
    error = {"class": name, "importable": "builtins.Exception", "message": message}
    return raised(error | {"traceback": ""}, delay=5.0)


def unstorable(why: str, *, delay: float = 0.0) -> Outcome:
    """The database would not store the outcome of an attempt; that is made again in a while."""
    message = f"The database refused to store this outcome: {why}."
    error = {"class": "django_relay.storable.Unstorable", "message": message, "traceback": ""}
    return raised(error, delay=max(delay, 5.0))


def failed(error: dict[str, Any]) -> Outcome:
    """The handler raised ``Fail``: do not try again."""
    return Outcome(Verb.FAIL, data=json.dumps({"error": error}))


def snoozed(delay: float) -> Outcome:
    """The handler asked to be run again after ``delay`` seconds; this is no failure."""
    delay = _bounded(delay)
    return Outcome(Verb.SNOOZE, data=json.dumps({"delay": delay}), delay=delay)


def released() -> Outcome:
    """The worker gives the job back unfinished."""
    return Outcome(Verb.RELEASE)


def _bounded(delay: float) -> float:
    # In this order NaN, which is greater than nothing, becomes no delay at all.
    return min(max(0.0, float(delay)), MAX_DELAY)


class Ending(NamedTuple):
    """An outcome presented under a lease.

    ``ran`` is the time since the handler began, in seconds on the worker's monotonic clock, or None
    when it never began. ``took`` is how much of that the handler took, where it is known: an ending
    may have waited for others, or for the database.
    """

    job_id: int
    token: str
    outcome: Outcome
    ran: float | None
    took: float | None = None
