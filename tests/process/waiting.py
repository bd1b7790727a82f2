"""Wait for a condition with a deadline; the only way in which a test lets time pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], deadline: float, *, what: str, pause: float = 0.05) -> T:
    """Call ``condition`` until it is true and return its value; fail after ``deadline`` seconds."""
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline:g} s: {what}")
        time.sleep(pause)


def let_pass(seconds: float) -> None:
    """Let a time pass that is itself the case: a worker is away for so long, say."""
    time.sleep(seconds)
