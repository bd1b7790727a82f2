"""Claims: exactly as many as asked for, the right ones, and never one twice."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from django_relay import outcomes, transitions
from django_relay.transitions import Claim

from .stage import Session, Stage, ending, success, told

CLAIMED = "SELECT count(*), count(DISTINCT token) FROM django_relay_event WHERE kind = 'claimed'"

PAUSING = """
CREATE FUNCTION pausing.statement_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN pg_catalog.statement_timestamp(); END $$
"""


def ids(claim: Claim) -> list[int]:
    return [job.job_id for job in claim.jobs]


# ------------------------------------------------------------------ exactly as many as asked for


@pytest.fixture
def stale(stage: Stage) -> Iterator[Stage]:
    """Statistics of one job where there are eighty, as between two runs of autovacuum."""
    stage.db.execute("ALTER TABLE django_relay_job SET (autovacuum_enabled = false)")
    stage.db.execute("TRUNCATE django_relay_job, django_relay_lease, django_relay_event")
    stage.enqueue()
    stage.db.execute("ANALYZE django_relay_job")
    stage.fill(79)
    yield stage
    stage.db.execute("ALTER TABLE django_relay_job RESET (autovacuum_enabled)")


@pytest.mark.parametrize("queues", [None, ["default"], ["none", "default", "other"]])
@pytest.mark.parametrize("bounded", [True, False])
def test_a_claim_locks_and_leases_exactly_as_many_as_asked_for_with_stale_statistics(
    stale: Stage, queues: list[str] | None, bounded: bool
) -> None:
    claimer = stale.connect(autocommit=False)
    taken = ids(stale.claim_up_to(5, claimer, queues=queues, bounded=bounded))
    assert len(taken) == 5
    free = stale.unlocked("job", "id")
    assert len(free) == 75
    assert not set(free) & set(taken)
    claimer.commit()
    assert stale.value("SELECT count(*) FROM django_relay_lease") == 5
    assert stale.value("SELECT count(*) FROM django_relay_job WHERE state = 'running'") == 5


def test_eight_claimers_with_stale_statistics_never_get_more_than_they_asked_for(
    stale: Stage,
) -> None:
    claims = race(stale, claimers=8, limit=2)
    assert max(len(claim) for claim in claims) == 2
    taken = [job_id for claim in claims for job_id in claim]
    assert len(taken) == len(set(taken)) == 80


def race(stage: Stage, *, claimers: int, limit: int) -> list[list[int]]:
    """Let so many claimers take everything; each stops when an unbounded claim finds nothing."""

    def take(session: Session, name: str) -> list[list[int]]:
        claims: list[list[int]] = []
        bounded = True
        while True:
            found = ids(stage.claim_up_to(limit, session, worker=name, bounded=bounded))
            claims.append(found)
            if not found and not bounded:
                return claims
            bounded = bool(found)

    stage.compile_claims(limit)
    takers = [stage.start(take, stage.connect(), f"host/{n}") for n in range(claimers)]
    return [claim for taker in takers for claim in taker.result()]


def test_eight_claimers_of_four_queues_get_every_job_once(stage: Stage) -> None:
    wanted = [job_id for n in range(4) for job_id in stage.fill(400, queue=f"queue {n}")]
    taken = [job_id for claim in race(stage, claimers=8, limit=7) for job_id in claim]
    assert sorted(taken) == wanted
    assert stage.all(CLAIMED) == [(1600, 1600)]
    assert stage.all("SELECT min(claims), max(claims) FROM django_relay_job") == [(1, 1)]
    assert stage.orphans() == []


# ------------------------------------------------------------------ which ones, in which order


def test_the_highest_priority_and_then_the_oldest_comes_first(stage: Stage) -> None:
    queues, priorities = ["a", "b", "a", "c", "b"], [0, 10, -100, 10, 100]
    jobs = [
        (-priority, stage.enqueue(queue=queue, priority=priority))
        for priority in priorities
        for queue in queues
    ]
    one_by_one = [ids(stage.claim_up_to(1))[0] for _ in jobs]
    assert one_by_one == [job_id for _, job_id in sorted(jobs)]


def test_a_batch_takes_no_lower_priority_while_another_queue_has_a_higher(stage: Stage) -> None:
    low = [stage.enqueue(queue="a") for _ in range(3)]
    high = [stage.enqueue(queue="a", priority=5), stage.enqueue(queue="b", priority=3)]
    assert ids(stage.claim_up_to(4)) == high
    assert ids(stage.claim_up_to(4)) == low


def test_a_busy_queue_does_not_starve_a_quiet_one(stage: Stage) -> None:
    for _ in range(3):
        stage.enqueue(queue="busy")
    quiet = stage.enqueue(queue="quiet")
    taken: list[int] = []
    while quiet not in taken:
        taken.append(stage.claim().job_id)
        stage.enqueue(queue="busy")
        stage.enqueue(queue="busy")
    assert len(taken) == 4


def test_a_worker_of_named_queues_takes_from_no_other(stage: Stage) -> None:
    mine, other = stage.enqueue(queue="mine"), stage.enqueue(queue="other", priority=100)
    assert ids(stage.claim_up_to(5, queues=["mine", "nothing"])) == [mine]
    assert ids(stage.claim_up_to(5, queues=["mine"])) == []
    assert ids(stage.claim_up_to(5, queues=None)) == [other]


def test_a_worker_of_any_queue_finds_every_queue(stage: Stage) -> None:
    jobs = [stage.enqueue(queue=f"queue {n % 7}") for n in range(14)]
    stage.enqueue(queue="later", run_after=timedelta(hours=1))
    assert sorted(ids(stage.claim_up_to(50))) == jobs


def test_behind_locked_heads_a_second_claim_finds_the_rest(stage: Stage) -> None:
    head, next_best = stage.enqueue(priority=9), stage.enqueue(priority=1)
    holder = stage.connect(autocommit=False)
    assert stage.claim(holder).job_id == head
    assert ids(stage.claim_up_to(1)) == []
    assert ids(stage.claim_up_to(1, bounded=False)) == [next_best]


def test_a_claimed_job_is_given_as_it_was_enqueued(stage: Stage) -> None:
    stage.enqueue(
        queue="mail", args='[1, 1e308, "a"]', kwargs='{"b": -0.0}', timeout=timedelta(minutes=1.5)
    )
    job = stage.claim()
    assert (job.queue, job.task, job.priority) == ("mail", "shop.tasks.pack", 0)
    assert (job.args, job.kwargs, job.timeout) == ('[1, 1e308, "a"]', '{"b": -0.0}', 90.0)
    assert (job.failures, job.losses, job.interruptions, job.max_attempts) == (0, 0, 0, 5)
    assert job.started_at is None
    assert job.run_after <= job.enqueued_at


@pytest.mark.parametrize(("offset", "claimed"), [("-1 second", False), ("1 hour", True)])
def test_a_job_is_not_started_after_the_time_it_had_to_start_before(
    stage: Stage, offset: str, claimed: bool
) -> None:
    query = "SELECT clock_timestamp() + %s::interval"
    job_id = stage.enqueue(priority=9, start_before=stage.value(query, [offset]))
    other = stage.enqueue()
    found = ids(stage.claim_up_to(5)) + ids(stage.claim_up_to(5, bounded=False))
    assert found == ([job_id, other] if claimed else [other])
    assert transitions.expire(stage.db) == ([] if claimed else [job_id])


# ------------------------------------------------------------------ alone


def test_a_claim_passes_over_jobs_that_must_run_alone_and_tells_of_them(stage: Stage) -> None:
    first, poison, last = (stage.enqueue() for _ in range(3))
    stage.set(poison, losses=1)
    claim = stage.claim_up_to(3)
    assert (ids(claim), claim.left, claim.suspects) == ([first, last], False, True)
    claim = stage.claim_up_to(3, alone=True)
    assert (ids(claim), claim.left) == ([poison], False)
    assert not stage.claim_up_to(3).suspects


def test_only_suspects_of_its_own_queues_concern_a_worker(stage: Stage) -> None:
    poison = stage.enqueue(queue="a")
    stage.set(poison, losses=1)
    assert not stage.claim_up_to(1, queues=["b"]).suspects
    assert stage.claim_up_to(1, queues=["a", "b"]).suspects
    assert ids(stage.claim_up_to(1, queues=["b"], alone=True)) == []
    assert ids(stage.claim_up_to(1, queues=["b", "a"], alone=True)) == [poison]


def test_a_claim_alone_takes_one_job_of_the_highest_priority_that_has_losses(stage: Stage) -> None:
    jobs = [stage.enqueue(queue=queue, priority=p) for queue, p in (("a", 0), ("b", 5), ("a", 9))]
    for job_id in jobs[:2]:
        stage.set(job_id, losses=2)
    assert ids(stage.claim_up_to(5, alone=True)) == [jobs[1]]
    assert ids(stage.claim_up_to(5, alone=True)) == [jobs[0]]
    assert ids(stage.claim_up_to(5, alone=True)) == []


# ------------------------------------------------------------------ leases and numbers


def test_an_orphan_lease_holds_up_one_job_and_not_the_claim(stage: Stage) -> None:
    first, orphaned, last = (stage.enqueue() for _ in range(3))
    stage.db.execute(
        "INSERT INTO django_relay_lease SELECT %s, %s, 'x', 1, now(), NULL, now(), NULL, 0",
        [orphaned, uuid.uuid4()],
    )
    assert ids(stage.claim_up_to(3)) == [first, last]
    assert (stage.state(orphaned), stage.kinds(orphaned)) == ("ready", ["enqueued"])
    assert transitions.mend(stage.db) == ([], [orphaned])
    assert ids(stage.claim_up_to(3)) == [orphaned]


def test_a_claim_that_was_rolled_back_leaves_nothing(stage: Stage) -> None:
    job_id = stage.enqueue()
    claimer = stage.connect(autocommit=False)
    stage.claim(claimer)
    claimer.rollback()
    assert (stage.state(job_id), stage.lease(job_id)) == ("ready", None)
    assert stage.claim().claim == 1


def test_claim_numbers_rise_with_every_claim_and_are_never_reset(stage: Stage) -> None:
    job_id = stage.enqueue()
    claims = [stage.claim()]
    stage.settle(ending(claims[-1], outcomes.released()))
    claims.append(stage.claim())
    stage.settle(ending(claims[-1], outcomes.raised({}, delay=0)))
    transitions.promote(stage.db)
    claims.append(stage.claim())
    stage.age_lease(job_id, 3600)
    transitions.rescue_expired(stage.db)
    claims.append(stage.claim(alone=True))
    stage.settle(success(claims[-1]))
    transitions.requeue(stage.db, [job_id], actor="1 somebody")
    claims.append(stage.claim())
    assert [claim.claim for claim in claims] == [1, 2, 3, 4, 5]
    assert len({claim.token for claim in claims}) == 5
    assert (claims[-1].failures, claims[-1].losses, claims[-1].interruptions) == (0, 0, 0)


@pytest.fixture
def pausing(stage: Stage) -> Iterator[tuple[Session, Session]]:
    """A session whose claims wait between their snapshot and their lock, and one that they wait
    for: its claims compare a ``start_before`` with a clock that stands behind a lock."""
    stage.db.execute("DROP SCHEMA IF EXISTS pausing CASCADE")
    stage.db.execute("CREATE SCHEMA pausing")
    stage.db.execute(PAUSING)
    claimer, holder = stage.connect(), stage.connect(autocommit=False)
    claimer.execute("SET search_path = pausing, pg_catalog, public")
    holder.execute("SELECT pg_advisory_xact_lock(7)")
    yield claimer, holder
    holder.rollback()
    stage.db.execute("DROP SCHEMA pausing CASCADE")


def test_a_claim_number_is_counted_from_the_row_it_locked_and_not_from_the_one_it_saw(
    stage: Stage, pausing: tuple[Session, Session]
) -> None:
    claimer, holder = pausing
    stage.enqueue(start_before=datetime(2100, 1, 1, tzinfo=UTC))
    future = stage.start(stage.claim, claimer)
    stage.wait_blocked(claimer, by=holder)
    first = stage.claim()
    stage.settle(ending(first, outcomes.released()))
    holder.rollback()
    assert (first.claim, future.result().claim) == (1, 2)


def test_counters_stay_at_their_bound(stage: Stage) -> None:
    most = 1_000_000_000
    job_id = stage.enqueue(max_attempts=None)
    stage.set(job_id, claims=most, failures=most, losses=most, interruptions=most)
    job = stage.claim(alone=True)
    assert job.claim == most
    assert told(*stage.settle(ending(job, outcomes.raised({}, delay=0)))) == ["retried"]
    transitions.promote(stage.db)
    stage.claim(alone=True)
    stage.age_lease(job_id, 3600)
    assert transitions.rescue_expired(stage.db)[0].losses == most
    stage.set(job_id, state="ready")
    assert told(*stage.settle(ending(stage.claim(alone=True), outcomes.released()))) == ["failed"]
    found = stage.job(job_id) or {}
    assert {found[name] for name in ("claims", "failures", "losses", "interruptions")} == {most}


@pytest.mark.parametrize(("scope", "kept"), [("waiting", False), ("until_finished", True)])
def test_a_claim_gives_up_a_key_held_while_waiting_alone(
    stage: Stage, scope: str, kept: bool
) -> None:
    job_id = stage.enqueue()
    stage.set(job_id, unique_key="one", unique_name="one", unique_scope=scope)
    job = stage.claim()
    assert (stage.job(job_id) or {})["unique_key"] == ("one" if kept else None)
    stage.settle(success(job))
    assert (stage.job(job_id) or {})["unique_key"] is None
