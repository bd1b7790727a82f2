"""The child process, and its bookkeeper, which claims and settles.

The main thread keeps the books on one connection: it sends endings as soon as that is free, so
batches form by themselves under load, and claims as many jobs as there are free slots. A second
thread listens to the supervisor and ends the process at once when the supervisor is gone: nothing
is settled then, for nobody renews any more.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
from django.db import DatabaseError, connections

from . import execution, hygiene, logs, results, transitions
from .connection import Bookkeeping
from .context import boot_time
from .ear import Ear
from .hand import Hand
from .hands import Hands
from .messages import Channel, Plan
from .portion import Portion, give_up
from .slots import Slots

logger = logging.getLogger("django_relay.worker")

#: What an absent database raises: psycopg's own errors, and Django's, whose connection compiles the
#: claim's pick.
ABSENT = (psycopg.Error, DatabaseError)
#: At most one line about an absent database in so many seconds.
COMPLAIN = 5.0
#: While claims come back full, the others hear so once in so many seconds, or a little later.
MORE = 0.1


class Bookkeeper:
    """Claims and settles for one child until it is told to finish and has nothing left."""

    def __init__(self, plan: Plan, hands: Hands, slots: Slots, channel: Channel) -> None:
        self._plan = plan
        self._hands = hands
        self._slots = slots
        self._channel = channel
        self.connection = Bookkeeping(
            plan.database,
            pooled=plan.pooled,
            patience=plan.patience,
            name=f"slots {plan.worker}",
            hot=True,
        )
        #: Takes in hand a claim that has committed, if that is still to be done.
        self._unread: Callable[[], None] | None = None
        #: Whether endings and claims go apart, since together they failed, and claims come next.
        self._apart = self._claims_next = False
        self._portion = Portion()
        self._more_at, self._stall = 0.0, 0.001
        self._unsaid: bool | None = None
        self._quarantine = transitions.Quarantine()
        self._whose: dict[str, Any] = {
            "database": plan.database,
            "queues": plan.queues,
            "worker": plan.worker,
            "lease": plan.lease,
            "frontier": transitions.Frontier(),
            "quarantine": self._quarantine,
        }

    def run(self) -> None:
        """Keep the books. An absent database delays them and loses nothing."""
        pause, told = 0.0, float("-inf")
        while not self._hands.done:
            try:
                self._turn()
                pause = 0.0
            except ABSENT as error:
                connections.close_all()
                pause = min(max(pause * 2, 0.05), 1.0)
                if pause > 0.1 and time.monotonic() - told >= COMPLAIN:
                    logger.warning("the database is not available: %s", logs.first_line(error))
                    told = time.monotonic()
                time.sleep(pause)
        self.connection.close()

    def _turn(self) -> None:
        if self._unread is not None:
            self._unread()
        endings = self._due(self._hands.wait())
        wanted, alone = self._wanted(ending=len(endings))
        if endings and wanted and not alone and not self._apart:
            self._both(endings, wanted)
            wanted = 0
        elif endings:
            self._settle(endings)
            wanted, alone = self._wanted()  # anew: some endings may come back each time
        if wanted:
            self._claim(wanted, alone=alone)
        if self._hands.spent and self._hands.taking:
            self._channel.post(kind="spent")
            self._hands.finish(None)

    def _wanted(self, *, ending: int = 0) -> tuple[int, bool]:
        wanted, alone = self._hands.wanted(ending=ending)
        return min(wanted, self._portion.most), alone

    def _due(self, endings: list[Hand]) -> list[Hand]:
        """Return the endings that go out now: none where they have just failed, for a claim has its
        turn then."""
        now, later = ([], endings) if self._claims_next else self._portion.split(endings)
        self._claims_next = False
        if later:
            self._hands.unsent(later)
        return now

    def _both(self, endings: list[Hand], wanted: int) -> None:
        asked = boot_time()
        self._hands.looking(wanted)
        try:
            answers, claim = transitions.turn(
                self.connection, [hand.ending for hand in endings], wanted, **self._whose
            )
        except (*ABSENT, UnicodeError) as error:
            # Neither was done. Sent apart, they will show whose fault it was.
            self._apart = True
            if not transitions.is_about_data(error):
                self._portion.failed(max(len(endings), wanted))
            self._hands.unsent(endings)
            self._hands.wake()
            return
        self._portion.went_well()
        # Both have committed: whatever goes wrong now, neither is forgotten.
        try:
            self._claimed(claim, asked=asked, wanted=wanted, alone=False)
        finally:
            self._settled(endings, answers)

    def _claim(self, wanted: int, *, alone: bool) -> None:
        asked = boot_time()
        self._hands.looking(wanted)
        try:
            claim = transitions.claim(self.connection, wanted, alone=alone, **self._whose)
        except ABSENT:
            self._portion.failed(wanted)
            self._hands.wake()
            raise
        self._portion.went_well()
        self._claimed(claim, asked=asked, wanted=wanted, alone=alone)

    def _claimed(self, claim: transitions.Claim, *, asked: float, wanted: int, alone: bool) -> None:
        self._apart = False
        self._unread = partial(
            self._take_in,
            self._rest(claim, wanted, alone=alone),
            asked=asked,
            wanted=wanted,
            alone=alone,
        )
        self._unread()

    def _take_in(self, claim: transitions.Claim, *, asked: float, wanted: int, alone: bool) -> None:
        """Take in hand what was claimed; where the past of its jobs cannot be read, next time. In
        the end without: they would go back, and endings wait meanwhile."""
        again = [job.job_id for job in claim.jobs if job.claim > 1]
        late = boot_time() - asked > self._plan.lease / 4
        pasts = results.pasts(self.connection, again) if again and not late else {}
        self._unread = None
        logs.noticed(self._quarantine.notices())
        if self._hands.add(claim, asked=asked, wanted=wanted, alone=alone, pasts=pasts):
            self._slots.dispatch()
        if claim.unseen:
            self._hands.wake()
        if alone and claim.jobs and not self._plan.lane:
            self._channel.post(kind="lane")
        if len(claim.jobs) >= wanted or claim.unseen:
            self._say_more(alone=alone)
            return
        self._more_at, self._unsaid = 0.0, None
        if claim.suspects and not alone:
            self._channel.post(kind="more", alone=True)

    def _say_more(self, *, alone: bool) -> None:
        """Have another child look, too; while claims go on coming back full, now and then."""
        now = time.monotonic()
        if now >= self._more_at:
            self._channel.post(kind="more", alone=alone)
            self._more_at, self._unsaid = now + MORE, None
        else:
            self._unsaid = alone

    def say_unsaid(self) -> None:
        """Say what was kept for later, when it is later; safe from any thread."""
        if (alone := self._unsaid) is not None and time.monotonic() >= self._more_at:
            self._say_more(alone=alone)

    def _rest(self, claim: transitions.Claim, wanted: int, *, alone: bool) -> transitions.Claim:
        """Claim what a claim by the heads of the queues has left, where it came back short."""
        short = wanted - len(claim.jobs)
        if not short or not claim.left:
            return claim
        try:
            rest = transitions.claim(
                self.connection, short, alone=alone, bounded=False, **self._whose
            )
        except ABSENT:
            return replace(claim, unseen=True)  # committed; the rest is looked for again
        return replace(rest, jobs=claim.jobs + rest.jobs)

    def _settle(self, endings: list[Hand]) -> None:
        try:
            answers = transitions.settle(self.connection, [hand.ending for hand in endings])
        except ABSENT as error:
            self._claims_next = True
            self._portion.failed(len(endings))
            if len(endings) == 1:
                give_up(endings[0], error)
            self._hands.unsent(endings)
            raise
        self._portion.went_well()
        self._settled(endings, answers)

    def _settled(self, endings: list[Hand], answers: dict[str, transitions.Settled]) -> None:
        """Close what has an answer. Of the rest ask what became of it, and send it again if that is
        nothing yet: somebody holds the job's row, and its lease is kept."""
        missing = [hand.ending for hand in endings if hand.job.token not in answers]
        try:
            if missing:
                answers |= transitions.others(self.connection, missing, answers)
        finally:
            left = [hand for hand in endings if hand.job.token not in answers]
            self._close([(h, answers[h.job.token]) for h in endings if h.job.token in answers])
            if left:  # a claim elsewhere has them for a moment, or somebody's transaction for long
                self._hands.unsent(left)
                time.sleep(self._stall)
            self._stall = min(2 * self._stall, 0.05) if left else 0.001

    def _close(self, closed: list[tuple[Hand, transitions.Settled]]) -> None:
        kinds = Counter(settled.kind or "refused" for _, settled in closed)
        self._channel.post(kind="ended", tokens=[hand.job.token for hand, _ in closed], kinds=kinds)
        self._hands.close(closed)
        self._slots.answered([hand for hand, _ in closed])
        for hand, settled in closed:
            logs.settled(hand.job, hand.ending, settled)
        with contextlib.suppress(psycopg.Error):  # others look for themselves, too, only later
            again = [hand.job.queue for hand, settled in closed if settled.state == "ready"]
            transitions.notify(self.connection, again)


