"""Endings: what is accepted and counted, and what is refused and why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from django_relay import outcomes, transitions
from django_relay.outcomes import Outcome
from django_relay.states import State
from django_relay.transitions import Claimed, Settled

from .stage import ACTOR, ERROR, WORKER, Stage, ending, success, told

RETRY = outcomes.raised(ERROR, delay=60)
FAIL = outcomes.failed(ERROR)
NOT_SUCCESS = [RETRY, FAIL, outcomes.snoozed(60), outcomes.released()]


def held(stage: Stage, **changes: Any) -> Claimed:
    stage.enqueue(**changes)
    return stage.claim()


def row(stage: Stage, of: Claimed) -> dict[str, Any]:
    found = stage.job(of.job_id)
    assert found is not None
    return found


# ---------------------------------------------------------------------------------- accepted


def test_a_success_stores_the_result_as_it_was_sent(stage: Stage) -> None:
    job = held(stage)
    (answer,) = stage.settle(success(job, '{"a": 1e308, "b": -0.0, "a": 1e16}'))
    assert (answer.accepted, answer.state, answer.kind) == (True, "successful", "succeeded")
    text = stage.value("SELECT result::text FROM django_relay_job")
    assert text == '{"a": 1e308, "b": -0.0, "a": 1e16}'


def test_an_ending_says_when_its_handler_began(stage: Stage) -> None:
    job = held(stage)
    stage.settle(ending(job, outcomes.succeeded("1"), ran=3.0))
    found = row(stage, job)
    assert found["started_at"] == found["last_attempted_at"]
    assert 2.9 < (found["finished_at"] - found["started_at"]).total_seconds() < 3.1
    (*_, event) = stage.events(job.job_id)
    assert 2900 < event.data["ran_ms"] < 3100


def test_an_ending_that_waited_says_how_long_its_handler_took(stage: Stage) -> None:
    job = held(stage)
    stage.settle(ending(job, outcomes.succeeded("1"), ran=3.0)._replace(took=0.25))
    found = row(stage, job)
    assert 2.9 < (found["finished_at"] - found["started_at"]).total_seconds() < 3.1
    (*_, event) = stage.events(job.job_id)
    assert event.data["ran_ms"] == 250


def test_the_first_start_is_kept_and_the_last_attempt_moves_on(stage: Stage) -> None:
    first = held(stage)
    stage.settle(ending(first, outcomes.snoozed(0), ran=5.0))
    started = row(stage, first)["started_at"]
    transitions.promote(stage.db)
    stage.settle(success(stage.claim()))
    found = row(stage, first)
    assert found["started_at"] == started < found["last_attempted_at"]


def test_an_ending_tells_how_often_its_lease_was_renewed(stage: Stage) -> None:
    job = held(stage)
    for _ in range(3):
        transitions.renew(stage.db, [transitions.Held(job.job_id, job.token, 1.0)], lease=60)
    stage.settle(success(job))
    assert stage.events(job.job_id)[-1].data["renewals"] == 3


def test_a_failed_attempt_keeps_its_error_and_counts(stage: Stage) -> None:
    job = held(stage)
    assert told(*stage.settle(ending(job, RETRY))) == ["retried"]
    assert stage.events(job.job_id)[-1].data["error"] == ERROR
    found = row(stage, job)
    assert (found["failures"], found["losses"], found["finished_at"]) == (1, 0, None)
    retried_at = stage.value("SELECT at FROM django_relay_event WHERE kind = 'retried'")
    assert (found["run_after"] - retried_at).total_seconds() == 60


def test_a_snooze_costs_no_failure_however_often(stage: Stage) -> None:
    job_id = stage.enqueue(max_attempts=1)
    for _ in range(3):
        stage.settle(ending(stage.claim(), outcomes.snoozed(0)))
        transitions.promote(stage.db)
    assert (stage.state(job_id), stage.job(job_id)["failures"]) == ("ready", 0)  # type: ignore[index]


def test_a_job_without_max_attempts_is_retried_for_ever(stage: Stage) -> None:
    job_id = stage.enqueue(max_attempts=None)
    stage.set(job_id, failures=1_000_000_000)
    assert told(*stage.settle(ending(stage.claim(), RETRY))) == ["retried"]
    assert stage.job(job_id)["failures"] == 1_000_000_000  # type: ignore[index]


@pytest.mark.parametrize("outcome", NOT_SUCCESS, ids=lambda o: o.verb)
def test_an_ending_of_a_lease_asked_to_stop_cancels(stage: Stage, outcome: Outcome) -> None:
    job = held(stage)
    transitions.cancel(stage.db, [job.job_id], actor=ACTOR)
    assert told(*stage.settle(ending(job, outcome))) == ["cancelled"]
    assert stage.events(job.job_id)[-1].actor is None


def test_a_success_counts_on_a_lease_asked_to_stop(stage: Stage) -> None:
    job = held(stage)
    transitions.cancel(stage.db, [job.job_id], actor=ACTOR)
    assert told(*stage.settle(success(job))) == ["succeeded"]


# ---------------------------------------------------------------------------------- released


@pytest.mark.parametrize(
    ("ran", "max_attempts", "interruptions", "state", "counted"),
    [
        (None, 5, 0, "ready", 0),
        (None, 1, 0, "ready", 0),
        (None, 5, 49, "ready", 49),
        (1.0, 5, 0, "ready", 1),
        (1.0, None, 0, "ready", 1),
        (1.0, 5, 48, "ready", 49),
        (1.0, 5, 49, "failed", 50),
        (1.0, None, 49, "failed", 50),
        (1.0, 1, 0, "failed", 1),
    ],
)
def test_a_released_job_goes_back_unless_it_began_too_often(
    stage: Stage,
    ran: float | None,
    max_attempts: int | None,
    interruptions: int,
    state: str,
    counted: int,
) -> None:
    job_id = stage.enqueue(max_attempts=max_attempts)
    stage.set(job_id, interruptions=interruptions)
    job = stage.claim()
    (answer,) = stage.settle(ending(job, outcomes.released(), ran=ran))
    assert answer.state == state
    found = row(stage, job)
    assert (found["interruptions"], found["failures"], found["losses"]) == (counted, 0, 0)
    data = stage.events(job_id)[-1].data
    assert data["began"] is (ran is not None)
    assert data.get("error", {}).get("class") == (
        "django_relay.exceptions.WorkerLost" if state == "failed" else None
    )


def test_a_handler_whose_beginning_a_renewal_wrote_has_begun(stage: Stage) -> None:
    job = held(stage, max_attempts=1)
    transitions.renew(stage.db, [transitions.Held(job.job_id, job.token, 1.0)], lease=60)
    assert told(*stage.settle(ending(job, outcomes.released(), ran=None))) == ["failed"]


# ---------------------------------------------------------------------------------- lost answers


@pytest.mark.parametrize("outcome", [outcomes.succeeded("1"), *NOT_SUCCESS], ids=lambda o: o.verb)
@pytest.mark.parametrize("asked", [False, True], ids=["", "asked to stop"])
def test_an_ending_whose_answer_was_lost_counts_once_and_is_no_refusal(
    stage: Stage, outcome: Outcome, asked: bool
) -> None:
    job = held(stage)
    if asked:
        transitions.cancel(stage.db, [job.job_id], actor=ACTOR)
    settler = stage.connect()
    first = stage.settle(ending(job, outcome), session=settler)
    stage.value("SELECT pg_terminate_backend(%s)", [settler.info.backend_pid])
    before, history = stage.job(job.job_id), stage.events(job.job_id)

    assert stage.settle(ending(job, outcome), session=stage.connect()) == first

    assert (stage.job(job.job_id), stage.events(job.job_id)) == (before, history)


def test_a_lost_answer_is_found_among_later_claims_of_the_job(stage: Stage) -> None:
    first = held(stage)
    stage.settle(ending(first, outcomes.snoozed(0)))
    transitions.promote(stage.db)
    second = stage.claim()
    stage.settle(success(second))
    answers = stage.settle(success(second), ending(first, outcomes.snoozed(0)))
    assert told(*answers) == ["succeeded", "snoozed"]


# ---------------------------------------------------------------------------------- refused


def refusal(stage: Stage, job: Claimed) -> tuple[Settled, dict[str, Any]]:
    """Present a success, which must be refused, and return the answer and its event's data."""
    before = stage.job(job.job_id)
    (answer,) = stage.settle(success(job))
    assert not answer.accepted
    assert stage.job(job.job_id) == before
    event = stage.events(job.job_id)[-1]
    assert (event.kind, event.claim, event.token) == ("refused", job.claim, job.token)
    assert (event.worker, event.data["would_have"]) == (WORKER, "succeed")
    assert (event.data["reason"], event.data.get("late_ms")) == (answer.reason, answer.late_ms)
    return answer, event.data


