"""A child's bookkeeper without its thread, for tests that make its turns one by one."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from django_relay import outcomes
from django_relay.child import Bookkeeper
from django_relay.hand import Hand
from django_relay.hands import Hands
from django_relay.messages import Channel, Plan
from tests.process.waiting import wait_until

from .stage import Stage

PLAN = Plan(
    worker="host-2/1",
    backend="default",
    database="default",
    queues=None,
    slots=1,
    async_slots=1,
    lane=False,
    prefetch=0,
    lease=30.0,
    poll=0.2,
    max_jobs=None,
    reload=False,
    pooled=False,
    notify=False,
    patience=30.0,
    verbosity=1,
)


class Silent:
    """Stands for the slots and for the channel to the supervisor."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **said: None


@dataclass(frozen=True)
class Books:
    """A bookkeeper without its thread, and the supervisor's end of its channel."""

    hands: Hands
    keeper: Bookkeeper
    channel: Channel

    def look(self) -> None:
        """Look for jobs, as after a wake-up."""
        self.hands.wake()
        self.turn_until(lambda: not self.hands._look)

    def turn_until(self, condition: Callable[[], Any]) -> None:
        for _ in range(20):
            if condition():
                return
            self.keeper._turn()
        assert condition()

    def take(self) -> Hand:
        hand = self.hands.take(())
        assert hand is not None
        return hand

    def said(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.channel.receive() or [] if each["kind"] == kind]


@contextmanager
def opened(plan: Plan) -> Iterator[Books]:
    ours, theirs = map(Channel, socket.socketpair())
    hands, slots = Hands(plan, lambda task: False), Silent()
    keeper = Bookkeeper(plan, hands, cast("Any", slots), ours)
    try:
        yield Books(hands, keeper, theirs)
    finally:
        keeper.connection.close()
        ours.close()
        theirs.close()


def with_two_ended(stage: Stage, books: Books) -> tuple[list[int], list[Hand], int]:
    """Two jobs whose endings go out together, with a claim of a third."""
    jobs = [stage.enqueue(), stage.enqueue()]
    books.hands.wake()
    books.turn_until(lambda: stage.state(jobs[1]) == "running")
    hands = [books.take(), books.take()]
    third = stage.enqueue()
    for hand in hands:
        books.hands.present(hand, outcomes.succeeded("1"))
    books.hands.wake()
    wait_until(lambda: books.hands.wanted(ending=2)[0], 10, what="a claim may be sent")
    return jobs, hands, third
