"""The database's clock, read off this host's monotonic one.

What the lab does from outside is timed here without asking a database that it may just have
stopped; an event's time can then be compared with it. The two are set once, by the question with
the shortest answer of several.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from .places import Place

NOW = "SELECT EXTRACT(EPOCH FROM clock_timestamp())::float8"


@dataclass(frozen=True, slots=True)
class Clock:
    """``offset`` leads from the monotonic clock to the database's, in seconds since 1970."""

    offset: float

    def now(self) -> float:
        """What the database's clock shows now."""
        return self.offset + time.monotonic()

    def at(self, monotonic: float) -> float:
        """What the database's clock showed when the monotonic one stood there."""
        return self.offset + monotonic


def read(place: Place) -> Clock:
    """Compare the clocks."""
    answers = []
    for _ in range(7):
        asked = time.monotonic()
        shown = place.rows(NOW)[0][0]
        answered = time.monotonic()
        answers.append((answered - asked, shown - (asked + answered) / 2))
    return Clock(min(answers)[1])


def wait_until(end: float) -> None:
    """Let time pass until the monotonic clock stands at ``end``."""
    time.sleep(max(0.0, end - time.monotonic()))
