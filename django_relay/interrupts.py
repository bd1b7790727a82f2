"""The signals that stop a worker. A signal only leaves a note; acting on it is the loop's part.

SIGTERM and SIGINT mean the same: the first asks to stop, a second one to stop at once. SIGCHLD
brings the loop's next look at its children forward.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

#: A second signal counts this long after the first, in seconds: some senders repeat themselves.
SECOND = 1.0


class Interrupts:
    """Notes of the signals that came. ``descriptor`` becomes readable with each of them."""

    def __init__(self) -> None:
        self.descriptor, self._poke = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._poke, False)
        self._noted: list[float] = []
        self._before: dict[int, Any] = {}

    @property
    def stop(self) -> bool:
        """Whether a signal has asked to stop."""
        return bool(self._noted)

    @property
    def force(self) -> bool:
        """Whether a second one has."""
        return len(self._noted) > 1

    def drained(self) -> None:
        """Make the descriptor readable with a ``d``: there is nothing left to do. Any thread."""
        os.write(self._poke, b"d")

    def read(self) -> bytes:
        """Empty the descriptor."""
        return os.read(self.descriptor, 4096)

    def take(self) -> None:
        """Note signals from here on; off the main thread nothing can, and others stop us there."""
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note)
            self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
            signal.set_wakeup_fd(self._poke, warn_on_full_buffer=False)
        except ValueError:
            self._before = {}

    def give_back(self) -> None:
        """Leave the signals to whoever had them."""
        if self._before:
            signal.set_wakeup_fd(-1)
        for number, previous in self._before.items():
            signal.signal(number, previous)

    def _note(self, number: int, frame: Any) -> None:
        now = time.monotonic()
        if not self._noted or now - self._noted[-1] >= SECOND:
            self._noted.append(now)
