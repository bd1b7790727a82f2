"""Where the next claim of a session may start: behind the rows that earlier ones have left.

A transaction that stays open for minutes keeps the server from forgetting what was ready before it
began, and each claim walks over all of it again. When that has taken long, the next claims start
in each queue where the last one ended, and only some look through all: when one comes back short,
and else for a twentieth of the time. Until then a job of higher priority, or one that has come
back, may be passed over.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .claim import Claimed

#: A pick that takes so long, in seconds, has walked over dead rows: it should be a tenth of this.
#: It is told as if there were one queue; forty more take as long again.
SLOW = 0.002
#: Start behind the frontier for so long, in seconds, or for so many times the pick that was slow.
KEEP, SHARE = 0.5, 20.0
#: So many queues are remembered.
QUEUES = 1000


@dataclass(slots=True)
class Frontier:
    """How far the claims of one session have come in each queue, while that is worth knowing."""

    _passed: dict[str, tuple[int, int]] = field(default_factory=dict)
    _until: float = 0.0
    #: Whether the claim under way starts behind it.
    behind: bool = False

    def starts(self) -> list[tuple[str, int, int]]:
        """Return queue, negated priority and id of the last job taken; nothing: start in front."""
        self.behind = bool(self._passed) and time.monotonic() < self._until
        return [(queue, *place) for queue, place in self._passed.items()] if self.behind else []

    def reached(self, jobs: Sequence[Claimed], *, picking: float, full: bool) -> None:
        """Note what a claim has taken, in the order in which it was taken, and how many seconds the
        pick took. Where it came back short, the next one starts in front."""
        if self.behind:
            self._until = self._until if full else 0.0
        elif not jobs:
            return
        elif picking < SLOW or len(self._passed) > QUEUES:
            self._passed.clear()
            return
        else:
            self._until = time.monotonic() + max(KEEP, SHARE * picking)
        self._passed |= {job.queue: (-job.priority, job.job_id) for job in jobs}
