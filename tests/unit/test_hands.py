"""What a child has in hand: who is woken when, and what it wants next."""

from __future__ import annotations

import threading
import time
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from django_relay import outcomes
from django_relay.context import boot_time
from django_relay.hand import Hand
from django_relay.hands import Hands
from django_relay.messages import Plan
from django_relay.transitions import Claim, Claimed, Settled
from tests.process.waiting import wait_until

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def plan(**changes: Any) -> Plan:
    values: dict[str, Any] = {
        "worker": "host/1",
        "backend": "default",
        "database": "default",
        "queues": None,
        "slots": 2,
        "async_slots": 2,
        "lane": False,
        "prefetch": 0,
        "lease": 30.0,
        "poll": 5.0,
        "max_jobs": None,
        "reload": False,
        "pooled": False,
        "notify": True,
        "patience": 15.0,
        "verbosity": 0,
    }
    return Plan(**(values | changes))


def job(losses: int = 0) -> Claimed:
    counters = (0, losses, 0, 3, None, None)
    token = str(uuid.uuid4())
    return Claimed(1, token, 1, "default", "a.b", "[]", "{}", 0, *counters, NOW, NOW, NOW, None)


def given(hands: Hands, *jobs: Claimed, suspects: bool = False, alone: bool = False) -> None:
    hands.looking(1)
    claim = Claim(jobs, left=False, suspects=suspects)
    hands.add(claim, asked=boot_time(), wanted=len(jobs) + 1, alone=alone, pasts={})


def taken(hands: Hands) -> Hand:
    hand = hands.take(())
    assert hand is not None
    return hand


def run(hands: Hands, hand: Hand) -> None:
    """Let a job succeed and be accepted, as slot and bookkeeper do."""
    hands.present(hand, outcomes.succeeded("1"))
    hands.send()
    hands.close([(each, Settled(True, "successful", "succeeded", NOW)) for each in hands.wait()])


def test_the_ending_of_a_short_job_beside_a_long_one_wakes_the_sleeping_bookkeeper() -> None:
    hands = Hands(plan(), lambda path: False)
    for _ in range(60):  # jobs of a moment, so that their endings are gathered
        given(hands, job())
        run(hands, taken(hands))
    given(hands, job(), job())
    _long, short = taken(hands), taken(hands)
    sent: list[tuple[float, list[Hand]]] = []

    def keep_books() -> None:
        while not (endings := hands.wait()):
            pass
        sent.append((time.monotonic(), endings))

    books = threading.Thread(target=keep_books, daemon=True)
    books.start()
    while not hands._asleep_until:
        time.sleep(0.001)
    presented = time.monotonic()
    hands.present(short, outcomes.succeeded("1"))
    hands.send()
    books.join(4.0)
    ((at, endings),) = sent
    assert endings == [short]
    assert at - presented < 1.0, "it slept on until the next look"


def test_a_child_with_nothing_in_hand_takes_a_job_that_runs_alone_and_is_a_lane_then() -> None:
    hands = Hands(plan(), lambda path: False)
    given(hands, suspects=True)
    assert hands.wanted() == (1, True)
    given(hands, job(losses=1), alone=True)
    hands.wake()
    wait_until(lambda: hands._pace.pause <= 0, 4, what="claims may be sent")
    assert hands.wanted()[0] == 0
    run(hands, taken(hands))
    assert hands.wanted() == (1, True)


def test_a_child_that_may_not_become_a_lane_leaves_such_jobs_to_others() -> None:
    hands = Hands(plan(), lambda path: False)
    hands.lanes(open=False)
    given(hands, suspects=True)
    assert hands.wanted() == (0, True)
    assert hands.idle


def test_a_child_with_something_in_hand_takes_no_job_that_runs_alone() -> None:
    hands = Hands(plan(), lambda path: False)
    given(hands, job(), suspects=True)
    taken(hands)
    wait_until(lambda: hands._pace.pause <= 0, 4, what="claims may be sent")
    assert hands.wanted()[0] == 0


