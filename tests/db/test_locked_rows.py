"""A row that somebody else has locked holds up its own job and no other."""

from __future__ import annotations

from django_relay import transitions

from .stage import Stage, success

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
