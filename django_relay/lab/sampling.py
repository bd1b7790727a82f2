"""Looks at the leases while an experiment runs, so that its recording can show their ends move.

A thread of its own with a connection of its own. A database that is away is looked at again.
"""

from __future__ import annotations

import threading
from types import TracebackType

from django_relay import recording
from django_relay.recording import Glimpse

from .places import QUEUE, Place

#: Seconds between two looks. The heartbeat of a one-second lease is five times as slow.
PAUSE = 0.05


class Sampler(threading.Thread):
    """Collects glimpses until its block is left."""

    def __init__(self, place: Place) -> None:
        super().__init__(name="relay-lab-sampler", daemon=True)
        self._place = place
        self._over = threading.Event()
        self._seen: dict[tuple[str, float], Glimpse] = {}

    def __enter__(self) -> Sampler:
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

    @property
    def seen(self) -> list[Glimpse]:
        """What was seen so far: each lease with each of its ends, when first seen."""
        return list(self._seen.values())

    def run(self) -> None:
        """Look."""
        while not self._over.wait(PAUSE):
            nothing: list[Glimpse] = []
            for each in self._place.patiently(self._look, nothing):
                self._seen.setdefault((each.token, each.ends), each)
        self._place.connection.close()

    def _look(self) -> list[Glimpse]:
        return recording.look(self._place.connection, queue=QUEUE)
