"""How long a failed job waits before it is tried again: growing, capped, spread, no overflow.

A value alone; who waits, and what a failure is, others decide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from random import SystemRandom

#: No delay is longer than this, and no backoff may be configured beyond it.
LONGEST = timedelta(days=30)
SHORTEST = timedelta(milliseconds=1)

# Its own source: a handler that calls random.seed() must not put all retries in step.
_random = SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The delay before an attempt, by how many attempts have failed.

    The first failure waits about ``base``, each further one ``factor`` times as long, none longer
    than ``cap``. Each delay is then drawn evenly from ``jitter`` (a fraction of it) below to as
    much above, but not above ``cap``: jobs that failed together do not come back together. Raises
    ValueError or TypeError for values that make no sense.
    """

    base: timedelta = timedelta(seconds=5)
    factor: float = 2.0
    cap: timedelta = timedelta(hours=1)
    jitter: float = 0.75

    def __post_init__(self) -> None:
        for name in ("base", "cap"):
            value = getattr(self, name)
            if not isinstance(value, timedelta):
                raise TypeError(
                    f"{name} must be a timedelta, for instance timedelta(seconds=5), "
                    f"not {type(value).__name__}."
                )
            if not SHORTEST <= value <= LONGEST:
                raise ValueError(f"{name} must lie between 1 millisecond and 30 days, not {value}.")
        for name, lowest, highest in (("factor", 1, 100), ("jitter", 0, 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name} must be a number, not {type(value).__name__}.")
            if not lowest <= value <= highest:  # also refuses NaN
                raise ValueError(f"{name} must lie between {lowest} and {highest}, not {value}.")
        if self.cap < self.base:
            raise ValueError(f"cap ({self.cap}) must not be shorter than base ({self.base}).")

    @classmethod
    def of(cls, value: object) -> Backoff:
        """Return a Backoff as it is, and a timedelta as the base of one; refuse the rest."""
        if isinstance(value, Backoff):
            return value
        if not isinstance(value, timedelta):
            raise TypeError(
                f"backoff is of type {type(value).__name__}. Use a Backoff, as "
                "Backoff(base=timedelta(seconds=5)), or a timedelta for its base alone."
            )
        try:
            return cls(base=value, cap=max(value, cls().cap))
        except ValueError as reason:
            raise ValueError(f"backoff is {value}. As its base, {reason}") from None

    @classmethod
    def read(cls, data: object) -> Backoff | None:
        """Make a Backoff of what ``data`` returned, or None of anything else."""
        try:
            given = dict(data)  # type: ignore[call-overload]
            base, cap = (timedelta(seconds=given.pop(name)) for name in ("base", "cap"))
            return cls(base=base, cap=cap, **given)
        except (TypeError, ValueError, KeyError, OverflowError):
            return None

    def data(self) -> dict[str, float]:
        """Tell it in JSON's terms, times in seconds."""
        return {
            "base": self.base.total_seconds(),
            "factor": self.factor,
            "cap": self.cap.total_seconds(),
            "jitter": self.jitter,
        }

    def nominal(self, failures: int) -> timedelta:
        """Tell the delay after the given number of failures (1 or more), before it is spread."""
        steps = max(failures - 1, 0)
        if steps == 0 or self.factor == 1:
            return self.base
        # The power is computed only where it stays below the cap, so it cannot overflow.
        if steps >= math.log(self.cap / self.base) / math.log(self.factor):
            return self.cap
        return min(self.base * self.factor**steps, self.cap)

    def delay(self, failures: int) -> timedelta:
        """Draw the delay before the next attempt after the given number of failures (1 or more)."""
        nominal = self.nominal(failures)
        shortest = nominal * (1 - self.jitter)
        longest = min(nominal * (1 + self.jitter), self.cap)
        return shortest + (longest - shortest) * _random.random()
