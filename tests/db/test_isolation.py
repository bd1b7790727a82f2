"""Roles with other defaults (I9): the package's statements stay READ COMMITTED and read-write."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from django_relay import outcomes, transitions
from django_relay.connection import Bookkeeping
from django_relay.transitions import Held

from .stage import Stage, ending, success, told

STRICTER = ["repeatable read", "serializable"]


@contextlib.contextmanager
def role_with(
    stage: Stage, setting: str, value: str, *, pooled: bool = False
) -> Iterator[Bookkeeping]:
    """Give the tests' role a default in this database, as some sites do, and a worker's session."""
    role = f'ALTER ROLE "{stage.db.info.user}" IN DATABASE "{stage.db.info.dbname}"'
    stage.db.execute(f"{role} SET {setting} = '{value}'")
    worker = Bookkeeping("default", pooled=pooled, patience=20.0, name="test")
    try:
        yield worker
    finally:
        worker.close()
        stage.db.execute(f"{role} RESET {setting}")


@pytest.mark.parametrize("isolation", STRICTER)
def test_an_ending_sees_the_renewal_that_put_it_off_whatever_the_role_says(
    stage: Stage, isolation: str
) -> None:
    stage.enqueue()
    job = stage.claim()
    with role_with(stage, "default_transaction_isolation", isolation) as worker:
        assert stage.connect().execute("SHOW transaction_isolation").fetchone() == (isolation,)
        with worker.cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            assert cursor.fetchone() == ("read committed",)

        # A snapshot of the whole transaction could not be serialized with the renewal.
        holder = stage.connect(autocommit=False)
        transitions.renew(holder, [Held(job.job_id, job.token, 1.0)], lease=600)
        assert transitions.settle(worker, [success(job)]) == {}
        holder.commit()
        assert told(*transitions.settle(worker, [success(job)]).values()) == ["succeeded"]


@pytest.mark.parametrize("isolation", STRICTER)
def test_two_claimers_do_not_fail_each_other_whatever_the_role_says(
    stage: Stage, isolation: str
) -> None:
    stage.fill(60)
    stage.compile_claims(3)
    with role_with(stage, "default_transaction_isolation", isolation) as worker:

        def take(session: Bookkeeping) -> list[int]:
            taken: list[int] = []
            while jobs := stage.claim_up_to(3, session, bounded=False).jobs:
                taken += [job.job_id for job in jobs]
            return taken

        other = Bookkeeping("default", pooled=False, patience=20.0, name="other")
        takers = [stage.start(take, session) for session in (worker, other)]
        taken = [job_id for taker in takers for job_id in taker.result()]
        other.close()
    assert len(taken) == len(set(taken)) == 60


def test_bookkeeping_writes_although_the_role_is_read_only_by_default(stage: Stage) -> None:
    stage.enqueue()
    job = stage.claim()
    with role_with(stage, "default_transaction_read_only", "on") as worker:
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            stage.settle(success(job), session=stage.connect())
        assert told(*transitions.settle(worker, [success(job)]).values()) == ["succeeded"]


def test_an_error_leaves_no_transaction_of_a_pinned_session_open(stage: Stage) -> None:
    stage.enqueue()
    job = stage.claim()
    unsendable = outcomes.Outcome(outcomes.Verb.SUCCEED, result="\ud800")
    with role_with(stage, "default_transaction_isolation", "serializable") as worker:
        with pytest.raises(UnicodeError), worker.cursor() as cursor:
            cursor.execute("SELECT %s", ["\ud800"])
        assert worker.session().info.transaction_status == TransactionStatus.IDLE
        answers = transitions.settle(worker, [ending(job, unsendable)])
        assert told(*answers.values()) == ["retried"]


@pytest.mark.parametrize(
    ("setting", "ours"),
    [
        ("statement_timeout", "20s"),
        ("lock_timeout", "0"),
        ("idle_session_timeout", "0"),
        ("idle_in_transaction_session_timeout", "20s"),
    ],
)
def test_bookkeeping_has_bounds_of_its_own_whatever_those_of_the_role(
    stage: Stage, setting: str, ours: str
) -> None:
    with role_with(stage, setting, "7654ms") as worker, worker.cursor() as cursor:
        cursor.execute(f"SHOW {setting}")
        assert cursor.fetchone() == (ours,)


def test_what_a_worker_commits_is_on_the_disk_whatever_the_role_says(stage: Stage) -> None:
    with role_with(stage, "synchronous_commit", "off") as worker, worker.cursor() as cursor:
        cursor.execute("SHOW synchronous_commit")
        assert cursor.fetchone() == ("on",)
    careful = "remote_apply"
    with role_with(stage, "synchronous_commit", careful) as worker, worker.cursor() as cursor:
        cursor.execute("SHOW synchronous_commit")
        assert cursor.fetchone() == (careful,)


def test_dates_that_cannot_be_read_are_an_error_with_a_remedy_where_nothing_can_be_set(
    stage: Stage,
) -> None:
    with role_with(stage, "datestyle", "SQL, DMY") as worker, worker.cursor() as cursor:
        cursor.execute("SELECT now()")
        assert cursor.fetchone()
    with (
        role_with(stage, "datestyle", "SQL, DMY", pooled=True) as worker,
        pytest.raises(psycopg.NotSupportedError, match="give the role the DateStyle ISO"),
    ):
        worker.session()
