"""What one child has in hand: jobs waiting for a slot, running, and endings to be sent.

All of it under one condition, so that the bookkeeper, the slots and the supervisor's voice agree on
what is free. No SQL and no handler runs here; a job leaves this module as an ``Ending``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from .context import Control, boot_time
from .messages import Plan
from .outcomes import Ending, Outcome, released
from .results import Past
from .transitions import Claim, Claimed, Settled

logger = logging.getLogger("django_relay.worker")

#: Jobs are fetched ahead only while handlers take less than this on average, in seconds.
SHORT = 0.1
#: Endings of handlers shorter than this are gathered for as long, in seconds.
GATHER = 0.005
#: After a claim that came back short, the next one waits this long, in seconds.
COALESCE = 0.015
#: A job fetched ahead goes back when no slot began it within this time, in seconds.
PATIENCE = 1.0


@dataclass(slots=True, eq=False)
class Hand:
    """One job in hand. ``began`` and ``taken`` are on the monotonic clock."""

    job: Claimed
    control: Control
    past: Past
    taken: float
    began: float | None = None
    outcome: Outcome | None = None
    settled: Future[Settled] = field(default_factory=Future)
    told: bool = False

    @property
    def ending(self) -> Ending:
        """The outcome, presented under this lease."""
        if self.outcome is None:
            raise RuntimeError(f"job {self.job.job_id} has no outcome yet")
        ran = None if self.began is None else time.monotonic() - self.began
        return Ending(self.job.job_id, self.job.token, self.outcome, ran)


class Hands:
    """The jobs of one child, and how many more it wants."""

    def __init__(self, plan: Plan, is_async: Callable[[str], bool]) -> None:
        self.changed = threading.Condition()
        self._plan = plan
        self._is_async = is_async
        self._backlog: deque[Hand] = deque()
        self._running: dict[str, Hand] = {}
        self._endings: list[Hand] = []
        self._look = True
        self._before_alone = False
        self._alone: Hand | None = None
        self._begun = 0
        self._average = 1.0
        self._in_vain = False
        self._not_before = 0.0
        self._finish_by: float | None = None
        self._supervised = time.monotonic()

    # The supervisor's voice ----------------------------------------------------------------------

    def wake(self) -> None:
        """Something may be ready: look when a slot is free."""
        with self.changed:
            self._look = True
            self.changed.notify_all()

    def beat(self) -> None:
        """The supervisor lives, and renews what it was told of."""
        with self.changed:
            self._supervised = time.monotonic()

    def renewed(self, *, sent: float, kept: list[str], stop: list[str], gone: list[str]) -> None:
        """What a renewal of boot time ``sent`` found: kept, asked to stop, gone. Tell the handlers.

        The outcomes of what is gone will be refused.
        """
        with self.changed:
            for hand in filter(None, map(self._running.get, kept)):
                hand.control.expires = sent + self._plan.lease
            for hand in filter(None, map(self._running.get, stop)):
                hand.control.cancelled = True
            for hand in filter(None, map(self._running.get, gone)):
                self._lose(hand)

    def _lose(self, hand: Hand) -> None:
        hand.control.lost = True
        if hand.outcome is None:  # else its ending is under way, or was accepted just now
            logger.warning(
                "job %s %s lost its lease and runs on; its outcome will be refused",
                hand.job.job_id,
                hand.job.task,
                extra={"job_id": hand.job.job_id, "task": hand.job.task},
            )

    def finish(self, grace: float | None) -> None:
        """Take nothing more. What runs has ``grace`` seconds (None: as long as it likes)."""
        with self.changed:
            by = float("inf") if grace is None else time.monotonic() + grace
            self._finish_by = by if self._finish_by is None else min(by, self._finish_by)
            self.changed.notify_all()

    # The bookkeeper ------------------------------------------------------------------------------

    def wait(self) -> list[Hand]:
        """Sleep until there is something to write or to claim; return the endings to be sent."""
        with self.changed:
            if not (self._endings or self.wanted()[0] or self._to_give_back()):
                self.changed.wait(timeout=self._patience())
            self._gather()
            for hand in self._to_give_back():
                self._in_vain |= hand.began is None
                self._present(hand, released())
            endings, self._endings = self._endings, []
            return endings

    def _pausing(self) -> float:
        """How many seconds until the next claim may be sent; none when nothing is in hand."""
        return 0.0 if self.empty else self._not_before - time.monotonic()

    def _patience(self) -> float:
        """How long to sleep at the most."""
        if self._look and (pause := self._pausing()) > 0:
            return pause
        return 0.05 if self._finish_by is not None or self._backlog else min(self._plan.poll, 1.0)

    def _gather(self) -> None:
        """Give jobs of a moment a moment to end together: a statement costs more than they do."""
        until = time.monotonic() + GATHER
        while self._endings and self._average < GATHER and self._finish_by is None:
            left = until - time.monotonic()
            if left <= 0 or not (self._backlog or self._occupied(False) or self._occupied(True)):
                return
            self.changed.wait(timeout=left)

    def wanted(self) -> tuple[int, bool]:
        """How many jobs to claim now, and whether as one that runs alone."""
        with self.changed:
            if not self._look or not self.taking or self._pausing() > 0:
                return 0, False
            if self._before_alone and self.empty:
                return 1, True
            return max(self._room(), 0), False

    def add(
        self, claim: Claim, *, asked: float, wanted: int, alone: bool, pasts: dict[int, Past]
    ) -> None:
        """Take what was claimed by a request sent at boot time ``asked``; leases count from there.

        A full answer means that there may be more; after a short one wake-ups are gathered for a
        moment while something is in hand, so that jobs which come one by one are not fetched one by
        one. One that ended before a job that must run alone goes on when this child is empty.
        """
        now = time.monotonic()
        with self.changed:
            for job in claim.jobs:
                control = Control(expires=asked + self._plan.lease)
                hand = Hand(job, control, pasts.get(job.job_id, Past()), now)
                self._backlog.append(hand)
                if alone and job.losses:
                    self._alone = hand
            self._before_alone = claim.before_alone
            full = len(claim.jobs) >= wanted
            self._look = self._look or full or (claim.before_alone and self.empty)
            self._not_before = 0.0 if full else now + COALESCE
            self.changed.notify_all()

    def looking(self) -> None:
        """A claim is on its way; what becomes ready from now on is looked for again."""
        with self.changed:
            self._look = False

    def unsent(self, endings: list[Hand]) -> None:
        """The database did not answer: these endings are still to be sent."""
        with self.changed:
            self._endings[:0] = endings

    def close(self, hand: Hand, settled: Settled) -> None:
        """The ending of ``hand`` was accepted or refused: it is no longer in hand."""
        with self.changed:
            self._running.pop(hand.job.token, None)
            if self._alone is hand:
                self._alone = None
                self._look = True
            if self._before_alone or settled.state == "ready":
                self._look = True
            if not hand.settled.done():
                hand.settled.set_result(settled)
            self.changed.notify_all()

    @property
    def taking(self) -> bool:
        """Whether this child may claim at all: not finishing, not running a job alone, and heard
        from its supervisor within a third of a lease (one that is frozen renews nothing)."""
        supervised = time.monotonic() - self._supervised < self._plan.lease / 3
        return self._finish_by is None and self._alone is None and supervised

    @property
    def empty(self) -> bool:
        """Whether nothing is in hand."""
        return not (self._running or self._backlog or self._endings)

    @property
    def idle(self) -> bool:
        """Whether nothing is in hand and the last look found nothing."""
        with self.changed:
            return self.empty and not self._look

    @property
    def done(self) -> bool:
        """Whether this child was told to finish and has nothing left in hand."""
        with self.changed:
            return self._finish_by is not None and self.empty

    @property
    def spent(self) -> bool:
        """Whether this child has begun as many jobs as it may."""
        return self._plan.max_jobs is not None and self._begun >= self._plan.max_jobs

    # The slots -----------------------------------------------------------------------------------

    def next(self, *, asynchronous: bool) -> Hand | None:
        """Take the first waiting job of a kind into a slot, if one may begin."""
        if asynchronous and self._occupied(True) >= self._plan.async_slots:
            return None
        for hand in self._backlog:
            if self._is_async(hand.job.task) is asynchronous:
                if not self._may_begin(hand):
                    return None
                self._backlog.remove(hand)
                self._running[hand.job.token] = hand
                hand.began = time.monotonic()
                self._begun += 1
                return hand
        return None

    def present(self, hand: Hand, outcome: Outcome) -> None:
        """Hand in an outcome. The first counts: a job given back by a stop stays given back."""
        with self.changed:
            if hand.outcome is None:
                if hand.began is not None:
                    self._in_vain = False
                    ran = time.monotonic() - hand.began
                    self._average += (ran - self._average) / 8
                self._present(hand, outcome)

    # ---------------------------------------------------------------------------------------------

    def _present(self, hand: Hand, outcome: Outcome) -> None:
        if hand in self._backlog:
            self._backlog.remove(hand)
        hand.outcome = outcome
        self._endings.append(hand)
        self.changed.notify_all()

    def _may_begin(self, hand: Hand) -> bool:
        """Whether a job may still begin: not under a lease that our own clock says ends soon."""
        latest = hand.control.expires - self._plan.lease / 3
        return self._finish_by is None and boot_time() < latest

    def _to_give_back(self) -> list[Hand]:
        """What is not to begin here; and after the grace, what still runs."""
        now = time.monotonic()
        stale = min(PATIENCE, self._plan.lease / 3)
        back = [h for h in self._backlog if self._finish_by is not None or now - h.taken > stale]
        if self._finish_by is not None and now >= self._finish_by:
            back += [h for h in self._running.values() if h.outcome is None]
        return back

    def _occupied(self, asynchronous: bool) -> int:
        return sum(
            hand.outcome is None and self._is_async(hand.job.task) is asynchronous
            for hand in self._running.values()
        )

    def _over(self) -> int:
        """How many jobs are over here and still under their lease: their ending is to be sent."""
        ended = sum(hand.outcome is not None for hand in self._running.values())
        return ended + sum(hand.began is None for hand in self._endings)

    def _room(self) -> int:
        """Free slots of the scarcer kind and what may be fetched ahead, less what is held."""
        free = min(
            self._plan.slots - self._occupied(False), self._plan.async_slots - self._occupied(True)
        )
        ahead = self._plan.prefetch
        if ahead is None:
            ahead = self._plan.slots if self._average < SHORT else 0
        if self._in_vain:
            # What was fetched last had to go back: not again before a handler has ended, or a
            # child whose slots run long jobs would keep others' from free slots elsewhere.
            ahead = 0
        room = max(free, 0) + min(ahead, self._plan.slots) - len(self._backlog) - self._over()
        if self._plan.max_jobs is not None:
            room = min(room, self._plan.max_jobs - self._begun - len(self._backlog))
        return room
