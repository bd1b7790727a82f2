"""A row that somebody else has locked holds up its own job and no other."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from django_relay import transitions
from django_relay.states import State

from .stage import ACTOR, Session, Stage, success

HOUR = timedelta(hours=1)
LOCK = "SELECT 1 FROM django_relay_job WHERE id = %s FOR UPDATE"


def test_an_ending_is_put_off_while_its_job_is_locked_and_the_others_are_accepted(
    stage: Stage,
) -> None:
    stage.enqueue()
    stage.enqueue()
    locked, free = stage.claim(), stage.claim()
    somebody = stage.connect(autocommit=False)
    somebody.execute(LOCK, [locked.job_id])
    answers = transitions.settle(stage.db, [success(locked), success(free)])
    assert {token: answer.state for token, answer in answers.items()} == {free.token: "successful"}
    assert stage.kinds(locked.job_id) == ["enqueued", "claimed"]
    # Meanwhile its lease is nobody's but its owner's, and can be renewed.
    held = [transitions.Held(locked.job_id, locked.token, 1.0)]
    assert transitions.renew(stage.db, held, lease=30).kept == {locked.token}
    somebody.rollback()
    answers = transitions.settle(stage.db, [success(locked)])
    assert answers[locked.token].state == "successful"


def test_an_ending_that_was_put_off_past_its_lease_is_refused(stage: Stage) -> None:
    stage.enqueue()
    job = stage.claim()
    somebody = stage.connect(autocommit=False)
    somebody.execute(LOCK, [job.job_id])
    assert transitions.settle(stage.db, [success(job)]) == {}
    stage.end_lease(job.job_id)
    somebody.rollback()
    (answer,) = stage.settle(success(job))
    assert (answer.accepted, answer.reason) == (False, "expired")


def test_a_due_job_that_is_locked_is_promoted_later_and_the_others_now(stage: Stage) -> None:
    locked, free = stage.enqueue(run_after=HOUR), stage.enqueue(run_after=HOUR, queue="mail")
    for job_id in (locked, free):
        stage.set(job_id, run_after=stage.value("SELECT clock_timestamp()"))
    somebody = stage.connect(autocommit=False)
    somebody.execute(LOCK, [locked])
    stage.db.execute("SET lock_timeout = '1s'")
    assert transitions.promote(stage.db) == ["mail"]
    somebody.rollback()
    assert transitions.promote(stage.db) == ["default"]


def test_a_job_that_came_too_late_and_is_locked_is_failed_later(stage: Stage) -> None:
    locked, free = stage.enqueue(), stage.enqueue()
    for job_id in (locked, free):
        stage.set(job_id, start_before=stage.value("SELECT clock_timestamp()"))
    somebody = stage.connect(autocommit=False)
    somebody.execute(LOCK, [locked])
    stage.db.execute("SET lock_timeout = '1s'")
    assert transitions.expire(stage.db) == [free]
    somebody.rollback()
    assert transitions.expire(stage.db) == [locked]


def test_a_rescue_leaves_out_a_job_that_is_locked_and_takes_the_others(stage: Stage) -> None:
    stage.enqueue()
    stage.enqueue()
    locked, free = stage.claim(), stage.claim()
    for job in (locked, free):
        stage.age_lease(job.job_id, 3600)
    somebody = stage.connect(autocommit=False)
    somebody.execute(LOCK, [locked.job_id])
    assert [job.job_id for job in transitions.rescue_expired(stage.db)] == [free.job_id]
    assert stage.lease(locked.job_id) is not None
    somebody.rollback()
    assert [job.job_id for job in transitions.rescue_expired(stage.db)] == [locked.job_id]


def test_a_running_job_without_a_lease_that_is_locked_is_mended_later(stage: Stage) -> None:
    jobs = [stage.make(State.RUNNING).job_id for _ in range(2)]
    stage.db.execute("DELETE FROM django_relay_lease")
    locker = locked_by_somebody(stage, "job", "id", jobs[0])
    assert [job.job_id for job in transitions.mend(stage.db)[0]] == jobs[1:]
    locker.rollback()
    assert [job.job_id for job in transitions.mend(stage.db)[0]] == jobs[:1]


def test_an_orphan_lease_that_is_locked_is_deleted_later(stage: Stage) -> None:
    jobs = [stage.make(State.RUNNING).job_id for _ in range(2)]
    for job_id in jobs:
        stage.set(job_id, state="ready")
    locker = locked_by_somebody(stage, "lease", "job_id", jobs[0])
    assert transitions.mend(stage.db)[1] == jobs[1:]
    locker.rollback()
    assert transitions.mend(stage.db)[1] == jobs[:1]


def prune(session: Session, ids: list[int]) -> int:
    return transitions.prune(session, older_than=timedelta(0))


def requeue(session: Session, ids: list[int]) -> int:
    return len(transitions.requeue(session, ids, actor=ACTOR))


def reschedule(session: Session, ids: list[int]) -> int:
    return len(transitions.reschedule(session, ids, run_after=HOUR, actor=ACTOR))


def move(session: Session, ids: list[int]) -> int:
    return len(transitions.move(session, ids, queue="mail", actor=ACTOR))


@pytest.mark.parametrize(
    ("verb", "state"),
    [
        (prune, State.SUCCESSFUL),
        (requeue, State.FAILED),
        (reschedule, State.READY),
        (move, State.READY),
    ],
)
def test_who_tends_to_jobs_waits_for_none_that_is_locked(
    stage: Stage, verb: Callable[[Session, list[int]], int], state: State
) -> None:
    jobs = [stage.make(state).job_id, stage.enqueue()]
    if state != State.READY:
        jobs[1] = stage.make(state, priority=1).job_id
    locker = locked_by_somebody(stage, "job", "id", jobs[0])
    assert verb(stage.db, jobs) == 1
    locker.rollback()
    assert verb(stage.db, jobs[:1]) == 1


def locked_by_somebody(stage: Stage, table: str, column: str, key: int) -> Session:
    """Lock a row in a session of somebody's, and let who waits for it fail soon."""
    somebody = stage.connect(autocommit=False)
    somebody.execute(f"SELECT 1 FROM django_relay_{table} WHERE {column} = %s FOR UPDATE", [key])
    stage.db.execute("SET lock_timeout = '1s'")
    return somebody
