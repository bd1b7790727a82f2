"""What becomes of an ending that a project's own trigger rejects, or the refusal of which."""

from __future__ import annotations

from django_relay import outcomes, transitions
from django_relay.transitions.renew import forfeit
from tests.rejecting import Reject

from .stage import ACTOR, Stage, ending, success, told


def test_a_refusal_that_cannot_be_written_down_is_over_all_the_same(
    stage: Stage, reject: Reject
) -> None:
    stage.enqueue()
    stage.enqueue()
    late, other = stage.claim_up_to(2).jobs
    for job in (late, other):
        transitions.cancel(stage.db, [job.job_id], actor=ACTOR, force=True)
    reject(f"NEW.kind = 'refused' AND NEW.job_id = {late.job_id}", "event", doing="INSERT")
    answers = stage.settle(success(late), success(other))
    assert told(*answers) == ["refused: unstorable", "refused: cancelled"]


def test_a_release_that_is_rejected_is_not_made_a_failure(stage: Stage, reject: Reject) -> None:
    job_id = stage.enqueue()
    held = stage.claim()
    reject("NEW.state = 'ready'")
    answers = stage.settle(ending(held, outcomes.released(), ran=None))
    assert told(*answers) == ["refused: unstorable"]
    assert stage.state(job_id) == "running"
    assert stage.kinds(job_id) == ["enqueued", "claimed"]


def test_a_rejected_success_is_not_made_again_at_once(stage: Stage, reject: Reject) -> None:
    job_id = stage.enqueue()
    held = stage.claim()
    reject("NEW.state = 'successful'")
    assert told(*stage.settle(success(held))) == ["retried"]
    wait = "SELECT run_after - clock_timestamp() > interval '4 s' FROM django_relay_job"
    assert stage.value(wait)
    assert stage.state(job_id) == "scheduled"


def test_only_its_own_lease_is_ended_with_an_ending_that_is_rejected(stage: Stage) -> None:
    job_id = stage.enqueue()
    stage.claim()
    assert not forfeit(stage.db, job_id, "00000000-0000-4000-8000-000000000000")
    assert stage.value("SELECT expires_at > clock_timestamp() FROM django_relay_lease")


def test_a_success_counts_that_was_rejected_for_a_moment_only(stage: Stage, reject: Reject) -> None:
    """Somebody puts the row in order between the refusal and our own attempt to do so."""
    stage.enqueue()
    held = stage.claim()
    stage.db.execute("CREATE SEQUENCE refusals")
    try:
        reject("NEW.state = 'successful' AND nextval('refusals') = 1")
        assert told(*stage.settle(success(held))) == ["succeeded"]
    finally:
        stage.db.execute("DROP SEQUENCE refusals CASCADE")


def test_an_ending_whose_lease_cannot_even_be_ended_is_presented_again(
    stage: Stage, reject: Reject
) -> None:
    stage.enqueue()
    held = stage.claim()
    reject("true")
    reject("true", "lease")
    assert transitions.settle(stage.db, [success(held)]) == {}
