"""Rows that no transition writes, met by a real worker: none of them stops those behind it.

What each statement makes of them is in tests/db/test_odd_rows.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import connection

from tests import odd

from . import tasks
from .aftercheck import after_check
from .scene import EMPTY, Scene, enqueue, enqueue_path
from .waiting import wait_until

pytestmark = pytest.mark.process

Execute = Callable[..., Any]

LEASE = """
INSERT INTO django_relay_lease (job_id, token, worker, claim, acquired_at, expires_at, renewals)
VALUES (%s, gen_random_uuid(), 'somebody/1', 1, clock_timestamp(), {end}, 0)
"""


@pytest.fixture
def by_hand(scene: Scene) -> Iterator[Execute]:
    """Somebody's own SQL."""
    with psycopg.connect(scene.place.url, autocommit=True) as session:
        yield session.execute


@contextmanager
def written(execute: Execute, jobs: dict[str, int], values: dict[str, str]) -> Iterator[None]:
    """Put odd values into jobs, by name, that the checks refuse to see changed from then on."""
    session = execute.__self__  # type: ignore[attr-defined]
    with odd.before_the_checks(session):
        for what, change in values.items():
            execute(f"UPDATE django_relay_job SET {change} WHERE id = %s", [jobs[what]])
    try:
        yield
    finally:
        execute(EMPTY)
        odd.validate(session)


def lose(execute: Execute, job_id: int) -> None:
    """Let a worker have had this job, and its lease be over."""
    execute("UPDATE django_relay_job SET state = 'running', claims = 1 WHERE id = %s", [job_id])
    execute(LEASE.format(end="clock_timestamp()"), [job_id])


def put_off(execute: Execute, job_id: int) -> None:
    """Let this job have waited for a time that has come."""
    execute("UPDATE django_relay_job SET state = 'scheduled' WHERE id = %s", [job_id])


def leave(execute: Execute, job_id: int) -> None:
    """Leave it ready."""


@pytest.mark.parametrize(
    ("stands", "flags"),
    [
        ([leave], ["--prefetch", "0"]),
        ([leave], []),
        ([lose], []),
        ([put_off], []),
        ([leave, lose, put_off], []),
    ],
    ids=["ready, one by one", "ready, in batches", "lost", "scheduled", "all of these"],
)
def test_jobs_outside_every_check_stop_none_behind_them(
    scene: Scene, by_hand: Execute, stands: list[Callable[..., None]], flags: list[str]
) -> None:
    values = {f"{how.__name__}: {what}": odd.JOBS[what] for how in stands for what in odd.JOBS}
    jobs = {name: enqueue(tasks.noop) for name in values}
    for how in stands:
        for name in filter(lambda name: name.startswith(how.__name__), jobs):
            how(by_hand, jobs[name])
    with written(by_hand, jobs, values):
        behind = [enqueue(tasks.noop) for _ in range(10)]
        worker = scene.start("a", flags=flags)
        scene.succeeds(*behind, enqueue(tasks.noop), within=40)
        # They are at their bounds now, and run like any other, or have failed for want of attempts.
        wait_until(
            lambda: all(scene.job(job_id).finished_at for job_id in jobs.values()),
            40,
            what="the odd ones have ended too",
        )
        assert "outside their bounds" in worker.said
        assert "Traceback" not in worker.said
        assert worker.alive
        for table, column in (("job", "id"), ("event", "job_id")):
            gone = f"DELETE FROM django_relay_{table} WHERE {column} = ANY (%s)"
            by_hand(gone, [list(jobs.values())])
        after_check(scene, worker)


def test_arguments_that_are_not_a_list_and_an_object_fail_their_attempts_and_no_other(
    scene: Scene, by_hand: Execute
) -> None:
    worker = scene.start("a")
    texts = [
        ('{"a": 1}', "{}"), ("[1]", "[]"), ("null", "{}"), ('"text"', "1"), ("[]", "null"),
        ("[" * 5_000 + "]" * 5_000, "{}"), (f"[{'9' * 5_000}]", "{}"), ("[1e999]", "{}"),
    ]  # fmt: skip
    gate = scene.occupy(worker)
    bad = [enqueue(tasks.noop) for _ in texts]
    for job_id, (args, kwargs) in zip(bad, texts, strict=True):
        by_hand(
            "UPDATE django_relay_job SET args = %s, kwargs = %s, max_attempts = 1 WHERE id = %s",
            [args, kwargs, job_id],
        )
    good = enqueue(tasks.noop)
    gate.touch()
    scene.succeeds(good)
    scene.reaches("failed", *bad)
    for job_id in bad:
        assert scene.begins(job_id) == []
        assert scene.result(job_id).errors
    assert "not a list and an object" in scene.events(bad[0], "failed")[0].data["error"]["message"]
    assert "CRITICAL" not in worker.said
    after_check(scene, worker)


def test_a_job_with_events_of_unknown_kinds_runs_like_any_other(
    scene: Scene, by_hand: Execute
) -> None:
    job_id = enqueue(tasks.succeed_or_raise, False)
    for kind in ("blessed", "", "claimed"):
        by_hand(
            "INSERT INTO django_relay_event (job_id, kind, at, claim, data) "
            "VALUES (%s, %s, '-infinity', -7, %s)",
            [job_id, kind, '["odd"]'],
        )
    scene.start("a")
    scene.succeeds(job_id, enqueue(tasks.noop))
    assert scene.result(job_id).return_value == "done"


def test_orphans_hold_up_nobody_for_long_while_a_worker_runs(
    scene: Scene, by_hand: Execute
) -> None:
    """Leases without a running job, running jobs without a lease: made while the worker runs."""
    worker = scene.start("a", flags=["--prefetch", "0"])
    gate = scene.occupy(worker)
    kept, endless, unleased = (enqueue(tasks.noop) for _ in range(3))
    by_hand(LEASE.format(end="clock_timestamp() + interval '1 year'"), [kept])
    by_hand(LEASE.format(end="'9999-12-30 UTC'"), [endless])
    by_hand("UPDATE django_relay_job SET state = 'running', claims = 1 WHERE id = %s", [unleased])
    gone = enqueue_path("nowhere.at_all")
    by_hand(LEASE.format(end="clock_timestamp() + interval '1 year'"), [gone])
    by_hand("DELETE FROM django_relay_job WHERE id = %s", [gone])
    behind = enqueue(tasks.noop)
    gate.touch()
    scene.succeeds(behind, kept, endless, unleased, within=30)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM django_relay_lease WHERE job_id = %s", [gone])
        assert cursor.fetchone() == (0,)
