"""What a worker needs is used up, sessions or file descriptors: it waits, says so, and goes on."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator

import psycopg
import pytest
from django.db import connection
from psycopg import sql

from . import tasks, times
from .aftercheck import after_check
from .scene import Scene, enqueue
from .test_outages import TERMINATE, lines_beside_jobs
from .waiting import let_pass, wait_until
from .workers import send

pytestmark = pytest.mark.process

Limit = Callable[[int], None]


@pytest.fixture
def limit(harmed: Scene) -> Iterator[Limit]:
    """Sets how many sessions the role may have from now on; those it has stay."""
    role = connection.settings_dict["USER"]
    with psycopg.connect(harmed.place.admin, autocommit=True) as session:
        statement = sql.SQL("ALTER ROLE {} CONNECTION LIMIT {}")

        def allow(number: int) -> None:
            session.execute(statement.format(sql.Identifier(role), sql.Literal(number)))

        yield allow
        allow(-1)


def test_a_worker_that_finds_or_is_left_no_session_goes_on_when_there_are_some(
    harmed: Scene, limit: Limit
) -> None:
    job_id = enqueue(tasks.noop)
    limit(0)
    worker = harmed.start("a", slots=2, flags=["--lease", "30"])
    wait_until(lambda: "too many connections" in worker.said, 20, what="it says so")
    let_pass(2)
    assert len(worker.said.splitlines()) == 1
    limit(-1)
    up = harmed.now()
    (job,) = harmed.succeeds(job_id)
    assert times.note("sessions to be had: first job done", up, job.finished_at) < 5

    gate = harmed.directory / "gate"
    held = enqueue(tasks.hold, str(gate))
    harmed.begun(held)
    quiet = len(lines_beside_jobs(worker))

    # A handler that needs a session of its own does not get it: an attempt like any other.
    limit(0)
    refused = enqueue(tasks.find_nothing)
    (job,) = harmed.reaches("scheduled", refused)
    (retried,) = harmed.events(refused, "retried")
    assert "too many connections" in retried.data["error"]["message"]

    # The test's own session stays, or the jobs could not be looked at.
    with connection.cursor() as cursor:
        cursor.execute(f"{TERMINATE} AND application_name LIKE 'django_relay %'")
    gate.touch()
    let_pass(3)
    limit(-1)
    up = harmed.now()
    (job,) = harmed.succeeds(held)
    assert times.note("sessions to be had again: job done", up, job.finished_at) < 5
    assert harmed.kinds(held) == ["enqueued", "claimed", "succeeded"]
    assert len(lines_beside_jobs(worker)) - quiet <= 8
    after_check(harmed, worker)


def first_free(pid: int) -> int:
    """The descriptor that a process would be given next."""
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    return min(set(range(len(used) + 1)) - used)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of others: Linux alone")
def test_a_supervisor_without_a_free_descriptor_replaces_its_child_when_it_has_one(
    scene: Scene,
) -> None:
    worker = scene.start("a")
    scene.succeeds(enqueue(tasks.noop))
    (old,) = worker.children
    soft, hard = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (first_free(worker.pid), hard))
    send([old], signal.SIGKILL)
    job_id = enqueue(tasks.noop)
    wait_until(
        lambda: worker.said.count("no child could be started") > 1, 20, what="it tries again"
    )
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (soft, hard))
    scene.succeeds(job_id)
    assert old not in worker.children
    assert worker.said.count("no child could be started") < 6
    after_check(scene, worker)
