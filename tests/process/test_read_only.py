"""A server that can only be read, as after a fail-over: nothing is lost, and work resumes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from django.db import connection

from django_relay import transitions
from django_relay.transitions import NewJob

from . import tasks, times
from .aftercheck import after_check
from .places import Server
from .scene import Scene, enqueue
from .test_outages import lines_beside_jobs
from .waiting import let_pass, wait_until

pytestmark = pytest.mark.process

NOOP = "tests.process.tasks.noop"


def test_a_worker_waits_at_a_standby_and_goes_on_when_it_is_promoted(
    harmed: Scene, server: Server
) -> None:
    worker = harmed.start("a", slots=2, flags=["--lease", "30"])
    gate = harmed.directory / "gate"
    held, due = enqueue(tasks.hold, str(gate)), enqueue(tasks.noop.using(run_after=timedelta(0)))
    harmed.begun(held)
    harmed.succeeds(due)
    group, quiet = worker.group, len(lines_beside_jobs(worker))
    waiting = enqueue(tasks.noop.using(run_after=timedelta(seconds=5)))
    server.stop()
    server.stand_by()
    server.start()
    connection.close()
    gate.touch()
    wait_until(lambda: "read-only transaction" in worker.said, 20, what="it is told")
    let_pass(2)
    assert not harmed.begins(waiting)
    with psycopg.connect(harmed.place.admin, autocommit=True) as session:
        session.execute("SELECT pg_promote()")
    up = harmed.now()
    for job in harmed.succeeds(held, waiting):
        assert times.note("after a promotion: job done", up, job.finished_at) < 5
    assert harmed.kinds(held) == ["enqueued", "claimed", "succeeded"]
    assert worker.group == group
    assert len(lines_beside_jobs(worker)) - quiet <= 12
    after_check(harmed, worker)


@pytest.fixture
def frozen(harmed: Scene) -> Iterator[psycopg.Connection[object]]:
    """A session of the server's owner, which may write although the server's default says no."""
    write = "-c default_transaction_read_only=off"
    with psycopg.connect(harmed.place.admin, autocommit=True, options=write) as session:
        yield session
        session.execute("ALTER SYSTEM RESET default_transaction_read_only")
        session.execute("SELECT pg_reload_conf()")


def test_a_worker_obeys_a_server_whose_default_is_read_only(
    harmed: Scene, frozen: psycopg.Connection[object]
) -> None:
    worker = harmed.start("a", slots=2, flags=["--lease", "30"])
    gate = harmed.directory / "gate"
    held = enqueue(tasks.hold, str(gate))
    harmed.begun(held)
    frozen.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    frozen.execute("SELECT pg_reload_conf()")
    gate.touch()
    wait_until(lambda: "read-only transaction" in worker.said, 20, what="it is told")
    job = NewJob(backend="default", queue="default", task=NOOP, args="[]", kwargs="{}")
    waiting = transitions.enqueue(frozen, job).id
    let_pass(2)
    assert not harmed.begins(waiting)
    frozen.execute("ALTER SYSTEM RESET default_transaction_read_only")
    up = harmed.now()
    frozen.execute("SELECT pg_reload_conf()")
    for job in harmed.succeeds(held, waiting):
        assert times.note("writable again: job done", up, job.finished_at) < 5
    assert harmed.kinds(held) == ["enqueued", "claimed", "succeeded"]
    after_check(harmed, worker)
