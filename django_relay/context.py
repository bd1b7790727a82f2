"""What a running task may ask about its job, and the switch by which its worker tells it to stop.

A worker makes one ``Control`` per attempt, puts it into a ``RelayContext`` and enters that before
the handler. Nothing here touches the database: what the context says is what the worker last
learned, and the lease's end on this host's own clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from .compat import ContextOf
from .exceptions import JobCancelled, LeaseLost

_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def boot_time() -> float:
    """Read this host's clock that goes on while it sleeps, in seconds since an unknown start.

    A lease goes on running out while a laptop or a virtual machine is suspended, which Linux's
    monotonic clock does not see. Where there is no such clock, the monotonic one has to do.
    """
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


@dataclass(slots=True)
class Control:
    """What the worker has learned about one attempt; the worker writes it, the context reads it.

    ``lost``: the job is not ours any more. ``cancelled``: somebody asked it to stop. ``expires``:
    when the lease ends at the latest, on ``boot_time()``, counted from before it was asked for.
    ``deadline``: when the attempt's timeout comes, on the same clock, or None.
    """

    lost: bool = False
    cancelled: bool = False
    expires: float = math.inf
    deadline: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayContext(ContextOf[..., Any]):  # type: ignore[misc]  # frozen at run time as its parent is
    """The context of a task that takes one; ``current_job()`` returns it too.

    ``max_attempts`` is None where there is no limit. ``fence`` is (job id, claim number): the
    number rises with every claim and is never reset, so a store outside can refuse a writer when it
    has seen a higher one; the job's id alone is the idempotency key.
    """

    max_attempts: int | None
    fence: tuple[int, int]
    control: Control

    @property
    def deadline(self) -> float | None:
        """When the timeout comes, in seconds on ``context.boot_time()``; None without a timeout."""
        return self.control.deadline

    def remaining(self) -> timedelta | None:
        """Tell how long this attempt may still run: zero when over, None without a timeout."""
        if self.control.deadline is None:
            return None
        return timedelta(seconds=max(self.control.deadline - boot_time(), 0))

    @property
    def should_stop(self) -> bool:
        """Whether going on is of no use: cancelled, given to another, or the lease is over."""
        return self._is_lost or self.control.cancelled

    def checkpoint(self) -> None:
        """Return while the job is still wanted here; else raise LeaseLost or JobCancelled.

        Call it between steps of a long task. Let the exception pass: nothing else is needed.
        """
        if self._is_lost:
            raise LeaseLost(
                f"Job {self.fence[0]} does not belong to this attempt any more (claim "
                f"{self.fence[1]}): its lease ran out, or it was cancelled or given to another."
            )
        if self.control.cancelled:
            raise JobCancelled(f"Job {self.fence[0]} was asked to stop.")

    @property
    def _is_lost(self) -> bool:
        return self.control.lost or boot_time() >= self.control.expires


class Once:
    """Makes a context when somebody first asks for it: few tasks do."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], RelayContext]) -> None:
        self._make = make
        self._made: RelayContext | None = None

    def __call__(self) -> RelayContext:
        if self._made is None:
            self._made = self._make()
        return self._made


_current: ContextVar[Once | None] = ContextVar("django_relay_job", default=None)


def current_job() -> RelayContext | None:
    """Return the context of the job that this code runs for, or None outside of any."""
    current = _current.get()
    return None if current is None else current()


def enter(context: Once) -> None:
    """Make ``context`` the current job until ``leave``, for this thread or coroutine."""
    _current.set(context)


def leave() -> None:
    """Have no current job any more."""
    _current.set(None)
