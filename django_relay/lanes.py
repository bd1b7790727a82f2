"""Extra children for jobs that have cost a process, while the ordinary ones have no room for them.

Such a job runs alone in its process, in a lane: a child that runs nothing else. An ordinary child
that has nothing in hand becomes one by taking such a job at once, and another child takes its
place, so that no innocent work waits behind it. Under load no child has nothing in hand; then a
lane is started when such jobs have waited for a moment. Lanes end when there is nothing for them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from .messages import Plan
from .nursery import Nursling

#: How long such jobs wait for an ordinary child before a lane is started, in seconds.
WAIT = 0.5
#: How long a lane stays without work, in seconds.
LINGER = 10.0


class Lanes:
    """How many lanes there should be, at most ``most``; the children themselves are others'."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting_since: float | None = None
        self._none_since = time.monotonic()
        #: Whether ordinary children may become lanes.
        self.open = True

    def looked(self, *, suspects: bool) -> None:
        """A look at the database found jobs that have cost a process, or none."""
        now = time.monotonic()
        if suspects:
            self._waiting_since = self._waiting_since or now
            self._none_since = now
        else:
            self._waiting_since = None

    def another(self, lanes: Sequence[Nursling]) -> bool:
        """Whether to start one more: such jobs wait, and every lane is at work."""
        since = self._waiting_since
        if since is None or time.monotonic() - since < WAIT or len(lanes) >= self._most:
            return False
        if not all(lane.ready and not lane.idle for lane in lanes):
            return False
        self._waiting_since = time.monotonic()
        return True

    def changed(self, lanes: Sequence[Nursling]) -> bool:
        """See whether there may be more; return whether that is news."""
        before, self.open = self.open, len(lanes) < self._most
        return self.open is not before

    def superfluous(self, lanes: Sequence[Nursling]) -> list[Nursling]:
        """The lanes that have had nothing to do for long enough."""
        if time.monotonic() - self._none_since < LINGER:
            return []
        return [lane for lane in lanes if lane.ready and lane.idle]


def lane(plan: Plan) -> Plan:
    """The plan of a lane beside children of this plan."""
    return replace(plan, lane=True, slots=1, async_slots=1, prefetch=0, max_jobs=None)
