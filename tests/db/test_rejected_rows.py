"""A row that a project's own trigger or index rejects stops none of those behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from django_relay import transitions, wakeup
from django_relay.transitions import Held, Quarantine, quarantine
from tests.rejecting import SKIP, Reject

from .stage import WORKER, Stage, success, told

RAISE_OLD = "RAISE EXCEPTION 'not this one'"

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


Before = Callable[[Stage], object]
Act = Callable[[Stage, Quarantine], object]

#: What happened to five jobs, what is rejected of one of them, what moves them, and what they are
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
def test_a_job_that_a_trigger_rejects_is_passed_over(
    batch: str, place: int, stage: Stage, reject: Reject
) -> None:
    jobs = [stage.enqueue() for _ in range(5)]
    before, rejected, act, after = BATCHES[batch]
    before(stage)
    was = stage.state(jobs[0])
    bad = jobs.pop(place)
    reject(f"NEW.id = {bad} AND {rejected}")
    rows = Quarantine()
    act(stage, rows)
    assert stage.state(bad) == was
    assert [stage.state(job) for job in jobs] == [after] * 4
    (notice,) = rows.notices()
    assert notice.job_id == bad
    assert "RaiseException, PL/pgSQL function reject_0() line 1 at RAISE" in notice.words
    assert "not this one" not in notice.words  # it holds the row
    # It is not even tried: without the trigger nothing happens to it either, for now.
    reject.no_more()
    act(stage, rows)
    assert stage.state(bad) == was
    act(stage, Quarantine())
    assert stage.state(bad) == after


@pytest.mark.parametrize("batch", BATCHES)
def test_a_job_that_a_trigger_skips_is_passed_over(
    batch: str, stage: Stage, reject: Reject
) -> None:
    jobs = [stage.enqueue() for _ in range(5)]
    before, rejected, act, after = BATCHES[batch]
    before(stage)
    bad = jobs.pop(0)
    reject(f"NEW.id = {bad} AND {rejected}", does=SKIP)
    rows = Quarantine()
    act(stage, rows)
    assert [stage.state(job) for job in jobs] == [after] * 4
    assert [notice.job_id for notice in rows.notices()] == [bad]
    act(stage, rows)
    assert rows.notices() == []


@pytest.mark.parametrize("code", ["42501", "42883", "XX000", "0A000", "23514", "22012", "P0001"])
@pytest.mark.parametrize("table", ["job", "lease", "event"])
def test_whatever_code_a_trigger_raises_it_is_about_the_row(
    table: str, code: str, stage: Stage, reject: Reject
) -> None:
    bad, good = stage.enqueue(), stage.enqueue()
    column, doing = ("id", "UPDATE") if table == "job" else ("job_id", "INSERT")
    does = f"RAISE EXCEPTION 'no' USING ERRCODE = '{code}'"
    reject(f"NEW.{column} = {bad}", table, doing=doing, does=does)
    assert [job.job_id for job in stage.claim_up_to(2).jobs] == [good]


@pytest.mark.parametrize("code", ["40001", "40P01", "55P03", "57014"])
def test_what_passes_by_itself_is_not_taken_for_the_rows_fault(
    code: str, stage: Stage, reject: Reject
) -> None:
    stage.enqueue()
    held = stage.claim()
    does = f"RAISE EXCEPTION 'no' USING ERRCODE = '{code}'"
    reject("NEW.state = 'successful'", does=does)
    with pytest.raises(psycopg.Error):
        stage.settle(success(held))
    reject.no_more()
    assert told(*stage.settle(success(held))) == ["succeeded"]


def test_a_claim_that_is_rejected_although_there_is_nothing_to_claim_is_an_error(
    stage: Stage,
) -> None:
    """Or a child would look again at once, for ever."""
    stage.db.execute(
        "CREATE FUNCTION frozen() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'frozen'; END $$;"
        "CREATE TRIGGER frozen BEFORE UPDATE ON django_relay_job EXECUTE FUNCTION frozen()"
    )
    try:
        with pytest.raises(psycopg.errors.RaiseException):
            stage.claim_up_to(1)
    finally:
        stage.db.execute("DROP FUNCTION frozen CASCADE")


def test_a_lease_in_the_way_holds_up_its_own_job_only(stage: Stage, reject: Reject) -> None:
    bad, good = stage.enqueue(), stage.enqueue()
    stage.claim()
    stage.db.execute("UPDATE django_relay_job SET state = 'ready'")
    rows = Quarantine()
    first = stage.claim_up_to(1, quarantine=rows)
    assert (first.jobs, first.unseen) == ((), True)
    assert [job.job_id for job in stage.claim_up_to(1, quarantine=rows).jobs] == [good]
    assert stage.state(bad) == "ready"


def test_what_is_in_quarantine_is_neither_a_head_nor_left_nor_suspect(
    stage: Stage, reject: Reject
) -> None:
    urgent, suspect = stage.enqueue(priority=9), stage.enqueue(priority=8)
    stage.set(suspect, losses=1)
    reject(f"NEW.id IN ({urgent}, {suspect})")
    rows = Quarantine()
    while stage.claim_up_to(1, quarantine=rows).unseen:
        pass
    assert stage.claim_up_to(1, quarantine=rows).suspects
    while stage.claim_up_to(1, quarantine=rows, alone=True).unseen:
        pass
    nothing = stage.claim_up_to(1, quarantine=rows)
    assert (nothing.left, nothing.suspects) == (False, False)
    usual = stage.enqueue()
    assert [job.job_id for job in stage.claim_up_to(1, quarantine=rows).jobs] == [usual]


def test_a_lease_that_a_trigger_will_not_have_deleted_keeps_no_other(
    stage: Stage, reject: Reject
) -> None:
    jobs = [stage.enqueue() for _ in range(3)]
    _orphan(stage)
    reject(f"OLD.job_id = {jobs[1]}", "lease", doing="DELETE", does=RAISE_OLD)
    _, orphans = transitions.mend(stage.db)
    assert orphans == [jobs[0], jobs[2]]


def test_a_lease_that_a_trigger_will_not_have_renewed_keeps_no_other(
    stage: Stage, reject: Reject
) -> None:
    for _ in range(5):
        stage.enqueue()
    held = stage.claim_up_to(5).jobs
    reject(f"NEW.job_id = {held[1].job_id}", "lease")
    answer = transitions.renew(stage.db, [Held(j.job_id, j.token, 1.0) for j in held], lease=900)
    assert answer.kept == {job.token for job in held} - {held[1].token}
    assert answer.gone == frozenset()
    assert answer.rejection == "RaiseException, PL/pgSQL function reject_0() line 1 at RAISE"


def test_an_index_that_lets_one_job_of_a_kind_run_holds_up_no_other_kind(stage: Stage) -> None:
    """Somebody's own limit: whoever is rejected by it waits, and nobody else."""
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


