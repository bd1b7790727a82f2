"""A finished job's other life, and what is left of a job that was pruned."""

from __future__ import annotations

from datetime import timedelta

from django_relay import transitions
from django_relay.states import State

from .stage import ACTOR, Stage


def test_a_job_that_came_too_late_can_be_requeued_and_is_claimed(stage: Stage) -> None:
    job_id = stage.enqueue()
    past = stage.value("SELECT clock_timestamp() - interval '1 second'")
    stage.set(job_id, start_before=past)
    assert transitions.expire(stage.db) == [job_id]
    assert transitions.requeue(stage.db, [job_id], actor=ACTOR) == [job_id]
    assert transitions.expire(stage.db) == []
    assert stage.claim().job_id == job_id


def test_a_requeue_leaves_a_job_whose_unique_name_another_holds(stage: Stage) -> None:
    done, free = stage.make(State.SUCCESSFUL), stage.make(State.FAILED)
    stage.set(done.job_id, unique_name="one")
    stage.set(stage.enqueue(), unique_name="one", unique_key="one")
    ids = [done.job_id, free.job_id]
    assert transitions.requeue(stage.db, ids, actor=ACTOR) == [free.job_id]
    assert stage.state(done.job_id) == "successful"


def test_a_prune_leaves_neither_events_nor_leases_behind(stage: Stage) -> None:
    job = stage.make(State.SUCCESSFUL)
    kept = stage.make(State.RUNNING)
    assert transitions.prune(stage.db, older_than=timedelta(0)) == 1
    assert stage.events(job.job_id) == []
    assert stage.kinds(kept.job_id)
    assert stage.orphans() == []