def main(descriptor: int) -> None:
    """Run a child, in a process where Django is set up, for the supervisor behind a socket."""
    # Only the supervisor orders. Not SIG_IGN: a handler's own subprocesses would inherit it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    os.set_inheritable(descriptor, False)
    channel = Channel(socket.socket(fileno=descriptor))
    first, *later = _first(channel)
    plan = Plan(**first["plan"])

    logs.prepare(plan.verbosity)
    hygiene.watch()
    hands = Hands(plan, execution.is_async)
    slots = Slots(plan, hands, channel)
    bookkeeper = Bookkeeper(plan, hands, slots, channel)
    ear = Ear(plan, channel, hands, bookkeeper)
    ear.obey(later)
    ear.start()
    slots.start()
    channel.post(kind="ready")
    code = 1
    try:
        bookkeeper.run()
        code = 0
    except BaseException as error:
        logger.critical("the bookkeeper failed: this child ends", exc_info=error)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        # Not sys.exit: it would wait for threads that handlers left behind.
        os._exit(code)


def _first(channel: Channel) -> list[dict[str, Any]]:
    """Wait for the plan; what came with it, an order to finish maybe, follows in the list."""
    while not (messages := channel.receive(wait=1.0)):
        if messages is None:
            os._exit(0)
    return messages
