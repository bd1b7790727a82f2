"""A steady load: a thread that enqueues jobs one by one through whatever happens to the database.

It remembers what was accepted, which is what may not get lost. An enqueue whose answer never came
may have been accepted or not; such a job, if it is there, must end as any other.
"""

from __future__ import annotations

import random
import threading
from types import TracebackType

from django.db import InterfaceError, OperationalError

from .places import Place


class Load(threading.Thread):
    """Enqueues until its block is left or ``limit`` jobs are accepted.

    ``pause`` and ``longest`` are in seconds: between two enqueues, and what a job takes at most.
    """

    def __init__(
        self,
        place: Place,
        chance: random.Random,
        *,
        pause: float,
        longest: float,
        limit: int | None = None,
    ) -> None:
        super().__init__(name="relay-lab-load", daemon=True)
        self.accepted: list[int] = []
        self.unanswered = 0
        self._place = place
        self._chance = chance
        self._pause = pause
        self._longest = longest
        self._limit = limit
        self._over = threading.Event()

    def __enter__(self) -> Load:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        """Enqueue; where the database is away, try again a little later."""
        from .tasks import hold

        while not self._over.wait(self._pause):
            if self._limit is not None and len(self.accepted) >= self._limit:
                break
            seconds = round(self._chance.uniform(0.02, self._longest), 3)
            try:
                self.accepted.append(int(hold.enqueue(seconds).id))
            except (OperationalError, InterfaceError):
                self.unanswered += 1
                self._place.connection.close()
                self._over.wait(0.1)
        self._place.connection.close()