def test_an_ending_after_the_lease_ran_out_is_refused_as_expired(stage: Stage) -> None:
    job = held(stage, max_attempts=5)
    stage.age_lease(job.job_id, 602)
    answer, _ = refusal(stage, job)
    assert answer.reason == "expired"
    assert answer.late_ms is not None
    assert 2000 < answer.late_ms < 20_000
    assert stage.state(job.job_id) == "running"


def test_a_late_worker_cannot_complete_a_rescued_job(stage: Stage) -> None:
    job = held(stage)
    stage.age_lease(job.job_id, 602)
    transitions.rescue_expired(stage.db)
    answer, _ = refusal(stage, job)
    assert answer.reason == "superseded"
    assert answer.late_ms is not None
    assert 2000 < answer.late_ms < 20_000


def test_an_owner_presumed_dead_is_refused_from_the_rescue_on(stage: Stage) -> None:
    job = held(stage)
    transitions.rescue_child(stage.db, WORKER, begun=[job.token])
    answer, _ = refusal(stage, job)
    assert answer.reason == "superseded"
    assert answer.late_ms is not None
    assert answer.late_ms < 20_000


def test_a_claim_released_for_a_dead_child_cannot_be_ended_by_it(stage: Stage) -> None:
    job = held(stage)
    transitions.rescue_child(stage.db, WORKER, begun=[])
    assert stage.kinds(job.job_id)[-1] == "released"
    assert refusal(stage, job)[0].reason == "superseded"


