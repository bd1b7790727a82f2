"""A row that a project's own trigger or index refuses stops none of those behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from django_relay import outcomes, transitions, wakeup
from django_relay.transitions import Held, Quarantine, quarantine
from tests.refusing import Refuse

from .stage import ACTOR, WORKER, Stage, ending, success, told

DUE = "UPDATE django_relay_job SET state = 'scheduled', run_after = now() - interval '1 minute'"
LATE = "UPDATE django_relay_job SET start_before = now() - interval '1 minute'"


def _lose(stage: Stage) -> None:
    for job in stage.claim_up_to(9).jobs:
        stage.end_lease(job.job_id)


def _unlease(stage: Stage) -> None:
    stage.claim_up_to(9)
    stage.db.execute("DELETE FROM django_relay_lease")


def _orphan(stage: Stage) -> None:
    stage.claim_up_to(9)
    stage.db.execute("UPDATE django_relay_job SET state = 'ready'")


def _suspect(stage: Stage) -> None:
    stage.db.execute("UPDATE django_relay_job SET losses = 1")


def _claim(stage: Stage, rows: Quarantine, **changes: Any) -> list[int]:
    """Claim until nothing comes, as a child does that is told to look again."""
    taken: list[int] = []
    while True:
        claim = stage.claim_up_to(2, quarantine=rows, **changes)
        taken += [job.job_id for job in claim.jobs]
        if not (claim.jobs or claim.unseen):
            return taken


def _ids(jobs: list[transitions.Rescued]) -> list[int]:
    return [job.job_id for job in jobs]


Before = Callable[[Stage], object]
Act = Callable[[Stage, Quarantine], object]

#: What happened to five jobs, what is refused to one of them, what moves them, and what they are
#: afterwards.
BATCHES: dict[str, tuple[Before, str, Act, str]] = {
    "claim": (lambda stage: None, "NEW.state = 'running'", _claim, "running"),
    "claim alone": (
        _suspect, "NEW.state = 'running'", lambda s, q: _claim(s, q, alone=True), "running",
    ),
    "promote": (
        lambda stage: stage.db.execute(DUE),
        "NEW.state = 'ready'", lambda s, q: transitions.promote(s.db, q), "ready",
    ),
    "expire": (
        lambda stage: stage.db.execute(LATE),
        "NEW.state = 'failed'", lambda s, q: transitions.expire(s.db, q), "failed",
    ),
    "rescue": (
        _lose, "NEW.state = 'ready'", lambda s, q: transitions.rescue_expired(s.db, q), "ready",
    ),
    "burial": (
        _lose, "NEW.state = 'ready'",
        lambda s, q: transitions.rescue_child(s.db, WORKER, begun=[], quarantine=q), "ready",
    ),
    "mend": (_unlease, "NEW.state = 'ready'", lambda s, q: transitions.mend(s.db, q), "ready"),
}  # fmt: skip


@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize("batch", BATCHES)
def test_a_job_that_a_trigger_refuses_is_passed_over(
    batch: str, place: int, stage: Stage, refuse: Refuse
) -> None:
    jobs = [stage.enqueue() for _ in range(5)]
    before, refused, act, after = BATCHES[batch]
    before(stage)
    was = stage.state(jobs[0])
    bad = jobs.pop(place)
    refuse(f"NEW.id = {bad} AND {refused}")
    rows = Quarantine()
    act(stage, rows)
    assert stage.state(bad) == was
    assert [stage.state(job) for job in jobs] == [after] * 4
    (notice,) = rows.notices()
    assert notice.job_id == bad
    assert "not this one" in str(notice.error)
    # It is not even tried: without the trigger nothing happens to it either, for now.
    stage.db.execute("DROP FUNCTION refuse CASCADE")
    act(stage, rows)
    assert stage.state(bad) == was
    act(stage, Quarantine())
    assert stage.state(bad) == after


def test_a_lease_that_a_trigger_will_not_have_deleted_keeps_no_other(
    stage: Stage, refuse: Refuse
) -> None:
    jobs = [stage.enqueue() for _ in range(3)]
    _orphan(stage)
    refuse(f"OLD.job_id = {jobs[1]}", table="lease", doing="DELETE")
    _, orphans = transitions.mend(stage.db)
    assert orphans == [jobs[0], jobs[2]]


def test_a_lease_that_a_trigger_will_not_have_renewed_keeps_no_other(
    stage: Stage, refuse: Refuse
) -> None:
    for _ in range(5):
        stage.enqueue()
    held = stage.claim_up_to(5).jobs
    refuse(f"NEW.job_id = {held[1].job_id}", table="lease")
    answer = transitions.renew(stage.db, [Held(j.job_id, j.token, 1.0) for j in held], lease=900)
    assert answer.kept == {job.token for job in held} - {held[1].token}
    assert answer.gone == frozenset()
    assert "not this one" in str(answer.refusal)


def test_an_index_that_lets_one_job_of_a_kind_run_holds_up_no_other_kind(stage: Stage) -> None:
    """Somebody's own limit: whoever is refused by it waits, and nobody else."""
    stage.db.execute(
        "CREATE UNIQUE INDEX one_each ON django_relay_job (task) WHERE state = 'running'"
    )
    try:
        for name in "aabbc":
            stage.enqueue(task=f"shop.tasks.{name}")
        jobs = stage.claim_up_to(5).jobs
        assert sorted(job.task[-1] for job in jobs) == ["a", "b", "c"]
    finally:
        stage.db.execute("DROP INDEX one_each")


