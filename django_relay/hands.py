"""What one child has in hand: jobs waiting for a slot, running, and endings to be sent.

All of it under one lock, so that the bookkeeper, the slots and the supervisor's voice agree on what
is free. No SQL and no handler runs here; a job leaves this module as an ``Ending``.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from . import logs
from .capacity import Capacity
from .context import Control
from .hand import Hand
from .messages import Plan
from .outcomes import Outcome, released
from .pace import COALESCE, GATHER, Pace
from .results import Past
from .transitions import Claim, Settled

#: A job fetched ahead goes back when no slot began it within this time, in seconds.
PATIENCE = 1.0


class Hands:
    """The jobs of one child, and how many more it wants.

    One lock and three conditions: for the bookkeeper; for sync slots, one of which is woken and
    wakes the next; for who must know what became of an ending.
    """

    def __init__(self, plan: Plan, is_async: Callable[[str], bool]) -> None:
        self._lock = threading.RLock()
        self._books = threading.Condition(self._lock)
        self._slots = threading.Condition(self._lock)
        self._answers = threading.Condition(self._lock)
        self._plan = plan
        self._is_async = is_async
        self._pace = Pace(plan.prefetch)
        self._capacity = Capacity(plan)
        self._backlog: deque[Hand] = deque()
        self._running: dict[str, Hand] = {}
        self._endings: list[Hand] = []
        self._oldest = self._asleep_until = 0.0
        self._listening = self._asking = self._begun = self._ending = 0
        self._look, self._suspects, self._asked = True, False, 0
        self._lane, self._lanes_open = plan.lane, True
        self._alone: Hand | None = None
        self._finish_by: float | None = None
        self._supervised = time.monotonic()

    def wake(self) -> bool:
        """Something may be ready: look when there is room, and tell if any is not yet asked for."""
        with self._lock:
            self._look = True
            self._books.notify()
            return self.taking and self._room(0) > self._asked and self._pause <= COALESCE

    def lanes(self, *, open: bool) -> None:
        """Whether this child may become a lane, by taking a job that must run alone."""
        self._lanes_open = open

    def beat(self) -> None:
        """The supervisor lives, and renews what it was told of."""
        self._supervised = time.monotonic()

    def renewed(self, *, sent: float, kept: list[str], stop: list[str], gone: list[str]) -> None:
        """What a renewal of boot time ``sent`` found: kept, asked to stop, gone. Tell handlers."""
        with self._lock:
            for hand in filter(None, map(self._running.get, kept)):
                hand.control.expires = sent + self._plan.lease
            for hand in filter(None, map(self._running.get, stop)):
                hand.control.cancelled = True
            for hand in filter(None, map(self._running.get, gone)):
                hand.control.lost = True
                if hand.outcome is None:  # else its ending is under way, or was accepted just now
                    logs.lost(hand.job)

    def finish(self, grace: float | None) -> None:
        """Take nothing more. What runs has ``grace`` seconds (None: as long as it likes)."""
        with self._lock:
            by = float("inf") if grace is None else time.monotonic() + grace
            self._finish_by = by if self._finish_by is None else min(by, self._finish_by)
            self._books.notify()

    def wait(self) -> list[Hand]:
        """Sleep until there is something to write or to claim; return the endings to be sent."""
        with self._lock:
            if not (self._to_send() or self.wanted()[0] or self._to_give_back()):
                patience = self._patience()
                self._asleep_until = time.monotonic() + patience
                self._books.wait(patience)
                self._asleep_until = 0.0
            for hand in (back := self._to_give_back()):
                self.present(hand, released())
            if any(hand.began is None for hand in back):
                self._pace.fetched_in_vain()
            if not (self._to_send() or (self._endings and self.wanted()[0])):
                return []
            endings, self._endings = self._endings, []
            return endings

    def _to_send(self) -> bool:
        """Whether the endings go out now: not while others are about to join them."""
        if not self._endings:
            return False
        if self._finish_by is not None or len(self._endings) >= self._capacity.most(self._pace):
            return True
        expected = self._backlog or self._capacity.busy
        return not expected or self._asking > 0 or self._gathering <= 0

    @property
    def _gathering(self) -> float:
        """In how many seconds the endings go out at the latest."""
        kept = time.monotonic() - self._oldest
        return self._pace.gather(waiting=bool(self._backlog), looking=self._look) - kept

    @property
    def _pause(self) -> float:
        """How many seconds until the next claim may be sent; none when nothing is in hand."""
        return 0.0 if self.empty else self._pace.pause

    def _patience(self) -> float:
        """How long to sleep at the most."""
        hurry = self._finish_by is not None or self._backlog or self._endings
        waits = [GATHER if hurry else min(self._plan.poll, 1.0)]
        if self._look and (pause := self._pause) > 0:
            waits.append(pause)
        if self._endings:
            waits.append(self._gathering)
        return max(min(waits), 0.0005)

    def wanted(self, *, ending: int = 0) -> tuple[int, bool]:
        """How many jobs to claim now, with so many ``ending``, and whether one to run alone."""
        with self._lock:
            if not self.taking or self._pause > 0:
                return 0, False
            if self._lane:
                return int(self._look and self.empty), True
            if not self._look:
                return int(self._suspects and self._lanes_open and self.empty), True
            return self._room(ending), False

    def looking(self, wanted: int) -> None:
        """A claim is on its way; what becomes ready from now on is looked for again."""
        with self._lock:
            self._look, self._suspects, self._asked = False, False, wanted

    def add(
        self, claim: Claim, *, asked: float, wanted: int, alone: bool, pasts: dict[int, Past]
    ) -> bool:
        """Take what was claimed by a request sent at boot time ``asked``; leases count from there.

        A full answer means that there may be more. Return whether something waits for the loop.
        """
        with self._lock:
            for job in claim.jobs:
                control = Control(expires=asked + self._plan.lease)
                hand = Hand(job, control, pasts.get(job.job_id, Past()), time.monotonic())
                self._backlog.append(hand)
                if alone:
                    self._alone, self._lane = hand, True
            full, self._asked = len(claim.jobs) >= wanted, 0
            self._capacity.came((self._is_async(job.task) for job in claim.jobs), full=full)
            self._look = self._look or full
            self._suspects = claim.suspects and not alone
            self._pace.claimed(full=full)
            self._slots.notify()
            return any(self._is_async(hand.job.task) for hand in self._backlog)

    def unsent(self, endings: list[Hand]) -> None:
        """The database did not answer: these endings are still to be sent."""
        with self._lock:
            self._endings[:0] = endings

    def close(self, answers: Sequence[tuple[Hand, Settled]]) -> None:
        """These endings were accepted or refused: they are no longer in hand."""
        with self._lock:
            for hand, settled in answers:
                self._running.pop(hand.job.token, None)
                self._ending -= 1
                if self._alone is hand:
                    self._alone = None
                    self._look = True
                if settled.state == "ready":
                    self._look = True
                hand.settled = settled
            if self._listening:
                self._slots.notify_all()
            if self._asking:
                self._answers.notify_all()

    def answer(self, hand: Hand) -> Settled:
        """Wait until the ending of ``hand`` was accepted or refused."""
        with self._lock:
            self._asking += 1
            self.send()
            while hand.settled is None:
                self._answers.wait()
            self._asking -= 1
            return hand.settled

    @property
    def taking(self) -> bool:
        """Whether this child may claim: not finishing, not running a job alone, and its supervisor
        was heard within a third of a lease (one that is frozen renews nothing)."""
        supervised = time.monotonic() - self._supervised < self._plan.lease / 3
        return self._finish_by is None and self._alone is None and supervised

    @property
    def empty(self) -> bool:
        """Whether nothing is in hand."""
        return not (self._running or self._backlog or self._ending)

    @property
    def idle(self) -> bool:
        """Whether nothing is in hand or on its way, and the last look found nothing."""
        with self._lock:
            looking = self._look or self._asked or (self._suspects and self._lanes_open)
            return self.empty and not looking

    @property
    def done(self) -> bool:
        """Whether this child was told to finish and has nothing left in hand."""
        return self._finish_by is not None and self.empty

    @property
    def spent(self) -> bool:
        """Whether this child has begun as many jobs as it may."""
        return self._plan.max_jobs is not None and self._begun >= self._plan.max_jobs

    def take(self, untold: Sequence[Hand]) -> Hand | None:
        """Wait for a job of a sync slot; return None when the first of ``untold`` has settled."""
        with self._lock:
            while (hand := self._next(on_loop=False)) is None:
                if untold and untold[0].settled:
                    return None
                self.send()
                self._listening += bool(untold)
                self._slots.wait()
                self._listening -= bool(untold)
            if self._backlog:
                self._slots.notify()
            return hand

    def take_all(self) -> list[Hand]:
        """Take every waiting job of the loop that may begin now."""
        hands = []
        with self._lock:
            while self._capacity.on_loop and (hand := self._next(on_loop=True)):
                hands.append(hand)
        return hands

    def to_loop(self, hand: Hand) -> None:
        """A sync slot found out that this job is the loop's."""
        with self._lock:
            if hand.outcome is None:
                self._capacity.end(on_loop=False)
                self._capacity.begin(on_loop=True)
            hand.on_loop = True
            self._books.notify()  # a slot is free

    def present(self, hand: Hand, outcome: Outcome) -> None:
        """Hand in an outcome; ``send`` follows. The first counts: what was given back stays so."""
        with self._lock:
            if hand.outcome is not None:
                return
            if hand.began is None:
                self._backlog.remove(hand)
            else:
                self._capacity.end(on_loop=hand.on_loop)
                hand.took = time.monotonic() - hand.began
                self._pace.ran(hand.took)
            hand.outcome = outcome
            self._ending += 1
            if not self._endings:
                self._oldest = time.monotonic()
            self._endings.append(hand)

    def send(self) -> None:
        """Wake the bookkeeper if what was presented goes out now, or before it would wake.

        A slot has begun its next job by then: the two would be in each other's way until it has.
        """
        with self._lock:
            due = time.monotonic() + self._gathering if self._endings else math.inf
            if self._to_send() or due < self._asleep_until:
                self._books.notify()

    def _next(self, *, on_loop: bool) -> Hand | None:
        for hand in self._backlog:
            if self._is_async(hand.job.task) is on_loop:
                if self._finish_by is not None or not hand.fresh(self._plan.lease):
                    return None
                self._backlog.remove(hand)
                self._running[hand.job.token] = hand
                self._capacity.begin(on_loop=on_loop)
                hand.began, hand.on_loop = time.monotonic(), on_loop
                self._begun += 1
                return hand
        return None

    def _to_give_back(self) -> list[Hand]:
        """What is not to begin here; and after the grace, what still runs."""
        now = time.monotonic()
        stale = min(PATIENCE, self._plan.lease / 3)
        back = [h for h in self._backlog if self._finish_by is not None or now - h.taken > stale]
        if self._finish_by is not None and now >= self._finish_by:
            back += [h for h in self._running.values() if h.outcome is None]
        return back

    def _room(self, ending: int) -> int:
        """How many more jobs to claim: for the slots and ahead, and not beyond ``--max-jobs``."""
        waiting, limit = len(self._backlog), self._plan.max_jobs
        room = self._capacity.room(self._pace, waiting=waiting, ending=self._ending - ending)
        return room if limit is None else max(min(room, limit - self._begun - waiting), 0)
