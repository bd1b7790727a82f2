"""Endings and a claim in one round trip: the same answers as one after the other, or neither."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from django_relay import outcomes, transitions
from django_relay.connection import Bookkeeping
from django_relay.outcomes import Ending
from django_relay.transitions import Claimed

from .stage import WORKER, Stage

CLAIMING: dict[str, Any] = {"database": "default", "queues": None, "worker": WORKER, "lease": 60.0}


@pytest.fixture
def child(stage: Stage) -> Iterator[Bookkeeping]:
    """A session as a child's own."""
    made = Bookkeeping("default", pooled=False, patience=20.0, name="test", hot=True)
    yield made
    made.close()


def done(job: Claimed, result: str = "1") -> Ending:
    return Ending(job.job_id, job.token, outcomes.succeeded(result), 0.5)


def test_one_turn_ends_jobs_and_takes_others(stage: Stage, child: Bookkeeping) -> None:
    ids = [stage.enqueue() for _ in range(5)]
    first = transitions.claim(child, 2, **CLAIMING).jobs
    for _ in range(4):  # often enough that the statements are prepared
        answers, claim = transitions.turn(child, [done(job) for job in first], 2, **CLAIMING)
        assert {answer.state for answer in answers.values()} == {"successful"}
        first = claim.jobs
        if not first:
            break
    assert [stage.state(job_id) for job_id in ids] == ["successful"] * 5
    assert stage.kinds(ids[-1]) == ["enqueued", "claimed", "succeeded"]
    assert not claim.left


def test_a_turn_is_one_transaction(stage: Stage, child: Bookkeeping) -> None:
    stage.enqueue()
    (job,) = transitions.claim(child, 1, **CLAIMING).jobs
    other = stage.enqueue()
    transitions.turn(child, [done(job)], 1, **CLAIMING)
    query = "SELECT xmin::text FROM django_relay_job WHERE id = %s"
    assert stage.value(query, [job.job_id]) == stage.value(query, [other])


def test_what_a_turn_has_given_back_is_claimed_by_the_next(
    stage: Stage, child: Bookkeeping
) -> None:
    job_id = stage.enqueue()
    (job,) = transitions.claim(child, 1, **CLAIMING).jobs
    given_back = Ending(job_id, job.token, outcomes.released(), None)
    answers, claim = transitions.turn(child, [given_back], 1, **CLAIMING)
    assert (answers[job.token].kind, claim.jobs) == ("released", ())
    _, claim = transitions.turn(child, [given_back], 1, **CLAIMING)
    assert [(each.job_id, each.claim) for each in claim.jobs] == [(job_id, 2)]


def test_a_late_ending_is_refused_and_the_claim_stands(stage: Stage, child: Bookkeeping) -> None:
    late = stage.enqueue()
    (job,) = transitions.claim(child, 1, **CLAIMING).jobs
    stage.age_lease(late, 3600)
    other = stage.enqueue()
    answers, claim = transitions.turn(child, [done(job)], 5, **CLAIMING)
    assert answers == {}
    late_one = transitions.others(child, [done(job)], answers)
    assert late_one[job.token].reason == "expired"
    assert [each.job_id for each in claim.jobs] == [other]
    assert stage.kinds(late) == ["enqueued", "claimed", "refused"]


@pytest.mark.parametrize("result", ["no JSON", chr(0xD800)], ids=["server", "driver"])
def test_an_outcome_that_cannot_be_stored_is_an_error_and_neither_is_done(
    stage: Stage, child: Bookkeeping, result: str
) -> None:
    held = stage.enqueue()
    (job,) = transitions.claim(child, 1, **CLAIMING).jobs
    other = stage.enqueue()
    with pytest.raises((psycopg.DataError, UnicodeError)):
        transitions.turn(child, [done(job, result=result)], 5, **CLAIMING)
    assert [stage.state(job_id) for job_id in (held, other)] == ["running", "ready"]


def test_an_ending_whose_job_is_locked_is_left_for_another_time(
    stage: Stage, child: Bookkeeping
) -> None:
    held = stage.enqueue()
    (job,) = transitions.claim(child, 1, **CLAIMING).jobs
    other = stage.enqueue()
    somebody = stage.connect(autocommit=False)
    somebody.execute("SELECT 1 FROM django_relay_job WHERE id = %s FOR UPDATE", [held])
    answers, claim = transitions.turn(child, [done(job)], 5, **CLAIMING)
    somebody.rollback()
    assert (answers, [each.job_id for each in claim.jobs]) == ({}, [other])


def test_a_lost_session_loses_both_and_the_next_turn_goes_on(
    stage: Stage, child: Bookkeeping
) -> None:
    stage.enqueue()
    (job,) = transitions.claim(child, 1, **CLAIMING).jobs
    stage.db.execute("SELECT pg_terminate_backend(%s)", [child.session().info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        transitions.turn(child, [done(job)], 1, **CLAIMING)
    answers, _ = transitions.turn(child, [done(job)], 1, **CLAIMING)
    assert answers[job.token].accepted


@pytest.mark.parametrize("pooled", [True, False], ids=["pooled", "stricter defaults"])
def test_behind_a_pooler_and_under_stricter_defaults_they_go_together_too(
    stage: Stage, pooled: bool
) -> None:
    child = Bookkeeping("default", pooled=pooled, patience=20.0, name="test", hot=True)
    if not pooled:
        child.session()
        child._begin = "BEGIN ISOLATION LEVEL READ COMMITTED"  # as for a role's stricter default
    first = stage.enqueue()
    (job,) = transitions.claim(child, 1, **CLAIMING).jobs
    other = stage.enqueue()
    answers, claim = transitions.turn(child, [done(job)], 1, **CLAIMING)
    child.close()
    assert answers[job.token].accepted
    assert [each.job_id for each in claim.jobs] == [other]
    query = "SELECT xmin::text FROM django_relay_job WHERE id = %s"
    assert stage.value(query, [first]) == stage.value(query, [other])


def test_the_time_that_endings_take_is_no_reason_for_a_frontier(
    stage: Stage, child: Bookkeeping
) -> None:
    for _ in range(1000):
        stage.enqueue()
    jobs = transitions.claim(child, 500, **CLAIMING).jobs
    left = []
    for start in range(0, 500, 100):
        frontier, sent = transitions.Frontier(), time.monotonic()
        endings = [done(job) for job in jobs[start : start + 100]]
        _, claim = transitions.turn(child, endings, 100, frontier=frontier, **CLAIMING)
        assert time.monotonic() - sent > 0.002, "as long as a slow pick"
        assert len(claim.jobs) == 100
        left.append(frontier.starts())
    assert [] in left, "each left one"  # a busy machine alone may be slow, but not always
