"""How many jobs a child runs, sync and async, and how many more it may claim.

Nobody knows what kind a job is before it has been claimed. So a claim is for what the scarcer kind
of slots can start; only while nothing but async jobs has come, for what the loop can. Values only:
no lock, no SQL.
"""

from __future__ import annotations

from collections.abc import Iterable

from .messages import Plan
from .pace import Pace


class Capacity:
    """The slots of one child, by kind: False for sync, True for async."""

    def __init__(self, plan: Plan) -> None:
        self._slots = {False: plan.slots, True: plan.async_slots}
        self._prefetch = plan.prefetch
        self._busy = {False: 0, True: 0}
        self._only_async = False

    def begin(self, *, on_loop: bool) -> None:
        """A job takes a slot."""
        self._busy[on_loop] += 1

    def end(self, *, on_loop: bool) -> None:
        """A slot is free again."""
        self._busy[on_loop] -= 1

    def came(self, kinds: Iterable[bool]) -> None:
        """A claim has brought jobs of these kinds."""
        if known := set(kinds):
            self._only_async = known == {True} and self._prefetch != 0

    @property
    def busy(self) -> bool:
        """Whether any job runs."""
        return any(self._busy.values())

    @property
    def on_loop(self) -> bool:
        """Whether the loop may begin another job."""
        return self._busy[True] < self._slots[True]

    @property
    def width(self) -> int:
        """The slots that count now: how much a batch may hold follows from them."""
        return self._slots[True] if self._only_async else min(self._slots.values())

    def room(self, pace: Pace, *, held: int) -> int:
        """How many more jobs may be claimed, when so many are ``held`` that do not run: the free
        slots and what may be fetched ahead, less those."""
        kinds = (True,) if self._only_async else (True, False)
        free = max(min(self._slots[kind] - self._busy[kind] for kind in kinds), 0)
        return free + pace.ahead(self.width) - held
