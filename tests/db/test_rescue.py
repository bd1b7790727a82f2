"""Taking jobs back: from leases that ran out, from dead children, and from rows nobody can end."""

from __future__ import annotations

from typing import Any

import pytest

from django_relay import outcomes, transitions
from django_relay.states import State
from django_relay.transitions import Cancelled, Claimed, Held

from .stage import ACTOR, WORKER, Stage, ending, success, told

LOST = "django_relay.exceptions.WorkerLost"


def held(stage: Stage, *, losses: int = 0, **changes: Any) -> Claimed:
    """A claimed job whose lease has ten minutes to go, with losses behind it."""
    stage.set(stage.enqueue(**changes), losses=losses)
    return stage.claim(alone=losses > 0)


def row(stage: Stage, of: Claimed) -> dict[str, Any]:
    found = stage.job(of.job_id)
    assert found is not None
    return found


def lose(stage: Stage, job: Claimed) -> transitions.Rescued:
    """Let the lease of ``job`` run out two seconds ago, and rescue the job."""
    stage.age_lease(job.job_id, 602)
    (rescued,) = transitions.rescue_expired(stage.db)
    assert rescued.job_id == job.job_id
    return rescued


# ---------------------------------------------------------------------------------- expired leases


def test_a_job_whose_lease_ran_out_is_ready_again(stage: Stage) -> None:
    job = held(stage)
    rescued = lose(stage, job)
    assert (rescued.state, rescued.kind, rescued.worker) == ("ready", "rescued", WORKER)
    assert (rescued.losses, rescued.queue, rescued.task) == (1, "default", "shop.tasks.pack")
    event = stage.events(job.job_id)[-1]
    assert (event.claim, event.token, event.worker) == (job.claim, job.token, WORKER)
    assert (event.data["lost"], event.data["why"]) == (True, "its lease ran out")
    assert "error" not in event.data
    assert stage.lease(job.job_id) is None


def test_a_lease_with_time_to_go_is_left_alone(stage: Stage) -> None:
    job = held(stage)
    stage.age_lease(job.job_id, 590)
    assert transitions.rescue_expired(stage.db) == []
    assert told(*stage.settle(success(job))) == ["succeeded"]


def test_a_lost_job_counts_as_started_since_its_lease_began(stage: Stage) -> None:
    job = held(stage)
    lose(stage, job)
    found = row(stage, job)
    assert found["started_at"] == found["last_attempted_at"] is not None


def test_a_lost_job_whose_beginning_was_reported_keeps_it(stage: Stage) -> None:
    job = held(stage)
    transitions.renew(stage.db, [Held(job.job_id, job.token, 3.0)], lease=600)
    lease = stage.lease(job.job_id)
    assert lease is not None
    transitions.rescue_child(stage.db, WORKER, begun=[])
    assert row(stage, job)["started_at"] == lease["begun_at"]
    assert stage.events(job.job_id)[-1].data["renewals"] == 1


@pytest.mark.parametrize(
    ("losses", "state", "spacing"),
    [
        (0, "ready", 0),
        (1, "scheduled", 4),
        (2, "scheduled", 8),
        (5, "scheduled", 64),
        (8, "scheduled", 300),
        (1_000_000_000, "scheduled", 300),
    ],
)
def test_from_the_second_loss_on_a_job_waits_longer_each_time(
    stage: Stage, losses: int, state: str, spacing: int
) -> None:
    job = held(stage, losses=losses, max_attempts=None)
    assert lose(stage, job).state == state
    found = row(stage, job)
    event = stage.events(job.job_id)[-1]
    if spacing:
        rescued_at = stage.value("SELECT at FROM django_relay_event WHERE kind = 'rescued'")
        assert (found["run_after"] - rescued_at).total_seconds() == spacing
        assert event.data["run_after"]
    assert (event.kind, found["losses"]) == ("rescued", min(losses + 1, 1_000_000_000))


@pytest.mark.parametrize(("losses", "max_attempts"), [(0, 1), (2, 3), (4, 3)])
def test_a_job_out_of_losses_is_failed_with_worker_lost(
    stage: Stage, losses: int, max_attempts: int
) -> None:
    job = held(stage, losses=losses, max_attempts=max_attempts)
    assert lose(stage, job).state == "failed"
    event = stage.events(job.job_id)[-1]
    assert (event.kind, event.data["lost"], event.data["error"]["class"]) == ("failed", True, LOST)
    assert row(stage, job)["finished_at"] is not None


def test_failures_and_losses_are_counted_apart(stage: Stage) -> None:
    job_id = stage.enqueue(max_attempts=2)
    stage.set(job_id, failures=1)
    rescued = lose(stage, stage.claim())
    assert rescued.state == "ready"
    assert (stage.job(job_id) or {})["failures"] == 1


def test_a_lost_job_that_was_asked_to_stop_is_cancelled(stage: Stage) -> None:
    job = held(stage, max_attempts=1)
    transitions.cancel(stage.db, [job.job_id], actor=ACTOR)
    rescued = lose(stage, job)
    assert (rescued.state, rescued.kind) == ("cancelled", "cancelled")
    assert told(*stage.settle(success(job))) == ["refused: cancelled"]


# ---------------------------------------------------------------------------------- dead children


