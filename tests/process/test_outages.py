"""The database goes away and comes back: the same processes go on; what ran may run again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import psycopg
import pytest
from django.db import connection

from . import places, tasks, unruly
from .aftercheck import after_check
from .namespaces import NEW_PIDS, why_not
from .places import Place, Server
from .scene import Scene, enqueue, enqueue_many
from .waiting import let_pass, wait_until
from .workers import Worker, send

pytestmark = pytest.mark.process

TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def lines_beside_jobs(worker: Worker) -> list[str]:
    """What the worker logged that is not about a job."""
    return [line for line in worker.said.splitlines() if " job " not in line]


def ended_since(scene: Scene, when: datetime) -> Callable[[], bool]:
    """Whether a handler has begun after an instant."""
    return lambda: any(mark.at > when for mark in scene.begins())


@pytest.mark.timeout(300)
def test_two_workers_outlive_restarts_and_terminated_sessions(
    harmed: Scene, server: Server
) -> None:
    workers = [harmed.start(name) for name in "ab"]
    jobs = enqueue_many(tasks.rest, [[0.2]] * 200)
    wait_until(lambda: len({m.pid for m in harmed.begins()}) == 2, 60, what="both work")
    groups = [worker.group for worker in workers]
    quiet = [len(lines_beside_jobs(worker)) for worker in workers]
    breaks = 0

    for how in (signal.SIGINT, signal.SIGQUIT):
        let_pass(1)
        server.stop(how)
        let_pass(2)
        server.start()
        connection.close()
        up = harmed.now()
        wait_until(ended_since(harmed, up), 5, what="work resumes after a restart")
        breaks += 1
    for _ in range(4):
        with psycopg.connect(harmed.place.admin, autocommit=True) as session:
            session.execute(TERMINATE)
        connection.close()
        breaks += 1
        let_pass(1.5)

    harmed.succeeds(*jobs, within=120)
    assert [worker.group for worker in workers] == groups
    again = [job_id for job_id in jobs if len(harmed.begins(job_id)) > 1]
    assert len(again) <= breaks * len(workers)
    for worker, before in zip(workers, quiet, strict=True):
        # Each of its four sessions may say so once a break, however short.
        assert len(lines_beside_jobs(worker)) - before <= 4 * breaks
    after_check(harmed, *workers)


def test_a_job_that_ends_while_the_database_is_away_counts_once(
    harmed: Scene, server: Server
) -> None:
    """Away for three seconds under a lease of thirty: the same token ends it."""
    worker = harmed.start("a", flags=["--lease", "30"])
    gate = harmed.directory / "gate"
    job_id = enqueue(tasks.hold, str(gate))
    harmed.begun(job_id)
    server.stop(signal.SIGQUIT)
    gate.touch()
    let_pass(3)
    server.start()
    connection.close()
    harmed.succeeds(job_id)
    assert harmed.kinds(job_id) == ["enqueued", "claimed", "succeeded"]
    assert len(harmed.begins(job_id)) == 1
    after_check(harmed, worker)


def test_a_job_that_ends_after_its_lease_is_refused_or_ends_under_it(
    harmed: Scene, server: Server
) -> None:
    """Away for twelve seconds under a lease of six, and another worker waits."""
    workers = [harmed.start(name) for name in "ab"]
    gate = harmed.directory / "gate"
    job_id = enqueue(tasks.hold, str(gate))
    harmed.begun(job_id)
    server.stop(signal.SIGQUIT)
    gate.touch()
    let_pass(12)
    for worker in workers:
        lines = [line for line in lines_beside_jobs(worker) if "WARNING" in line]
        assert len(lines) <= 12
    server.start()
    connection.close()
    harmed.succeeds(job_id)
    # The late one may come after the other's success.
    wait_until(lambda: "refused" in harmed.kinds(job_id), 20, what="the late ending is refused")
    kinds = harmed.kinds(job_id)
    kinds.remove("refused")
    assert kinds == ["enqueued", "claimed", "rescued", "claimed", "succeeded"]
    after_check(harmed, *workers)


def test_a_child_started_while_the_database_is_away_waits_for_it(
    harmed: Scene, server: Server
) -> None:
    worker = harmed.start("a")
    harmed.succeeds(enqueue(tasks.noop))
    server.stop()
    old = worker.children
    send(old, signal.SIGKILL)
    wait_until(lambda: worker.children not in ([], old), 10, what="another child is there")
    new = worker.children
    let_pass(3)
    server.start()
    connection.close()
    harmed.succeeds(enqueue(tasks.noop), within=10)
    assert worker.children == new
    after_check(harmed, worker)


def test_a_worker_started_before_the_server_says_so_once_and_waits(
    harmed: Scene, server: Server
) -> None:
    job_id = enqueue(tasks.noop)
    server.stop()
    worker = harmed.start("a")
    wait_until(lambda: "waiting for the database" in worker.said, 20, what="it says so")
    let_pass(3)
    assert len(worker.said.splitlines()) == 1
    server.start()
    connection.close()
    up = harmed.now()
    (job,) = harmed.succeeds(job_id)
    assert (job.finished_at - up).total_seconds() < 5
    after_check(harmed, worker)


@pytest.fixture
def empty_place(django_db_blocker: Any) -> Iterator[Place]:
    """A database before ``migrate``."""
    with (
        django_db_blocker.unblock(),
        places.made(os.environ["DATABASE_URL"], migrated=False) as made,
    ):
        yield made


@pytest.mark.smoke
def test_a_worker_started_before_migrate_says_so_in_a_line_and_exits_with_1(
    empty_place: Place, scene: Scene
) -> None:
    worker = scene.start("a", env={"DATABASE_URL": empty_place.url})
    assert worker.wait(20) == 1
    (line,) = worker.said.splitlines()
    assert "migrate" in line


@pytest.mark.parametrize(
    "wrapped",
    [
        [],
        pytest.param(NEW_PIDS, marks=pytest.mark.skipif(bool(why_not()), reason=str(why_not()))),
    ],
    ids=["process", "process 1"],
)
@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, signal.SIGTERM],
)
def test_a_signal_ends_a_worker_that_waits_for_the_server(
    scene: Scene, wrapped: list[str], number: signal.Signals
) -> None:
    nowhere = {"DATABASE_URL": "postgres://nobody:none@127.0.0.1:1/nothing"}
    worker = scene.start("a", env=nowhere, wrapped=wrapped)
    wait_until(lambda: "waiting for the database" in worker.said, 20, what="it waits")
    worker.signal(number)
    assert worker.wait(3) == 0
    assert "Traceback" not in worker.said


@pytest.fixture
def impatient_role(scene: Scene) -> Iterator[None]:
    """End new sessions of the role after two idle seconds, in a transaction or not."""
    with connection.cursor() as cursor:
        for setting in ("idle_session_timeout", "idle_in_transaction_session_timeout"):
            cursor.execute(f"ALTER ROLE CURRENT_USER SET {setting} = '2s'")
        yield
        cursor.execute("ALTER ROLE CURRENT_USER RESET ALL")


@pytest.mark.usefixtures("impatient_role")
def test_sessions_that_handlers_close_or_the_server_ends_cost_nothing(scene: Scene) -> None:
    worker = scene.start("a", slots=2)
    jobs = [
        enqueue(unruly.lose_session, how) for how in ("close", "close all", "terminate", "sleep")
    ]
    scene.succeeds(*jobs[:3], within=20)
    (slept,) = scene.reaches("scheduled", jobs[3], within=20)
    assert slept.failures == 1
    before = len(lines_beside_jobs(worker))
    let_pass(6)
    assert len(lines_beside_jobs(worker)) <= before + 2
    after = enqueue_many(tasks.find_nothing, [[]] * 4)
    scene.succeeds(*after, within=5)
    after_check(scene, worker)
