"""What a task may raise to steer its job, and what may be raised into it or reported about it.

All of them are plain exceptions with a readable message, importable by their path, so that a
``TaskError`` always finds its class.
"""

from __future__ import annotations

from datetime import timedelta

#: A snoozed job sleeps no longer than this: ten years. It keeps every date inside the calendar.
MAX_SNOOZE = timedelta(days=3650)


class RelayError(Exception):
    """What all exceptions of this package have in common."""


class Snooze(RelayError):
    """Raise it in a task: put the job aside and run it again after ``delay``.

    This is no failure and uses up no attempt. ``delay`` is a timedelta or a number of seconds; less
    than nothing means at once, more than ten years means ten years. Raises TypeError for another
    type and ValueError for a NaN.
    """

    def __init__(self, delay: timedelta | float) -> None:
        super().__init__(delay)
        self.delay = _bounded(delay)

    def __str__(self) -> str:
        return f"to be run again in {self.delay}"


class Fail(RelayError):
    """Raise it in a task: the job has failed for good, whatever attempts are left."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return str(self.reason)


class JobTimeout(RelayError):
    """Raised into a task that runs longer than its timeout; counts as a failed attempt."""


class JobCancelled(RelayError):
    """The job was cancelled. ``RelayContext.checkpoint`` raises it in a running task."""


class JobExpired(RelayError):
    """The job had not started by its ``start_before``."""


class WorkerLost(RelayError):
    """The worker that ran the job died, fell silent or was stopped."""


class LeaseLost(RelayError):
    """This attempt no longer owns its job: whatever it still returns or raises is refused."""


class TaskNotFound(RelayError):
    """The path stored with a job leads to no task: renamed, removed, or its module fails."""


def _bounded(delay: timedelta | float) -> timedelta:
    if isinstance(delay, timedelta):
        return min(max(delay, timedelta(0)), MAX_SNOOZE)
    if isinstance(delay, bool) or not isinstance(delay, int | float):
        raise TypeError(
            f"Snooze takes a timedelta or a number of seconds, not {type(delay).__name__}."
        )
    if delay != delay:  # a NaN; math.isnan would fail on a very large integer
        raise ValueError("Snooze takes a timedelta or a number of seconds, not NaN.")
    # Compared before it becomes a timedelta, which would overflow.
    return timedelta(seconds=min(max(delay, 0), MAX_SNOOZE.total_seconds()))
