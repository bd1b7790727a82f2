"""What the handlers of the lab do, without Django, so that it can also be timed without a queue."""

from __future__ import annotations

import hashlib
import time


def burn(wait: float, rounds: int) -> str:
    """Wait so many seconds, then chain so many rounds of SHA-256; return the last digest."""
    time.sleep(wait)
    digest = b"relay"
    for _ in range(rounds):
        digest = hashlib.sha256(digest).digest()
    return digest.hex()