def test_what_is_refused_is_due_in_vain(stage: Stage, refuse: Refuse) -> None:
    """Or maintenance would look for it twenty times a second."""
    bad = stage.enqueue()
    stage.db.execute(DUE)
    refuse("NEW.state = 'ready'")
    rows = Quarantine()

    def due() -> bool:
        return (wakeup.probe(stage.db, None, rows).next_due or 0) < 0

    assert due()
    assert transitions.promote(stage.db, rows) == []
    assert not due()
    assert stage.state(bad) == "scheduled"


def test_quarantine_ends(stage: Stage, refuse: Refuse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "KEEP", 0.0)
    job_id = stage.enqueue()
    refuse("NEW.state = 'running'")
    rows = Quarantine()
    assert stage.claim_up_to(1, quarantine=rows).jobs == ()
    stage.db.execute("DROP FUNCTION refuse CASCADE")
    assert [job.job_id for job in stage.claim_up_to(1, quarantine=rows).jobs] == [job_id]


def test_quarantine_has_room_for_so_many(
    stage: Stage, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "MOST", 2)
    jobs = [stage.enqueue() for _ in range(3)]
    refuse("NEW.state = 'running'")
    rows = Quarantine()
    stage.claim_up_to(3, quarantine=rows)
    assert rows.among()[1] == {"among": jobs[1:]}


def test_a_claim_that_breaks_off_half_way_is_taken_in_hand(stage: Stage, refuse: Refuse) -> None:
    """What has committed is ours, whatever becomes of the rest."""
    jobs = [stage.enqueue() for _ in range(4)]
    refuse(f"NEW.id = {jobs[1]}")
    refuse(f"NEW.id = {jobs[2]} AND pg_terminate_backend(pg_backend_pid())")
    session = stage.connect()
    claim = stage.claim_up_to(4, session)
    assert [job.job_id for job in claim.jobs] == jobs[:1]
    assert claim.unseen
    with pytest.raises(psycopg.OperationalError):
        stage.claim_up_to(4, session)


def test_a_refusal_that_cannot_be_written_down_is_over_all_the_same(
    stage: Stage, refuse: Refuse
) -> None:
    stage.enqueue()
    stage.enqueue()
    late, other = stage.claim_up_to(2).jobs
    for job in (late, other):
        transitions.cancel(stage.db, [job.job_id], actor=ACTOR, force=True)
    refuse(f"NEW.kind = 'refused' AND NEW.job_id = {late.job_id}", table="event", doing="INSERT")
    answers = stage.settle(success(late), success(other))
    assert told(*answers) == ["refused: unstorable", "refused: cancelled"]


def test_a_release_that_is_refused_is_not_made_a_failure(stage: Stage, refuse: Refuse) -> None:
    job_id = stage.enqueue()
    held = stage.claim()
    refuse("NEW.state = 'ready'")
    answers = stage.settle(ending(held, outcomes.released(), ran=None))
    assert told(*answers) == ["refused: unstorable"]
    assert stage.state(job_id) == "running"
    assert stage.kinds(job_id) == ["enqueued", "claimed"]


def test_a_success_counts_that_was_refused_for_a_moment_only(stage: Stage, refuse: Refuse) -> None:
    """Somebody puts the row in order between the refusal and our own attempt to do so."""
    stage.enqueue()
    held = stage.claim()
    stage.db.execute("CREATE SEQUENCE refusals")
    try:
        refuse("NEW.state = 'successful' AND nextval('refusals') = 1")
        assert told(*stage.settle(success(held))) == ["succeeded"]
    finally:
        stage.db.execute("DROP SEQUENCE refusals CASCADE")


def test_an_ending_whose_lease_cannot_even_be_ended_is_presented_again(
    stage: Stage, refuse: Refuse
) -> None:
    stage.enqueue()
    held = stage.claim()
    refuse("true")
    refuse("true", table="lease")
    assert transitions.settle(stage.db, [success(held)]) == {}
