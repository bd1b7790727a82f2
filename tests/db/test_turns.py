"""One turn of a child's bookkeeper after another, and what it tells the supervisor meanwhile."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from django_relay import outcomes, transitions
from tests.process.waiting import wait_until

from .books import PLAN, Books, opened
from .stage import Stage

LOCK = "SELECT 1 FROM django_relay_job WHERE id = %s FOR UPDATE"


@pytest.mark.parametrize("claiming", [False, True], ids=["alone", "with a claim"])
def test_an_ending_sent_to_a_session_that_was_lost_is_sent_again(
    stage: Stage, books: Books, claiming: bool
) -> None:
    job_id = stage.enqueue()
    books.look()
    hand = books.take()
    hands, connection = books.hands, books.keeper.connection
    hands.present(hand, outcomes.succeeded("1"))
    if claiming:
        hands.wake()
        wait_until(lambda: hands.wanted()[0], 10, what="a claim may be sent")
    stage.db.execute("SELECT pg_terminate_backend(%s)", [connection.session().info.backend_pid])
    with nullcontext() if claiming else pytest.raises(psycopg.OperationalError):
        books.keeper._turn()
    assert hand.settled is None
    books.turn_until(lambda: hand.settled)
    assert stage.kinds(job_id) == ["enqueued", "claimed", "succeeded"]


def test_an_ending_whose_job_is_locked_is_kept_and_sent_again(stage: Stage, books: Books) -> None:
    job_id = stage.enqueue()
    books.look()
    hand = books.take()
    somebody = stage.connect(autocommit=False)
    somebody.execute(LOCK, [job_id])
    books.hands.present(hand, outcomes.succeeded("1"))
    books.keeper._turn()
    assert hand.settled is None
    somebody.rollback()
    books.turn_until(lambda: hand.settled)
    assert stage.kinds(job_id) == ["enqueued", "claimed", "succeeded"]


def test_what_a_claim_behind_a_frontier_has_not_seen_is_looked_for_at_once(
    stage: Stage, books: Books
) -> None:
    stage.enqueue()
    books.look()
    frontier = books.keeper._whose["frontier"]
    frontier.reached([books.take().job], picking=1.0, full=True)
    urgent = stage.enqueue(priority=5)
    books.hands.wake()
    books.turn_until(lambda: stage.state(urgent) == "running")


def test_who_passes_over_a_job_that_runs_alone_has_a_lane_woken(stage: Stage, books: Books) -> None:
    stage.set(stage.enqueue(), losses=1)
    stage.enqueue()
    books.look()
    assert books.said("more") == [{"kind": "more", "alone": True}]


def test_who_gets_as_many_as_it_asked_for_has_another_child_woken(
    stage: Stage, books: Books
) -> None:
    jobs = stage.fill(2)
    books.hands.wake()
    books.turn_until(lambda: stage.state(jobs[0]) == "running")
    assert books.said("more") == [{"kind": "more", "alone": False}]


def test_what_is_not_said_again_at_once_is_said_a_moment_later(stage: Stage, books: Books) -> None:
    jobs = stage.fill(2)
    books.hands.wake()
    books.turn_until(lambda: stage.state(jobs[0]) == "running")
    assert books.said("more")
    books.keeper._say_more(alone=False)
    books.keeper.say_unsaid()
    assert books.said("more") == []
    books.keeper._more_at = 0.0  # it is later
    books.keeper.say_unsaid()
    assert books.said("more") == [{"kind": "more", "alone": False}]
    books.keeper._more_at = 0.0
    books.keeper.say_unsaid()
    assert books.said("more") == []


@pytest.mark.parametrize("lane", [False, True], ids=["child", "lane"])
def test_an_ordinary_child_that_takes_a_job_to_run_alone_says_that_it_is_a_lane_now(
    stage: Stage, lane: bool
) -> None:
    job_id = stage.enqueue()
    stage.set(job_id, losses=1)
    with opened(replace(PLAN, lane=lane)) as books:
        books.hands.wake()
        books.turn_until(lambda: stage.state(job_id) == "running")
        assert len(books.said("lane")) == (not lane)


def test_what_becomes_ready_while_a_claim_is_on_its_way_is_looked_for_again(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = transitions.claim

    def woken_meanwhile(*args: Any, **kwargs: Any) -> transitions.Claim:
        found = claim(*args, **kwargs)
        books.hands.wake()
        return found

    monkeypatch.setattr(transitions, "claim", woken_meanwhile)
    books.keeper._turn()
    assert books.hands._look


def test_a_claim_is_kept_although_the_second_one_for_the_rest_fails(
    stage: Stage, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = stage.enqueue(priority=1)
    stage.enqueue()
    claim = transitions.claim

    def but_for_the_rest(*args: Any, bounded: bool = True, **kwargs: Any) -> transitions.Claim:
        if not bounded:
            raise psycopg.OperationalError("gone")
        return claim(*args, **kwargs)

    monkeypatch.setattr(transitions, "claim", but_for_the_rest)
    books.keeper._turn()
    assert books.take().job.job_id == job_id
    assert books.hands._look, "the rest is forgotten"