def test_a_late_worker_cannot_touch_the_next_owner(stage: Stage) -> None:
    late = held(stage)
    stage.age_lease(late.job_id, 602)
    transitions.rescue_expired(stage.db)
    owner = stage.claim(alone=True, worker="host-2/1")
    lease = stage.lease(late.job_id)
    assert refusal(stage, late)[0].reason == "superseded"
    assert stage.lease(late.job_id) == lease
    assert stage.settle(success(owner))[0].accepted


def test_an_ending_after_a_forced_cancel_is_refused_as_cancelled(stage: Stage) -> None:
    job = held(stage)
    transitions.cancel(stage.db, [job.job_id], actor=ACTOR, force=True)
    assert refusal(stage, job)[0] == Settled(False, reason="cancelled", late_ms=None)


def test_an_ending_of_a_pruned_job_is_gone_without_an_event_or_an_error(stage: Stage) -> None:
    job, other = held(stage), held(stage)
    stage.db.execute("DELETE FROM django_relay_job WHERE id = %s", [job.job_id])
    stage.db.execute("DELETE FROM django_relay_lease WHERE job_id = %s", [job.job_id])
    stage.db.execute("DELETE FROM django_relay_event WHERE job_id = %s", [job.job_id])
    answers = stage.settle(success(job), success(other))
    assert told(*answers) == ["refused: gone", "succeeded"]
    assert stage.events(job.job_id) == []


@pytest.mark.parametrize("commit", [False, True])
def test_a_refusal_waits_for_a_prune_and_leaves_no_event_behind(stage: Stage, commit: bool) -> None:
    job = held(stage)
    transitions.cancel(stage.db, [job.job_id], actor=ACTOR, force=True)
    pruner, settler = stage.connect(autocommit=False), stage.connect()
    assert transitions.prune(pruner, older_than=timedelta(0)) == 1
    future = stage.start(stage.settle, success(job), session=settler)
    stage.wait_blocked(settler, by=pruner)
    pruner.commit() if commit else pruner.rollback()
    assert told(*future.result()) == ["refused: gone" if commit else "refused: cancelled"]
    assert stage.kinds(job.job_id)[-1:] == ([] if commit else ["refused"])


def test_a_refusal_that_slipped_in_between_is_swept_with_its_job(stage: Stage) -> None:
    """One that read the job before the prune, and committed after the prune's snapshot."""
    job = held(stage)
    stage.settle(success(job))
    refused = "INSERT INTO django_relay_event (job_id, kind, at) VALUES (%s, 'refused', now())"
    slips = iter([refused])

    class Pruner:
        @contextmanager
        def cursor(self) -> Iterator[Any]:
            with stage.db.cursor() as cursor:
                yield cursor
                for statement in slips:
                    stage.db.execute(statement, [job.job_id])

    assert transitions.prune(Pruner(), older_than=timedelta(0)) == 1
    assert stage.events(job.job_id) == []


def test_a_job_that_a_hand_moved_is_left_where_it_is(stage: Stage) -> None:
    job = held(stage)
    stage.set(job.job_id, state=State.READY)
    assert refusal(stage, job)[0].reason == "superseded"
    assert stage.lease(job.job_id) is None
