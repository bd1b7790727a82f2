"""One job in the hand of a child, from its claim until its ending is accepted or refused."""

from __future__ import annotations

import time
from dataclasses import dataclass

from .context import Control, boot_time
from .outcomes import Ending, Outcome
from .results import Past
from .transitions import Claimed, Settled


@dataclass(slots=True, eq=False)
class Hand:
    """One job in hand. ``began`` and ``taken`` are on the monotonic clock, ``took`` is how long its
    handler took; ``on_loop`` tells which kind of slot it takes."""

    job: Claimed
    control: Control
    past: Past
    taken: float
    began: float | None = None
    on_loop: bool = False
    outcome: Outcome | None = None
    took: float | None = None
    settled: Settled | None = None
    told: bool = False
    #: How often its ending has failed alone.
    tries: int = 0

    def fresh(self, lease: float) -> bool:
        """Whether it may begin: not under a lease that our own clock says ends soon."""
        return boot_time() < self.control.expires - lease / 3

    @property
    def ending(self) -> Ending:
        """The outcome, presented under this lease."""
        if self.outcome is None:
            raise RuntimeError(f"job {self.job.job_id} has no outcome yet")
        ran = None if self.began is None else time.monotonic() - self.began
        return Ending(self.job.job_id, self.job.token, self.outcome, ran, self.took)
