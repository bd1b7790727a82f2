"""The tables are changed, or go and come back, while a worker and an enqueuer run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, connections
from django.db.migrations.loader import MigrationLoader

from tests.bench.ground import CHUNK, FILL

from . import LONG, tasks, times
from .aftercheck import after_check
from .scene import Scene, enqueue
from .waiting import wait_until

pytestmark = pytest.mark.process


def migrate(*target: str) -> Callable[[], bool]:
    """Migrate there, as an operator who tries again when a lock is not to be had."""

    def tried() -> bool:
        try:
            call_command("migrate", "django_relay", *target, verbosity=0)
        except OperationalError:
            return False
        return True

    return tried


def enqueue_until(stop: threading.Event, jobs: list[int], waits: list[float]) -> None:
    """Enqueue all the while, as a web site does, and keep how long each time took."""
    try:
        while not stop.wait(0.05):
            before = time.monotonic()
            jobs.append(enqueue(tasks.noop))
            waits.append(time.monotonic() - before)
    finally:
        connections.close_all()


@contextmanager
def enqueueing(number: int) -> Iterator[list[int]]:
    """Have so many threads enqueue meanwhile; none of them may have to wait for two seconds."""
    stop, jobs, waits = threading.Event(), list[int](), list[float]()
    arguments = (stop, jobs, waits)
    threads = [threading.Thread(target=enqueue_until, args=arguments) for _ in range(number)]
    for thread in threads:
        thread.start()
    try:
        yield jobs
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    print(f"{len(waits)} enqueues meanwhile, the slowest in {max(waits):.3f} s")
    assert max(waits) < 2


def fill(rows: int) -> None:
    """Put so many jobs into the table, nine in ten of them successful."""
    jobs = {"successful": rows * 9 // 10, "scheduled": rows // 20, "ready": rows // 20}
    with connection.cursor() as cursor:
        for state, number in jobs.items():
            for count in range(number, 0, -CHUNK):
                some = {"count": min(count, CHUNK), "queues": ["nobodys"], "state": state}
                cursor.execute(FILL, some)


@pytest.mark.timeout(1800)
def test_tables_change_under_a_worker_or_go_and_come_back_and_it_goes_on(scene: Scene) -> None:
    fill(2_000_000 if LONG else 20_000)
    workers = [scene.start(name, slots=2) for name in "ab"]
    for worker in workers:
        scene.succeeds(enqueue(tasks.noop, queue=worker.own))
    graph = MigrationLoader(connection).graph
    (newest,) = graph.leaf_nodes("django_relay")
    before = [name for app, name in graph.node_map[newest].parents if app == "django_relay"]
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '2s'")
    with enqueueing(2) as jobs:
        for target in [*sorted(before)[:1], newest[1]] * 2:
            assert migrate(target)(), f"a lock for {target} was not to be had"
    connection.close()
    scene.succeeds(*jobs, within=60)

    # The workers outlive even their tables.
    groups = [worker.group for worker in workers]
    try:
        wait_until(migrate("zero"), 30, what="the tables go")
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE ledger")  # ids begin anew as well
        missed = "UndefinedTable"
        wait_until(lambda: all(missed in each.said for each in workers), 20, what="they are missed")
    finally:
        wait_until(migrate(), 30, what="the tables are back")
    up = scene.now()
    (job,) = scene.succeeds(enqueue(tasks.noop))
    times.note("tables back: job done", up, job.finished_at)
    assert [worker.group for worker in workers] == groups
    after_check(scene, *workers)
