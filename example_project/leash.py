"""Ends this process when the one that started it is gone, also if that was killed with SIGKILL.

The starter keeps one end of a pipe and names the other in RELAY_LEASH. The kernel closes the
starter's end when it ends, however that happens, and a thread here sees it. Works wherever there
are pipes, and no process has to be found by its number.
"""

from __future__ import annotations

import os
import signal
import threading
import time

NAME = "RELAY_LEASH"
GRACE = 2.0  # seconds from being asked to stop to being made to


def obey() -> None:
    """Follow the starter if it holds a leash; the processes we start have their own affairs."""
    end = os.environ.pop(NAME, None)
    if end is not None:
        threading.Thread(target=_follow, args=(int(end),), daemon=True).start()


def _follow(end: int) -> None:
    os.set_inheritable(end, False)
    while os.read(end, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os.kill(os.getpid(), signal.SIGKILL)
