"""Cancels against claims, endings and rescues (I12): each job is finished once, and told right."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from django_relay import outcomes, transitions
from django_relay.states import State
from django_relay.transitions import Cancelled, Claimed, Held

from .stage import ACTOR, ERROR, WORKER, Session, Stage, ending, success, told

ASKED, CANCELLED, FINISHED = Cancelled.ASKED, Cancelled.CANCELLED, Cancelled.FINISHED

LEASE = "SELECT 1 FROM django_relay_lease WHERE job_id = %s FOR UPDATE"


def cancel(session: Session, *ids: int, force: bool = False) -> dict[int, Cancelled]:
    return transitions.cancel(session, ids, actor=ACTOR, force=force)


def held(stage: Stage) -> Claimed:
    stage.enqueue()
    return stage.claim()


def in_a_thread(stage: Stage, job: Claimed, *, force: bool, behind: Session) -> Any:
    """Start a cancel of ``job`` that waits for a lock of ``behind``, and return its future."""
    canceller = stage.connect()
    future = stage.start(cancel, canceller, job.job_id, force=force)
    stage.wait_blocked(canceller, by=behind)
    return future


@pytest.mark.parametrize("force", [False, True])
def test_a_cancel_waits_for_a_claim_under_way_and_finds_its_lease(
    stage: Stage, force: bool
) -> None:
    stage.enqueue()
    claimer, canceller = stage.connect(autocommit=False), stage.connect()
    job = stage.claim(claimer)
    future = stage.start(cancel, canceller, job.job_id, force=force)
    stage.wait_pausing(canceller)
    assert not future.done()
    claimer.commit()
    assert future.result() == {job.job_id: CANCELLED if force else ASKED}
    assert told(*stage.settle(success(job))) == ["refused: cancelled" if force else "succeeded"]
    assert stage.orphans() == []


def test_a_cancel_takes_the_job_of_a_claim_that_failed(stage: Stage) -> None:
    stage.enqueue()
    claimer, canceller = stage.connect(autocommit=False), stage.connect()
    job = stage.claim(claimer)
    future = stage.start(cancel, canceller, job.job_id)
    stage.wait_pausing(canceller)
    claimer.rollback()
    assert future.result() == {job.job_id: CANCELLED}
    assert stage.claim_up_to(1).jobs == ()


def test_a_claim_passes_by_a_job_that_is_being_cancelled(stage: Stage) -> None:
    job_id = stage.enqueue()
    canceller = stage.connect(autocommit=False)
    assert cancel(canceller, job_id) == {job_id: CANCELLED}
    assert stage.claim_up_to(1).jobs == ()
    canceller.commit()
    assert stage.claim_up_to(1).jobs == ()
    assert stage.kinds(job_id) == ["enqueued", "cancelled"]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    ("outcome", "answer", "kinds"),
    [
        (outcomes.succeeded("1"), FINISHED, ["succeeded"]),
        (outcomes.failed(ERROR), FINISHED, ["failed"]),
        (outcomes.snoozed(60), CANCELLED, ["snoozed", "cancelled"]),
        (outcomes.released(), CANCELLED, ["released", "cancelled"]),
    ],
    ids=["succeed", "fail", "snooze", "release"],
)
def test_a_cancel_that_waited_for_an_ending_goes_by_what_became_of_the_job(
    stage: Stage,
    force: bool,
    outcome: outcomes.Outcome,
    answer: Cancelled,
    kinds: list[str],
) -> None:
    job = held(stage)
    settler = stage.connect(autocommit=False)
    stage.settle(ending(job, outcome), session=settler)
    future = in_a_thread(stage, job, force=force, behind=settler)
    settler.commit()
    assert future.result() == {job.job_id: answer}
    assert stage.kinds(job.job_id) == ["enqueued", "claimed", *kinds]


@pytest.mark.parametrize("force", [False, True])
def test_a_cancel_that_waited_for_an_ending_that_failed_finds_the_lease(
    stage: Stage, force: bool
) -> None:
    job = held(stage)
    settler = stage.connect(autocommit=False)
    stage.settle(success(job), session=settler)
    future = in_a_thread(stage, job, force=force, behind=settler)
    settler.rollback()
    assert future.result() == {job.job_id: CANCELLED if force else ASKED}


@pytest.mark.parametrize("commit", [False, True])
def test_an_ending_is_put_off_by_a_forced_cancel(stage: Stage, commit: bool) -> None:
    job = held(stage)
    canceller = stage.connect(autocommit=False)
    cancel(canceller, job.job_id, force=True)
    assert transitions.settle(stage.db, [success(job)]) == {}
    canceller.commit() if commit else canceller.rollback()
    assert told(*stage.settle(success(job))) == ["refused: cancelled" if commit else "succeeded"]
    assert stage.state(job.job_id) == ("cancelled" if commit else "successful")


def test_a_forced_cancel_that_waits_for_a_lease_does_not_hold_its_job(stage: Stage) -> None:
    """The lease first and then the job, as endings do: else the two could deadlock."""
    job = held(stage)
    holder = stage.connect(autocommit=False)
    holder.execute(LEASE, [job.job_id])
    future = in_a_thread(stage, job, force=True, behind=holder)
    assert stage.unlocked("job", "id") == [job.job_id]
    holder.rollback()
    assert future.result() == {job.job_id: CANCELLED}


def test_an_ending_that_was_put_off_by_a_request_to_stop_heeds_it(stage: Stage) -> None:
    job = held(stage)
    canceller = stage.connect(autocommit=False)
    assert cancel(canceller, job.job_id) == {job.job_id: ASKED}
    assert transitions.settle(stage.db, [ending(job, outcomes.snoozed(60))]) == {}
    canceller.commit()
    assert told(*stage.settle(ending(job, outcomes.snoozed(60)))) == ["cancelled"]


def test_a_rescue_passes_by_a_forced_cancel(stage: Stage) -> None:
    job = held(stage)
    stage.age_lease(job.job_id, 3600)
    canceller = stage.connect(autocommit=False)
    cancel(canceller, job.job_id, force=True)
    assert transitions.rescue_expired(stage.db) == []
    canceller.commit()
    assert transitions.rescue_expired(stage.db) == []
    assert stage.kinds(job.job_id) == ["enqueued", "claimed", "cancelled"]


def test_a_forced_cancel_does_not_reach_the_next_owner(stage: Stage) -> None:
    """The lease that the cancel waited for has gone; the next claim's lease is another's."""
    job = held(stage)
    settler = stage.connect(autocommit=False)
    stage.settle(ending(job, outcomes.released()), session=settler)
    future = in_a_thread(stage, job, force=True, behind=settler)
    assert len(stage.claim_up_to(1).jobs) == 0
    settler.commit()
    assert future.result() == {job.job_id: CANCELLED}
    assert stage.state(job.job_id) == "cancelled"
    assert stage.orphans() == []


def test_a_cancel_tells_each_job_apart(stage: Stage) -> None:
    waiting = [stage.make(state).job_id for state in (State.BLOCKED, State.SCHEDULED, State.READY)]
    running = stage.make(State.RUNNING, priority=1)
    final = [stage.make(s, priority=2).job_id for s in (State.SUCCESSFUL, State.FAILED)]
    gone = running.job_id + 10_000
    ids = [*waiting, running.job_id, *final, gone, gone]
    assert cancel(stage.db, *ids) == (
        dict.fromkeys(waiting, CANCELLED)
        | {running.job_id: ASKED}
        | dict.fromkeys(final, FINISHED)
        | {gone: Cancelled.MISSING}
    )
    assert stage.events(waiting[0])[-1].actor == ACTOR


def test_a_second_request_to_stop_changes_and_writes_nothing(stage: Stage) -> None:
    job = held(stage)
    cancel(stage.db, job.job_id)
    lease = stage.lease(job.job_id)
    assert cancel(stage.db, job.job_id) == {job.job_id: ASKED}
    assert stage.lease(job.job_id) == lease
    assert stage.kinds(job.job_id) == ["enqueued", "claimed", "cancel_requested"]


def test_a_request_to_stop_does_not_stop_renewals(stage: Stage) -> None:
    job = held(stage)
    cancel(stage.db, job.job_id)
    answer = transitions.renew(stage.db, [Held(job.job_id, job.token, 1.0)], lease=600)
    assert (answer.kept, answer.stop) == ({job.token}, {job.token})


def test_a_name_too_long_for_its_column_is_cut(stage: Stage) -> None:
    job_id = stage.enqueue()
    transitions.cancel(stage.db, [job_id], actor="x" * 500)
    assert stage.events(job_id)[-1].actor == "x" * 150


def test_a_job_that_stays_locked_is_named_and_the_others_are_cancelled(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("django_relay.transitions.cancel")
    monkeypatch.setattr(module, "_TRIES", 3)
    locked, free = stage.enqueue(), stage.enqueue()
    holder = stage.connect(autocommit=False)
    holder.execute("SELECT 1 FROM django_relay_job WHERE id = %s FOR UPDATE", [locked])
    with pytest.raises(TimeoutError, match=rf"\[{locked}\]"):
        cancel(stage.db, locked, free)
    assert (stage.state(locked), stage.state(free)) == ("ready", "cancelled")


def test_a_cancelled_running_job_can_be_requeued_and_its_old_worker_is_refused(
    stage: Stage,
) -> None:
    job = held(stage)
    cancel(stage.db, job.job_id, force=True)
    assert transitions.requeue(stage.db, [job.job_id], actor=ACTOR) == [job.job_id]
    again = stage.claim()
    assert (again.job_id, again.claim) == (job.job_id, job.claim + 1)
    assert told(*stage.settle(success(job), success(again))) == [
        "refused: superseded",
        "succeeded",
    ]
    assert stage.events(job.job_id)[1].worker == WORKER
