"""What a child's bookkeeper does when the database goes away between two of its statements."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from django_relay import child, outcomes, results
from django_relay.hands import Hands
from tests.process.waiting import wait_until

from .books import PLAN, Silent
from .stage import Stage, ending


@pytest.fixture
def hands(stage: Stage) -> Iterator[Hands]:
    """The hands of a bookkeeper that works in a thread."""
    stage.compile_claims(1)
    made = Hands(PLAN, lambda task: False)
    nobody: Any = Silent()
    bookkeeper = child.Bookkeeper(PLAN, made, nobody, nobody)
    thread = threading.Thread(target=bookkeeper.run)
    thread.start()
    yield made
    made.finish(0.0)
    thread.join(20)
    assert not thread.is_alive()


def test_a_claim_whose_jobs_past_cannot_be_read_yet_is_not_forgotten(
    stage: Stage, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, failures = results.pasts, [psycopg.OperationalError("gone") for _ in range(3)]

    def away(*args: Any) -> Any:
        if failures:
            raise failures.pop()
        return read(*args)

    monkeypatch.setattr(results, "pasts", away)
    job_id = stage.enqueue()
    stage.settle(ending(stage.claim(), outcomes.released()))
    hands.wake()
    wait_until(lambda: not hands.empty, 20, what="the job is in hand")
    hand = hands.take([])
    assert hand is not None
    hands.present(hand, outcomes.succeeded("1"))
    hands.send()
    wait_until(lambda: hand.settled, 20, what="the ending is accepted")
    assert not failures
    assert hand.past
    kinds = [event.kind for event in stage.events(job_id)]
    assert kinds == ["enqueued", "claimed", "released", "claimed", "succeeded"]


def test_a_claim_whose_jobs_past_can_never_be_read_is_taken_in_hand_without(
    stage: Stage, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: Any) -> Any:
        raise psycopg.OperationalError("gone")

    monkeypatch.setattr(results, "pasts", away)
    stage.enqueue()
    stage.settle(ending(stage.claim(), outcomes.released()))
    hands.wake()
    wait_until(lambda: not hands.empty, 20, what="the job is in hand")
    hand = hands.take([])
    assert hand is not None
    assert hand.past == ()