def with_one_ended(slots: int, seconds: float, jobs: int) -> tuple[Hands, list[Hand]]:
    """A child after many jobs of so many seconds, with ``jobs`` in hand: one has ended, and the
    others run as far as there are slots."""
    hands = Hands(plan(slots=slots, async_slots=slots, prefetch=None), lambda path: False)
    for _ in range(90):
        hands._pace.ran(seconds)
    given(hands, *[job() for _ in range(jobs)])
    hands._pace.claimed(full=True)
    running = [taken(hands) for _ in range(min(slots, jobs))]
    hands.present(running[0], outcomes.succeeded("1"))
    hands._oldest += 60  # as if it had been presented just now, for a minute
    return hands, running


def test_an_ending_that_waits_for_others_goes_with_a_claim_that_is_wanted() -> None:
    hands, running = with_one_ended(slots=2, seconds=0.001, jobs=2)
    assert not hands._to_send()
    hands.wake()
    assert hands.wanted(ending=1)[0] > 0
    assert hands.wait() == running[:1]


def test_a_slot_that_asks_what_became_of_its_job_has_the_ending_sent() -> None:
    hands, running = with_one_ended(slots=2, seconds=0.01, jobs=2)
    assert not hands._to_send()
    threading.Thread(target=hands.answer, args=running[:1], daemon=True).start()
    wait_until(lambda: hands._asking, 4, what="a slot asks")
    assert hands.wait() == running[:1]


def test_endings_go_when_as_many_have_ended_as_may_be_in_hand() -> None:
    hands, _running = with_one_ended(slots=1, seconds=0.001, jobs=4)
    sendable = []
    for _ in range(2):
        sendable.append(hands._to_send())
        hands.present(taken(hands), outcomes.succeeded("1"))
    assert [*sendable, hands._to_send()] == [False, False, True]
    assert hands._backlog


@pytest.mark.parametrize("looking", [False, True])
def test_whether_something_may_be_ready_decides_how_long_an_ending_waits(
    looking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands, _running = with_one_ended(slots=2, seconds=0.01, jobs=2)
    asked: list[bool] = []

    def gather(*, waiting: bool, looking: bool) -> float:
        asked.append(looking)
        return 1.0

    monkeypatch.setattr(hands._pace, "gather", gather)
    hands._look = looking
    assert not hands._to_send()
    assert asked == [looking]


def test_a_child_is_not_idle_while_a_claim_is_under_way() -> None:
    hands = Hands(plan(), lambda path: False)
    given(hands)
    assert hands.idle
    hands.wake()
    hands.looking(1)
    assert not hands.idle, "what it brings may have committed already"
    given(hands)
    assert hands.idle


def test_a_slot_that_gives_its_job_to_the_loop_wakes_the_sleeping_bookkeeper() -> None:
    found: set[str] = set()
    hands = Hands(plan(), found.__contains__)
    given(hands, job(), job())
    first, second = taken(hands), taken(hands)
    hands.wake()
    wait_until(lambda: hands._pace.pause <= 0, 4, what="claims may be sent")
    assert hands.wanted()[0] == 0
    woken: list[float] = []

    def keep_books() -> None:
        hands.wait()
        woken.append(time.monotonic())

    books = threading.Thread(target=keep_books, daemon=True)
    books.start()
    while not hands._asleep_until:
        time.sleep(0.001)
    found.add("a.b")
    given_up = time.monotonic()
    hands.to_loop(first)
    hands.to_loop(second)
    books.join(4.0)
    assert woken[0] - given_up < 0.5, "it slept on until the next look"


def test_a_woken_child_says_that_it_has_room_only_if_it_will_claim() -> None:
    hands = Hands(plan(slots=4, async_slots=4, prefetch=4), lambda path: True)
    given(hands, *(job() for _ in range(7)))
    assert len(hands.take_all()) == 4
    wait_until(lambda: hands._pace.pause <= 0, 4, what="claims may be sent")
    assert not hands.wake()
    assert hands.wanted() == (0, False)


def test_a_woken_child_does_not_promise_the_room_of_a_claim_that_is_under_way() -> None:
    hands = Hands(plan(slots=4, async_slots=4), lambda path: False)
    given(hands)
    assert hands.wake()
    hands.looking(hands.wanted()[0])
    assert not hands.wake(), "another child may have a slot for it"
    given(hands, job())
    assert hands.wake(), "one of four slots is taken"