def test_a_dead_childs_jobs_are_taken_back_at_once_by_what_had_begun(stage: Stage) -> None:
    begun, unbegun, other = held(stage), held(stage), held(stage)
    stage.db.execute(
        "UPDATE django_relay_lease SET worker = 'host-1-abc/2' WHERE job_id = %s", [other.job_id]
    )
    rescued = transitions.rescue_child(stage.db, WORKER, begun=[begun.token])
    assert [(r.job_id, r.state, r.kind, r.losses) for r in rescued] == [
        (begun.job_id, "ready", "rescued", 1),
        (unbegun.job_id, "ready", "released", 0),
    ]
    assert stage.events(begun.job_id)[-1].data["why"] == "its process died"
    assert stage.events(unbegun.job_id)[-1].data["began"] is False
    assert row(stage, unbegun)["started_at"] is None
    assert stage.state(other.job_id) == "running"
    assert transitions.rescue_child(stage.db, WORKER, begun=[begun.token]) == []


def test_what_never_began_is_released_free_also_with_one_attempt(stage: Stage) -> None:
    job = held(stage, max_attempts=1)
    (rescued,) = transitions.rescue_child(stage.db, WORKER, begun=[])
    assert (rescued.state, rescued.losses) == ("ready", 0)
    assert row(stage, job)["interruptions"] == 0
    assert stage.claim().claim == job.claim + 1


def test_what_a_renewal_says_has_begun_counts_although_no_report_is_left(stage: Stage) -> None:
    job = held(stage, max_attempts=1)
    transitions.renew(stage.db, [Held(job.job_id, job.token, 1.0)], lease=600)
    (rescued,) = transitions.rescue_child(stage.db, WORKER, begun=[])
    assert (rescued.state, rescued.losses) == ("failed", 1)


def test_with_one_attempt_a_job_that_began_is_never_started_again(stage: Stage) -> None:
    job = held(stage, max_attempts=1)
    (rescued,) = transitions.rescue_child(stage.db, WORKER, begun=[job.token])
    assert rescued.state == "failed"


def test_a_dead_childs_lease_that_ran_out_is_rescued_once(stage: Stage) -> None:
    job = held(stage)
    stage.age_lease(job.job_id, 602)
    assert len(transitions.rescue_child(stage.db, WORKER, begun=[job.token])) == 1
    assert transitions.rescue_expired(stage.db) == []
    assert stage.kinds(job.job_id) == ["enqueued", "claimed", "rescued"]


# ---------------------------------------------------------------------------------- orphans


def test_a_running_job_without_a_lease_is_mended(stage: Stage) -> None:
    job, healthy = held(stage), held(stage)
    stage.db.execute("DELETE FROM django_relay_lease WHERE job_id = %s", [job.job_id])
    mended, orphans = transitions.mend(stage.db)
    assert [(m.job_id, m.state, m.kind, m.losses) for m in mended] == [
        (job.job_id, "ready", "rescued", 1)
    ]
    assert orphans == []
    stage.check_history(job.job_id)
    assert stage.state(healthy.job_id) == "running"
    assert told(*stage.settle(success(job))) == ["refused: superseded"]


def test_a_running_job_without_a_lease_and_losses_left_is_failed(stage: Stage) -> None:
    job = held(stage, max_attempts=1)
    stage.db.execute("DELETE FROM django_relay_lease")
    ((mended,), _) = transitions.mend(stage.db)
    assert (mended.state, mended.kind) == ("failed", "failed")
    assert stage.events(job.job_id)[-1].data["error"]["class"] == LOST


@pytest.mark.parametrize("state", [State.READY, State.SCHEDULED, State.SUCCESSFUL, None])
def test_a_lease_without_a_running_job_is_mended(stage: Stage, state: State | None) -> None:
    job, healthy = held(stage), held(stage)
    orphan_of(stage, job, state)
    assert transitions.mend(stage.db) == ([], [job.job_id])
    assert stage.lease(job.job_id) is None
    assert stage.lease(healthy.job_id) is not None
    assert transitions.mend(stage.db) == ([], [])


def orphan_of(stage: Stage, job: Claimed, state: State | None) -> None:
    """End ``job`` by a transition and put its lease back, as somebody's own SQL might."""
    copied = "CREATE TEMPORARY TABLE kept AS SELECT * FROM django_relay_lease WHERE job_id = "
    stage.db.execute(f"{copied}{job.job_id}")
    if state == State.SUCCESSFUL or state is None:
        stage.settle(success(job))
    else:
        delay = 60 if state == State.SCHEDULED else None
        stage.settle(ending(job, outcomes.snoozed(delay) if delay else outcomes.released()))
    if state is None:
        stage.db.execute("DELETE FROM django_relay_job WHERE id = %s", [job.job_id])
    stage.db.execute("INSERT INTO django_relay_lease SELECT * FROM kept")
    stage.db.execute("DROP TABLE kept")


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("state", [State.READY, State.SUCCESSFUL])
def test_a_cancel_is_not_misled_by_an_orphan_lease(stage: Stage, state: State, force: bool) -> None:
    job = held(stage)
    orphan_of(stage, job, state)
    answer = transitions.cancel(stage.db, [job.job_id], actor=ACTOR, force=force)
    waiting = state == State.READY
    assert answer == {job.job_id: Cancelled.CANCELLED if waiting else Cancelled.FINISHED}
    stage.check_history(job.job_id)


def test_an_orphan_lease_that_ran_out_is_swept_by_the_rescue_too(stage: Stage) -> None:
    job = held(stage)
    orphan_of(stage, job, State.SUCCESSFUL)
    stage.age_lease(job.job_id, 3600)
    assert transitions.rescue_expired(stage.db) == []
    assert (stage.lease(job.job_id), stage.state(job.job_id)) == (None, "successful")
