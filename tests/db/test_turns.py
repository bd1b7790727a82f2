"""One turn of a child's bookkeeper after another, and what it tells the supervisor meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, cast

import psycopg
import pytest

from django_relay import outcomes, transitions
from django_relay.child import Bookkeeper
from django_relay.hand import Hand
from django_relay.hands import Hands
from django_relay.messages import Channel, Plan
from tests.process.waiting import wait_until
from tests.rejecting import Reject

from .stage import Stage
from .test_bookkeeper import PLAN, Silent

LOCK = "SELECT 1 FROM django_relay_job WHERE id = %s FOR UPDATE"


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


@pytest.fixture
def books(stage: Stage) -> Iterator[Books]:
    with opened(replace(PLAN, slots=2, async_slots=2)) as made:
        yield made


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


def test_an_ending_that_a_trigger_rejects_spoils_neither_the_others_nor_the_claim(
    stage: Stage, books: Books, reject: Reject
) -> None:
    jobs, hands, third = with_two_ended(stage, books)
    reject(f"NEW.id = {jobs[0]} AND NEW.state IN ('successful', 'scheduled')")
    books.turn_until(lambda: stage.state(third) == "running")
    assert [stage.state(job) for job in jobs] == ["running", "successful"]
    assert hands[0].settled
    assert hands[0].settled.reason == "unstorable"
    # Its handler has run: if the child dies now, it must not be taken for one that has not.
    transitions.rescue_child(stage.db, PLAN.worker, begun=[])
    assert stage.kinds(jobs[0]) == ["enqueued", "claimed", "rescued"]
    assert (stage.job(jobs[0]) or {})["losses"] == 1


def test_a_job_that_a_trigger_lets_nobody_claim_keeps_no_other_from_its_end_or_start(
    stage: Stage, books: Books, reject: Reject
) -> None:
    jobs, _, third = with_two_ended(stage, books)
    reject(f"NEW.id = {third} AND NEW.state = 'running'")
    fourth = stage.enqueue()
    books.turn_until(lambda: stage.state(fourth) == "running")
    assert [stage.state(job) for job in [*jobs, third]] == ["successful", "successful", "ready"]


def test_however_many_are_rejected_a_child_finds_what_is_behind_them(
    stage: Stage,
    books: Books,
    reject: Reject,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad = stage.fill(60)
    good = stage.enqueue()
    reject(f"NEW.id <= {bad[-1]}")
    books.hands.wake()
    for _ in range(60):
        if stage.state(good) == "running":
            break
        books.keeper._turn()
    assert stage.state(good) == "running"
    assert f"job {bad[0]} is passed over for 10 s" in caplog.text


def test_an_ending_that_comes_back_each_time_keeps_its_child_from_no_claim(
    stage: Stage, books: Books, reject: Reject
) -> None:
    """Neither the job nor its lease can be ended, and the claim is rejected besides."""
    jobs, _, third = with_two_ended(stage, books)
    fourth = stage.enqueue()
    reject(f"NEW.id IN ({jobs[0]}, {third})")
    reject(f"NEW.job_id = {jobs[0]}", "lease")
    books.turn_until(lambda: stage.state(fourth) == "running")
    assert [stage.state(job) for job in [*jobs, third]] == ["running", "successful", "ready"]


def test_a_claim_that_has_to_wait_keeps_no_job_from_its_end(stage: Stage) -> None:
    """Somebody is about to insert a lease by hand, which only a claim would wait for."""
    with opened(replace(PLAN, slots=2, async_slots=2, patience=1.0)) as books:
        jobs, _, third = with_two_ended(stage, books)
        somebody = stage.connect(autocommit=False)
        somebody.execute(
            "INSERT INTO django_relay_lease (job_id, token, worker, claim, acquired_at, expires_at,"
            " renewals) VALUES (%s, gen_random_uuid(), 'nobody', 1, now(), now(), 0)",
            [third],
        )
        books.keeper._turn()
        assert [stage.state(job) for job in jobs] == ["running", "running"]
        with pytest.raises(psycopg.errors.QueryCanceled):
            books.keeper._turn()
        assert [stage.state(job) for job in jobs] == ["successful", "successful"]
        somebody.rollback()
        books.turn_until(lambda: stage.state(third) == "running")
        assert not books.keeper._apart


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
    assert books.said("more") == []
    books.keeper.say_unsaid()
    assert books.said("more") == [{"kind": "more", "alone": False}]
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
