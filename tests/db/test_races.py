"""The races of two sessions, each brought about by real lock waits and none by luck.

An ending, a renewal, a rescue, a claim and a cancel meet over one lease in every order that could
break the ownership. The letters are those of the list of races in the design: eight claimers (I10)
are in test_claim, everything at once (I11) is in test_storm, cancels (I12) are in test_cancel, and
stricter isolation (I9) is in test_isolation.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from django_relay import transitions
from django_relay.transitions import Claimed, Held

from .stage import ACTOR, WORKER, Session, Stage, success, told

LOCK = "SELECT 1 FROM django_relay_lease WHERE job_id = %s FOR UPDATE"


def held(stage: Stage, *, lease: float = 600.0, **changes: Any) -> Claimed:
    stage.enqueue(**changes)
    return stage.claim(lease=lease)


def renew(session: Session, *jobs: Claimed) -> transitions.Renewal:
    return transitions.renew(session, [Held(job.job_id, job.token, 1.0) for job in jobs], lease=600)


def put_off(stage: Stage, job: Claimed) -> None:
    """Present a success of ``job``, whose lease somebody has locked: nothing is said about it."""
    assert transitions.settle(stage.db, [success(job)]) == {}


# ------------------------------------------------------------------ endings, the end (I1, I5)


def test_an_ending_that_was_put_off_past_its_end_is_refused(stage: Stage) -> None:
    job = held(stage, lease=0.3)
    holder = stage.connect(autocommit=False)
    holder.execute(LOCK, [job.job_id])
    put_off(stage, job)
    stage.wait_expired(job.job_id)
    holder.rollback()
    assert told(*stage.settle(success(job))) == ["refused: expired"]
    assert stage.state(job.job_id) == "running"


def test_an_ending_that_was_put_off_and_is_still_in_time_is_accepted(stage: Stage) -> None:
    job = held(stage)
    holder = stage.connect(autocommit=False)
    holder.execute(LOCK, [job.job_id])
    put_off(stage, job)
    holder.rollback()
    assert told(*stage.settle(success(job))) == ["succeeded"]


def test_an_ending_in_a_transaction_begun_before_the_end_is_refused(stage: Stage) -> None:
    job = held(stage)
    early = stage.connect(autocommit=False)
    early.execute("SELECT now()")
    stage.end_lease(job.job_id)
    assert told(*stage.settle(success(job), session=early)) == ["refused: expired"]
    early.commit()
    assert stage.kinds(job.job_id)[-1] == "refused"


# ------------------------------------------------------------------ rescues (I2, I3, I4, I7)


def test_an_ending_that_met_a_rescue_is_refused(stage: Stage) -> None:
    job = held(stage)
    rescuer = stage.connect(autocommit=False)
    assert len(transitions.rescue_child(rescuer, WORKER, begun=[job.token])) == 1
    put_off(stage, job)
    rescuer.commit()
    assert told(*stage.settle(success(job))) == ["refused: superseded"]
    assert stage.state(job.job_id) == "ready"


def test_an_ending_that_met_a_rescue_that_failed_is_accepted(stage: Stage) -> None:
    job = held(stage)
    rescuer = stage.connect(autocommit=False)
    assert len(transitions.rescue_child(rescuer, WORKER, begun=[job.token])) == 1
    put_off(stage, job)
    rescuer.rollback()
    assert told(*stage.settle(success(job))) == ["succeeded"]
    stage.check_history(job.job_id)


@pytest.mark.parametrize("dead", [False, True], ids=["lease ran out", "child died"])
def test_a_rescue_passes_by_an_uncommitted_ending(stage: Stage, dead: bool) -> None:
    job = held(stage, lease=0.3)
    settler = stage.connect(autocommit=False)
    assert told(*stage.settle(success(job), session=settler)) == ["succeeded"]
    stage.wait_expired(job.job_id)

    def rescue() -> list[Any]:
        if dead:
            return transitions.rescue_child(stage.db, WORKER, begun=[job.token])
        return transitions.rescue_expired(stage.db)

    assert rescue() == []
    settler.commit()
    assert rescue() == []
    assert stage.kinds(job.job_id) == ["enqueued", "claimed", "succeeded"]


def test_a_rescue_takes_what_an_ending_rolled_back(stage: Stage) -> None:
    job = held(stage, lease=0.3)
    settler = stage.connect(autocommit=False)
    stage.settle(success(job), session=settler)
    stage.wait_expired(job.job_id)
    assert transitions.rescue_expired(stage.db) == []
    settler.rollback()
    assert [rescued.state for rescued in transitions.rescue_expired(stage.db)] == ["ready"]
    assert told(*stage.settle(success(job))) == ["refused: superseded"]


def test_an_old_ending_and_renewal_do_nothing_to_the_next_owner(stage: Stage) -> None:
    old = held(stage)
    stage.age_lease(old.job_id, 3600)
    transitions.rescue_expired(stage.db)
    new = stage.claim(alone=True, worker="host-2-def/1")
    lease = stage.lease(new.job_id)
    assert renew(stage.db, old).gone == {old.token}
    assert told(*stage.settle(success(old, '"old"'))) == ["refused: superseded"]
    assert stage.lease(new.job_id) == lease
    assert told(*stage.settle(success(new, '"new"'))) == ["succeeded"]
    assert told(*stage.settle(success(old, '"old"'))) == ["refused: superseded"]
    assert (stage.job(new.job_id) or {})["result"] == "new"


def test_two_rescuers_share_two_thousand_leases_without_taking_one_twice(stage: Stage) -> None:
    stage.fill(2000)
    assert len(stage.claim_up_to(2000, lease=0.0).jobs) == 2000

    def rescue(session: Session) -> list[int]:
        taken: list[int] = []
        while batch := transitions.rescue_expired(session):
            taken += [rescued.job_id for rescued in batch]
        return taken

    first, second = (stage.start(rescue, stage.connect()) for _ in range(2))
    taken = first.result() + second.result() + rescue(stage.db)
    assert len(taken) == len(set(taken)) == 2000
    counts = (
        "SELECT count(*), count(DISTINCT job_id) FROM django_relay_event WHERE kind = 'rescued'"
    )
    assert stage.all(counts) == [(2000, 2000)]


# ------------------------------------------------------------------ renewals (I6)


def test_a_renewal_passes_by_a_locked_lease_and_says_neither_kept_nor_gone(stage: Stage) -> None:
    locked, free = held(stage), held(stage)
    holder = stage.connect(autocommit=False)
    holder.execute(LOCK, [locked.job_id])
    answer = renew(stage.db, locked, free)
    assert (answer.kept, answer.gone) == ({free.token}, frozenset())
    holder.rollback()
    assert renew(stage.db, locked).kept == {locked.token}


def test_a_renewal_cannot_revive_a_lease_that_ran_out(stage: Stage) -> None:
    job = held(stage)
    early = stage.connect(autocommit=False)
    early.execute("SELECT now()")
    stage.end_lease(job.job_id)
    before = stage.lease(job.job_id)
    assert renew(early, job).gone == {job.token}
    early.commit()
    assert stage.lease(job.job_id) == before


def test_a_second_renewal_does_not_move_the_beginning(stage: Stage) -> None:
    job = held(stage)
    begun = "SELECT begun_at FROM django_relay_lease"
    for ran in (60.0, 1.0):
        transitions.renew(stage.db, [Held(job.job_id, job.token, ran)], lease=600)
    assert stage.value(begun) < stage.value("SELECT clock_timestamp() - interval '50 seconds'")


def test_a_renewal_keeps_no_lease_of_a_job_that_a_hand_moved(stage: Stage) -> None:
    job = held(stage)
    stage.set(job.job_id, state="ready")
    answer = renew(stage.db, job)
    assert (answer.kept, answer.gone) == (frozenset(), {job.token})


def test_a_renewal_learns_that_its_lease_was_taken_or_asked_to_stop(stage: Stage) -> None:
    asked, taken, kept = held(stage), held(stage), held(stage)
    transitions.cancel(stage.db, [asked.job_id], actor=ACTOR)
    transitions.cancel(stage.db, [taken.job_id], actor=ACTOR, force=True)
    answer = renew(stage.db, asked, taken, kept)
    assert (answer.kept, answer.stop) == ({asked.token, kept.token}, {asked.token})
    assert answer.gone == {taken.token}


def test_a_renewal_never_goes_beyond_the_deadline_and_one_lease(stage: Stage) -> None:
    job = held(stage)
    for _ in range(2):
        report = [Held(job.job_id, job.token, 7.0, budget=10.0)]
        assert transitions.renew(stage.db, report, lease=30).kept == {job.token}
    lease = stage.lease(job.job_id)
    assert lease is not None
    assert (lease["deadline"] - lease["begun_at"]).total_seconds() == pytest.approx(10, abs=0.01)
    left = "SELECT EXTRACT(EPOCH FROM expires_at - deadline)::float8 FROM django_relay_lease"
    assert stage.value(left) < 30
    stage.age_lease(job.job_id, 20)  # past its deadline, and not yet past the lease after it
    assert renew(stage.db, job).kept == {job.token}
    assert stage.value(left) == 600


# ------------------------------------------------------------------ lock order (I8)


def test_an_ending_waits_for_no_lease_and_the_others_of_its_batch_are_accepted(
    stage: Stage,
) -> None:
    stage.fill(3)
    locked, *free = stage.claim_up_to(3).jobs
    holder = stage.connect(autocommit=False)
    holder.execute(LOCK, [locked.job_id])
    stage.db.execute("SET lock_timeout = '1s'")
    answers = transitions.settle(stage.db, [success(job) for job in (locked, *free)])
    assert set(answers) == {job.token for job in free}
    holder.rollback()
    assert told(*stage.settle(success(locked))) == ["succeeded"]


@pytest.mark.parametrize("force", [False, True])
def test_a_cancel_locks_leases_in_job_order_however_it_is_asked(stage: Stage, force: bool) -> None:
    first, second, third = in_reverse(stage)
    holder, canceller = stage.connect(autocommit=False), unindexed(stage)
    holder.execute(LOCK, [second.job_id])
    ids = [job.job_id for job in (third, second, first)]
    future = stage.start(transitions.cancel, canceller, ids, actor=ACTOR, force=force)
    stage.wait_blocked(canceller, by=holder)
    assert stage.unlocked("lease", "job_id") == [third.job_id]
    holder.rollback()
    assert set(future.result()) == set(ids)


def unindexed(stage: Stage) -> Session:
    """A session that reads tables as they lie, or the index would put the leases in order."""
    session = stage.connect(autocommit=False)
    session.execute("SET enable_indexscan = off; SET enable_bitmapscan = off")
    return session


def in_reverse(stage: Stage) -> list[Claimed]:
    """Three running jobs in the order of their ids, which lie in the tables the other way, as do
    their leases."""
    stage.fill(3)
    jobs = stage.claim_up_to(3).jobs
    rows = stage.all("DELETE FROM django_relay_lease RETURNING django_relay_lease.*")
    marks = ", ".join(["%s"] * len(rows[0]))
    for row in sorted(rows, reverse=True):
        stage.db.execute(f"INSERT INTO django_relay_lease VALUES ({marks})", row)
        stage.set(row[0], priority=0)  # which writes the job's row anew, behind the others
    return list(jobs)


@pytest.mark.parametrize("seed", [1, 2])
def test_overlapping_endings_and_renewals_in_any_order_do_not_deadlock(
    stage: Stage, seed: int
) -> None:
    stage.fill(3000)  # so many that leases are looked up in the order asked for, not scanned
    jobs = stage.claim_up_to(3000).jobs[:60]
    stage.db.execute("ANALYZE django_relay_lease")

    def play(seed: int, session: Session) -> None:
        dice = random.Random(seed)
        for _ in range(100):
            some = dice.sample(jobs, 20)
            if dice.random() < 0.3:
                renew(session, *some)
            else:
                transitions.settle(session, [success(job) for job in some])
            session.rollback()

    players = [stage.start(play, 10 * seed + n, stage.connect(autocommit=False)) for n in range(2)]
    for player in players:
        player.result()  # raises DeadlockDetected
