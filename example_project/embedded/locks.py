"""A lock on a file that the kernel frees when its holder ends, also by SIGKILL.

flock belongs to the open file: a copy made by fork would keep it held, so a forked child closes
its copies at once. Programs that are executed never get one (Python opens files close-on-exec).
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, ClassVar

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pathlib import Path


class Lock:
    """Shared by many or claimed by one; asking never waits."""

    _all: ClassVar[weakref.WeakSet[Lock]] = weakref.WeakSet()

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        Lock._all.add(self)

    def share(self) -> bool:
        return self._ask(fcntl.LOCK_SH)

    def claim(self) -> bool:
        return self._ask(fcntl.LOCK_EX)

    def release(self) -> None:
        """Give it up; harmless when done twice."""
        fd, self._fd = self._fd, -1
        if fd != -1:
            os.close(fd)

    def _ask(self, how: int) -> bool:
        try:
            fcntl.flock(self._fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    @classmethod
    def let_go_after_fork(cls) -> None:
        for lock in list(cls._all):
            lock.release()
