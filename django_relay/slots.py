"""The slots of a child: threads for sync tasks, one event loop for async ones.

A slot takes a job in hand, reports it to the supervisor before the handler starts, runs it and
presents its outcome. After a success it goes on while the ending is under way, and tells receivers
of ``task_finished`` between two jobs; after a failure it waits, so that they still see the error.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from asgiref.sync import sync_to_async

from . import compat, execution, logs, outcomes, results
from .execution import Attempt
from .hand import Hand
from .hands import Hands
from .messages import Channel, Plan
from .outcomes import Outcome, Verb
from .states import FINAL

logger = logging.getLogger("django_relay.worker")

#: So many jobs are reported in one message: whole, it is read at once even after our death.
REPORT = 500


class Slots:
    """Runs the jobs of ``hands`` until the process ends."""

    def __init__(self, plan: Plan, hands: Hands, channel: Channel) -> None:
        self._plan = plan
        self._hands = hands
        self._channel = channel
        self._backend: Any = compat.task_backends[plan.backend]
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start the threads: daemons, so that a handler without end cannot hold the process."""
        for number in range(1, self._plan.slots + 1):
            threading.Thread(target=self._slot, name=f"relay-slot-{number}", daemon=True).start()
        threading.Thread(target=self._async, name="relay-async", daemon=True).start()

    def _async(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            # A task has stopped the loop. A process that only looks alive would be worse than none.
            logger.critical("the event loop was stopped by a task; this child ends")
            os._exit(1)

    def dispatch(self) -> None:
        """Begin the async jobs that wait. From any thread."""
        self._loop.call_soon_threadsafe(self._dispatch)

    # Sync ----------------------------------------------------------------------------------------

    def _slot(self) -> None:
        try:
            self._work()
        finally:
            # Nothing gets here but what a task has broken for the whole process.
            logger.critical("a slot has ended; so does this child")
            os._exit(1)

    def _work(self) -> None:
        untold: deque[Hand] = deque()
        while True:
            hand: Hand | None = None
            try:
                if untold:
                    self._hands.send()  # receivers may take their time
                while untold and untold[0].settled:
                    self._tell(untold.popleft())
                hand = self._hands.take(untold)
                if hand is not None and self._run(hand) and not hand.told:
                    untold.append(hand)
            except BaseException as error:
                self._survive(hand, error)

    def _survive(self, hand: Hand | None, error: BaseException) -> None:
        """Keep the slot, whatever happens around a handler, and the job from hanging in it."""
        if hand is not None:
            self._hands.present(hand, outcomes.untellable(type(error)))
            self._hands.send()
        logger.critical("a slot failed (%s); it goes on", type(error).__name__)

    def _run(self, hand: Hand) -> bool:
        """Run one job here; return whether its end is still to be told."""
        self._report([hand])
        self._hands.send()
        try:
            execution.find(hand.job.task)
            on_loop = execution.is_async(hand.job.task)
        except BaseException:  # the attempt itself will say what is wrong with the path
            on_loop = False
        if hand.outcome is not None:  # a stop without grace has given it back meanwhile
            return False
        if on_loop:
            # The first job of an async task: only its import could tell.
            self._hands.to_loop(hand)
            self._loop.call_soon_threadsafe(self._spawn, hand)
            self.dispatch()  # those behind it are the loop's, too, as is known now
            return False
        execution.execute(self._attempt(hand), lambda outcome: self._conclude(hand, outcome))
        return self._heard

    # Async ---------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        hands = self._hands.take_all()
        if hands:
            self._report(hands)
            for hand in hands:
                self._spawn(hand)

    def _spawn(self, hand: Hand) -> None:
        if hand.outcome is not None:
            return
        attempt = self._run_async(hand)
        try:
            task = self._loop.create_task(attempt, context=contextvars.Context())
        except BaseException as error:  # a task has set a factory that makes none
            attempt.close()
            self._survive(hand, error)
            return
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._finished(done, hand))

    def _finished(self, task: asyncio.Task[None], hand: Hand) -> None:
        """Let no job hang whose coroutine another task has cancelled, maybe before it began."""
        self._tasks.discard(task)
        if hand.outcome is None:
            self._hands.present(hand, outcomes.untellable(asyncio.CancelledError))
        self._hands.send()
        self._dispatch()

    async def _run_async(self, hand: Hand) -> None:
        try:
            await execution.execute_async(
                self._attempt(hand), lambda outcome: self._conclude(hand, outcome)
            )
        except BaseException as error:
            self._survive(hand, error)

    def answered(self, hands: Sequence[Hand]) -> None:
        """These endings were accepted or refused: tell of the loop's. From the bookkeeper."""
        ended = [hand for hand in hands if hand.on_loop and not hand.told]
        if ended and self._heard:
            self._loop.call_soon_threadsafe(self._tell_ended, ended)

    def _tell_ended(self, hands: Sequence[Hand]) -> None:
        if not compat.foreign(compat.task_finished):
            self._tell_each(hands)
            return
        task = self._loop.create_task(sync_to_async(self._tell_each)(hands))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tell_each(self, hands: Sequence[Hand]) -> None:
        for hand in hands:
            if hand.outcome is not None and hand.outcome.verb is Verb.SUCCEED:
                self._tell(hand)

    # Both ----------------------------------------------------------------------------------------

    def _attempt(self, hand: Hand) -> Attempt:
        return Attempt(
            job=hand.job,
            backend=self._backend,
            worker=self._plan.worker,
            control=hand.control,
            past=hand.past,
            pid=self._pid,
        )

    def _report(self, hands: list[Hand]) -> None:
        """Tell the supervisor before the handlers start: from here on it renews the leases."""
        begun = [[hand.job.job_id, hand.job.token, hand.began, None] for hand in hands]
        try:
            for start in range(0, len(begun), REPORT):
                self._channel.send(kind="begun", jobs=begun[start : start + REPORT])
        except OSError:
            os._exit(0)  # the supervisor has gone: nothing begins under a lease nobody renews
        for hand in hands:
            logs.started(hand.job)

    @property
    def _heard(self) -> bool:
        """Whether anybody listens to the ends of tasks."""
        return compat.heard(compat.task_finished)

    def _conclude(self, hand: Hand, outcome: Outcome) -> None:
        self._hands.present(hand, outcome)
        if outcome.verb is not Verb.SUCCEED:
            self._tell(hand)

    def _tell(self, hand: Hand) -> None:
        """Wait for the answer, and if the job is finished send ``task_finished``, once."""
        settled = self._hands.answer(hand)
        job, outcome = hand.job, hand.outcome
        if hand.told or outcome is None or settled.state not in FINAL:
            return
        hand.told = True
        task = execution.known(job.task) or results.stand_in(job.task, "it could not be found")
        ended = results.finished(
            self._plan.backend, task, job, hand.past, self._plan.worker, outcome, settled
        )
        compat.announce(compat.task_finished, type(self._backend), task_result=ended)
