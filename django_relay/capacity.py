"""How many jobs a child runs, sync and async, and how many more it may claim.

Nobody knows what kind a job is before it has been claimed. So a claim is for what the scarcer kind
of slots can start. Only while it brings nothing but async jobs, and as many as were asked for, the
next is for twice as many, up to what the loop can start; after one that brought fewer, for half as
many. Values only: no lock, no SQL.
"""

from __future__ import annotations

from collections.abc import Iterable

from .messages import Plan
from .pace import Pace


class Capacity:
    """The slots of one child, by kind: False for sync, True for async."""

    def __init__(self, plan: Plan) -> None:
        self._slots = {False: plan.slots, True: plan.async_slots}
        self._busy = {False: 0, True: 0}
        self._scarcer = min(self._slots.values())
        self._most = plan.async_slots
        if plan.prefetch is not None:
            # A claim for so many, and as many ahead, may find sync jobs: then no more of them wait
            # than were to be fetched ahead.
            half = (self._scarcer + plan.prefetch) // 2
            self._most = max(self._scarcer, min(self._most, half))
        #: The slots that count now: how much a batch may hold follows from them.
        self.width = self._scarcer

    def begin(self, *, on_loop: bool) -> None:
        """A job takes a slot."""
        self._busy[on_loop] += 1

    def end(self, *, on_loop: bool) -> None:
        """A slot is free again."""
        self._busy[on_loop] -= 1

    def came(self, kinds: Iterable[bool], *, full: bool) -> None:
        """A claim has brought jobs of these kinds; ``full``: as many as it asked for."""
        if not all(kinds):
            self.width = self._scarcer
        elif full:
            self.width = max(self.width, min(2 * self.width, self._most))
        else:
            self.width = max(self.width // 2, self._scarcer)

    @property
    def busy(self) -> bool:
        """Whether any job runs."""
        return any(self._busy.values())

    @property
    def on_loop(self) -> bool:
        """Whether the loop may begin another job."""
        return self._busy[True] < self._slots[True]

    def most(self, pace: Pace) -> int:
        """How many jobs may be in hand, running and fetched ahead, while the scarcer kind of slots
        run: when so many have ended, they need not wait for others."""
        return self.width + pace.ahead(self.width)

    def room(self, pace: Pace, *, waiting: int, ending: int) -> int:
        """How many more jobs to claim: the free slots and what may be fetched ahead, less those in
        hand that do not run, ``waiting`` for a slot or ``ending``."""
        free = self._slots[True] - self._busy[True]
        if self.width == self._scarcer:
            free = min(free, self._slots[False] - self._busy[False])
        room = max(min(free, self.width), 0) + pace.ahead(self.width) - waiting - ending
        # While jobs wait for a slot, not for a few: a claim costs nearly the same for more.
        return 0 if waiting and room * 2 < self.width else max(room, 0)