def test_what_is_rejected_is_due_in_vain(stage: Stage, reject: Reject) -> None:
    """Or maintenance would look for it twenty times a second."""
    bad = stage.enqueue()
    stage.db.execute(DUE)
    reject("NEW.state = 'ready'")
    rows = Quarantine()

    def due() -> bool:
        return (wakeup.probe(stage.db, None, rows).next_due or 0) < 0

    assert due()
    assert transitions.promote(stage.db, rows) == []
    assert not due()
    assert stage.state(bad) == "scheduled"


def test_an_end_or_a_start_that_is_rejected_is_due_in_vain(stage: Stage, reject: Reject) -> None:
    lost, late = stage.enqueue(), stage.enqueue()
    stage.end_lease(stage.claim().job_id)
    stage.db.execute(f"{LATE} WHERE id = {late}")
    reject(f"NEW.id IN ({lost}, {late})")
    rows = Quarantine()
    before = wakeup.probe(stage.db, None, rows)
    assert before.expiring
    assert before.next_end is not None
    assert before.next_end < 0
    transitions.rescue_expired(stage.db, rows)
    transitions.expire(stage.db, rows)
    after = wakeup.probe(stage.db, None, rows)
    assert (after.next_end, after.expiring) == (None, False)


def test_quarantine_ends(stage: Stage, reject: Reject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "FIRST", 0.0)
    job_id = stage.enqueue()
    reject("NEW.state = 'running'")
    rows = Quarantine()
    assert stage.claim_up_to(1, quarantine=rows).jobs == ()
    reject.no_more()
    assert [job.job_id for job in stage.claim_up_to(1, quarantine=rows).jobs] == [job_id]


def test_quarantine_is_twice_as_long_each_time(stage: Stage) -> None:
    """Or with very many jobs in it, the first would be tried again before the last ever is."""
    rows = Quarantine()
    lengths = []
    for _ in range(7):
        rows.skip(1)
        until, seconds = rows._held[1]
        lengths.append(seconds)
        rows._held[1] = until - seconds, seconds
    assert lengths == [10, 20, 40, 80, 160, 300, 300]
    until, seconds = rows._held[1]
    rows._held[1] = until - 2 * seconds, seconds
    assert rows.among()[1] == {}
    assert not rows._held, "it would be walked through for ever"
    rows.skip(1)
    assert rows._held[1][1] == 10


def test_quarantine_has_room_for_so_many(
    stage: Stage, reject: Reject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "MOST", 2)
    jobs = [stage.enqueue() for _ in range(3)]
    reject("NEW.state = 'running'")
    rows = Quarantine()
    stage.claim_up_to(3, quarantine=rows)
    assert rows.among()[1] == {"among": jobs[1:]}


def test_a_claim_that_breaks_off_half_way_is_taken_in_hand(stage: Stage, reject: Reject) -> None:
    """What has committed is ours, whatever becomes of the rest."""
    jobs = [stage.enqueue() for _ in range(4)]
    reject(f"NEW.id = {jobs[1]}")
    reject(f"NEW.id = {jobs[2]} AND pg_terminate_backend(pg_backend_pid())")
    session = stage.connect()
    claim = stage.claim_up_to(4, session)
    assert [job.job_id for job in claim.jobs] == jobs[:1]
    assert claim.unseen
    with pytest.raises(psycopg.OperationalError):
        stage.claim_up_to(4, session)
