"""A connection falls silent without being closed: nobody waits for ever, and no job is lost.

Each worker goes through a proxy of its own, which takes what both ends of one kind of connection
send and passes nothing on. All of them at once, because most of the time is waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import connection

from . import tasks, times
from .aftercheck import after_check
from .places import Server
from .proxy import Proxy
from .scene import Scene, Scenes, enqueue, enqueue_many
from .test_outages import ended_since, lines_beside_jobs
from .waiting import let_pass, wait_until
from .workers import Worker

pytestmark = pytest.mark.process

#: What falls silent, and the lease of the worker for whom it does. The heartbeat's is longer, so
#: that a slow machine does not come too late.
LEASES = {"slots": "6", "maintenance": "6", "listener": "6", "heartbeat": "12", "all": "6"}

SESSIONS = """
SELECT pid, backend_start FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE %s
"""


@dataclass(slots=True)
class Silence:
    """One worker, what fell silent for it, and what became of the jobs that it had and got."""

    name: str
    worker: Worker
    proxy: Proxy
    gate: Path
    held: int = 0
    fresh: int = 0
    began: datetime | None = None
    before: set[int] = field(default_factory=set)
    kinds: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """What is in the application_name of its connections; nothing: they are all meant."""
        return "" if self.name == "all" else self.name

    @property
    def sessions(self) -> dict[int, datetime]:
        """When the sessions of this kind began, by their pids on the server."""
        with connection.cursor() as cursor:
            name = f"django_relay {self.kind or '%'} %-{self.worker.pid}-%"
            cursor.execute(SESSIONS, [name])
            return dict(cursor.fetchall())


@pytest.fixture(scope="module")
def silences(scenes: Scenes) -> Iterator[dict[str, Silence]]:
    """Let each kind of connection fall silent for a worker that has a job running."""
    with scenes("silences") as scene, ExitStack() as stack:
        late = led_through_a_proxy(scene, stack, "start", lease="2")
        found = {
            name: led_through_a_proxy(scene, stack, name, lease=lease)
            for name, lease in LEASES.items()
        }
        for each in found.values():
            each.held = enqueue(tasks.hold, str(each.gate), queue=each.worker.own)
        for each in found.values():
            scene.begun(each.held, within=60)
        for each in found.values():
            fall_silent(scene, each)
        come_back(scene, found)
        wait_until(
            lambda: "waiting for the database" in late.worker.said, 30, what="it is not stuck"
        )
        late.proxy.relent()
        found["start"] = late
        after_check(scene, *(each.worker for each in found.values()))
        yield found
        for worker in scene.workers:
            worker.end()


def led_through_a_proxy(scene: Scene, stack: ExitStack, name: str, *, lease: str) -> Silence:
    """Start a worker behind a proxy; one named ``start`` hears nothing after its first login."""
    proxy = stack.enter_context(Proxy(urlsplit(scene.place.url).port or 5432))
    if name == "start":
        proxy.silence("relay start", again=True)
    where = {"DATABASE_URL": scene.place.at_port(proxy.port)}
    worker = scene.start(name, queues=(), slots=2, env=where, flags=["--lease", lease])
    return Silence(name, worker, proxy, scene.directory / f"{name}.gate")


def fall_silent(scene: Scene, each: Silence) -> None:
    """Pass nothing more on of a worker's connections, and give it another job."""
    number = 4 if each.name == "all" else 1
    # The heartbeat opens its session with its first renewal.
    wait_until(lambda: len(each.sessions) == number, 20, what="it is connected")
    each.before = set(each.sessions)
    each.began = scene.now()
    assert each.proxy.silence(f"relay {each.kind}") == number
    each.fresh = enqueue(tasks.noop, queue=each.worker.own)


def come_back(scene: Scene, silences: dict[str, Silence]) -> None:
    """Let the jobs end that the silence has caught, and wait for all to be well."""
    for name, each in silences.items():
        if name != "heartbeat":
            each.gate.touch()
    # The heartbeat's job goes on until it is renewed again: it is to keep its lease.
    each = silences["heartbeat"]
    wait_until(lambda: each.sessions.keys() - each.before, 40, what="it renews again")
    each.gate.touch()
    for name, each in silences.items():
        assert each.began is not None
        for what, job_id in (("next job", each.fresh), ("running job", each.held)):
            (job,) = scene.succeeds(job_id, within=60)
            times.note(f"{name} silent: {what} done", each.began, job.finished_at)
        each.kinds = scene.kinds(each.held)
        wait_until(lambda e=each: e.sessions.keys() - e.before, 60, what=f"{name}: other sessions")
        new = [began for pid, began in each.sessions.items() if pid not in each.before]
        times.note(f"{name} silent: another session", each.began, min(new))


@pytest.mark.parametrize("kind", LEASES)
def test_a_connection_that_falls_silent_is_replaced_and_no_job_is_lost(
    silences: dict[str, Silence], kind: str
) -> None:
    each = silences[kind]
    assert each.sessions.keys() - each.before
    assert each.kinds[:2] == ["enqueued", "claimed"]
    assert each.kinds[-1] == "succeeded"
    assert each.worker.said.count("WARNING") <= 8


@pytest.mark.parametrize("kind", ["slots", "maintenance", "listener", "heartbeat"])
def test_a_running_job_keeps_its_lease_while_one_connection_is_silent(
    silences: dict[str, Silence], kind: str
) -> None:
    assert silences[kind].kinds == ["enqueued", "claimed", "succeeded"]


def test_a_worker_waits_at_its_start_for_no_answer_that_a_silent_network_keeps_back(
    silences: dict[str, Silence],
) -> None:
    said = silences["start"].worker.said
    assert "waiting for the database" in said
    assert "relay_worker" in said


def test_a_server_that_stands_still_for_longer_than_a_lease_costs_no_worker(
    harmed: Scene, server: Server
) -> None:
    worker = harmed.start("a", slots=2, flags=["--lease", "2"])
    gate = harmed.directory / "gate"
    jobs = [enqueue(tasks.hold, str(gate)), *enqueue_many(tasks.rest, [[0.2]] * 20)]
    harmed.begun(jobs[0])
    group, quiet = worker.group, len(lines_beside_jobs(worker))
    server.freeze(frozen=True)
    let_pass(3)
    gate.touch()
    server.freeze(frozen=False)
    up = harmed.now()
    wait_until(ended_since(harmed, up), 20, what="work resumes")
    times.note("server stood still for 3 s: work resumes", up, harmed.begins()[-1].at)
    harmed.succeeds(*jobs, within=60)
    assert set(group) <= set(worker.group)
    assert len(lines_beside_jobs(worker)) - quiet <= 12
    after_check(harmed, worker)
