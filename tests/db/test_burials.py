"""What maintenance takes back from a child that has died, and when it looks the next time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from django_relay import transitions
from django_relay.connection import Bookkeeping
from django_relay.heartbeat import Report
from django_relay.maintenance import PRESENT, Dead, Identity, Maintenance
from django_relay.transitions import Claimed
from tests.rejecting import Reject

from .stage import WORKER, Stage


@pytest.fixture
def maintenance(stage: Stage) -> Iterator[Maintenance]:
    """Maintenance whose thread does not run."""
    connection = Bookkeeping("default", pooled=False, patience=20.0, name="test")
    yield Maintenance(
        connection,
        Identity(worker="host-1-abc", queues=None, processes=1, slots=1, version="0"),
        poll=60.0,
        notify=True,
        wake=lambda: None,
        hungry=lambda: True,
        looked=lambda outlook: None,
    )
    connection.close()


def report(job: Claimed) -> Report:
    return Report(WORKER, job.job_id, job.token, time.monotonic(), None)


@pytest.mark.parametrize(
    ("interrupted", "kind", "counters"), [(True, "released", (0, 1)), (False, "rescued", (1, 0))]
)
def test_who_was_killed_to_stop_the_worker_has_lost_nothing(
    stage: Stage,
    maintenance: Maintenance,
    interrupted: bool,
    kind: str,
    counters: tuple[int, int],
) -> None:
    job_id = stage.enqueue()
    job = stage.claim()
    maintenance.bury(Dead(WORKER, [report(job)], interrupted=interrupted))
    maintenance._bury_dead()
    assert stage.kinds(job_id) == ["enqueued", "claimed", kind]
    found = stage.job(job_id) or {}
    assert (found["losses"], found["interruptions"]) == counters


def test_what_a_dead_child_claimed_with_its_last_statement_is_taken_back_too(
    stage: Stage, maintenance: Maintenance
) -> None:
    maintenance.bury(Dead(WORKER, [], interrupted=False))
    maintenance._bury_dead()
    job_id = stage.enqueue()
    stage.claim()
    maintenance._bury_dead()
    assert stage.kinds(job_id) == ["enqueued", "claimed", "released"]


def test_a_job_whose_lease_ran_out_before_its_child_died_may_have_begun(
    stage: Stage, maintenance: Maintenance
) -> None:
    """Its late ending was refused, so that the child holds it no more; a rescue found it locked."""
    job_id = stage.enqueue(max_attempts=1)
    stage.claim()
    stage.age_lease(job_id, 3600)
    maintenance.bury(Dead(WORKER, [], interrupted=False))
    maintenance._bury_dead()
    assert stage.kinds(job_id) == ["enqueued", "claimed", "failed"]


def test_the_next_pass_comes_when_a_lease_ends_or_a_job_is_due(
    stage: Stage, maintenance: Maintenance
) -> None:
    assert maintenance._pass() == PRESENT
    stage.enqueue(run_after=timedelta(seconds=30))
    assert maintenance._pass() <= 30.0
    stage.enqueue()
    stage.claim(lease=15.0)
    assert maintenance._pass() <= 15.0


def test_a_release_that_comes_too_late_is_refused_once(
    stage: Stage, maintenance: Maintenance
) -> None:
    """A child that was frozen beyond its leases is killed when the worker stops."""
    job_id = stage.enqueue()
    job = stage.claim()
    stage.age_lease(job_id, 3600)
    transitions.rescue_expired(stage.db)
    maintenance.bury(Dead(WORKER, [report(job)], interrupted=True))
    for _ in range(3):
        maintenance._bury_dead()
    assert stage.kinds(job_id) == ["enqueued", "claimed", "rescued", "refused"]


def test_a_workers_row_that_is_rejected_keeps_no_job_from_being_seen_to(
    stage: Stage, maintenance: Maintenance, reject: Reject, caplog: pytest.LogCaptureFixture
) -> None:
    maintenance._pass()
    lost, due = stage.enqueue(), stage.enqueue()
    stage.end_lease(stage.claim().job_id)
    stage.set(due, state="scheduled")
    reject("true", "worker")
    maintenance._attended = maintenance._mended = float("-inf")
    maintenance._pass()
    assert [stage.state(job_id) for job_id in (lost, due)] == ["ready", "ready"]
    assert "this worker's row was not written: RaiseException" in caplog.text


def test_maintenance_keeps_a_quarantine(
    stage: Stage, maintenance: Maintenance, reject: Reject, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a job is rejected the next pass is no earlier for it."""
    lost, due, late, dead, bare = (stage.enqueue() for _ in range(5))
    stage.end_lease(stage.claim(worker="host-2/1").job_id)
    stage.set(due, state="scheduled")
    stage.db.execute(
        "UPDATE django_relay_job SET start_before = now() - interval '1 s' WHERE id = %s", [late]
    )
    taken = stage.claim()
    stage.db.execute(
        "UPDATE django_relay_job SET state = 'running', claims = 1 WHERE id = %s", [bare]
    )
    maintenance.bury(Dead(WORKER, [report(taken)], interrupted=False))
    reject("NEW.state <> 'running'")
    maintenance._pass()
    maintenance._late.clear()
    assert maintenance._pass() > 1
    assert [taken.job_id] == [dead]
    for job_id in (lost, due, late, dead, bare):
        assert f"job {job_id} is passed over" in caplog.text
        assert not (stage.job(job_id) or {})["finished_at"]


def test_a_slot_that_becomes_free_while_its_worker_says_that_none_is_has_it_say_so_anew(
    maintenance: Maintenance,
) -> None:
    found = iter([False, True])
    maintenance._hungry = lambda: next(found)
    maintenance._attend(time.monotonic())
    assert maintenance.saturated
    assert maintenance._poked.is_set()


def test_a_worker_that_looks_seldom_says_often_enough_that_it_is_there(
    maintenance: Maintenance,
) -> None:
    maintenance._poll = 3600.0
    assert maintenance._pass() <= PRESENT < 60


def test_a_worker_whose_session_was_ended_says_good_bye_on_another(
    stage: Stage, maintenance: Maintenance
) -> None:
    maintenance._pass()
    pid = maintenance.connection.session().info.backend_pid
    stage.db.execute("SELECT pg_terminate_backend(%s)", [pid])
    maintenance._leave()
    found = stage.db.execute("SELECT waiting, stopped_at IS NOT NULL FROM django_relay_worker")
    assert found.fetchall() == [(False, True)]
