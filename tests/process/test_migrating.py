"""The tables are changed, or go and come back, while a worker and an enqueuer run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, connections
from django.db.migrations.loader import MigrationLoader

from . import tasks, times
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


def test_tables_change_under_a_worker_or_go_and_come_back_and_it_goes_on(scene: Scene) -> None:
    worker = scene.start("a", slots=2)
    scene.succeeds(enqueue(tasks.noop))
    graph = MigrationLoader(connection).graph
    (newest,) = graph.leaf_nodes("django_relay")
    before = [name for app, name in graph.node_map[newest].parents if app == "django_relay"]
    stop, jobs, waits = threading.Event(), list[int](), list[float]()
    thread = threading.Thread(target=enqueue_until, args=(stop, jobs, waits))
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '2s'")
    thread.start()
    try:
        for target in [*sorted(before)[:1], newest[1]] * 2:
            assert migrate(target)(), f"a lock for {target} was not to be had"
    finally:
        stop.set()
        thread.join()
    connection.close()
    assert max(waits) < 5
    scene.succeeds(*jobs, within=30)

    # The worker outlives even its tables.
    group = worker.group
    try:
        wait_until(migrate("zero"), 30, what="the tables go")
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE ledger")  # ids begin anew as well
        wait_until(lambda: "UndefinedTable" in worker.said, 20, what="the worker misses them")
    finally:
        wait_until(migrate(), 30, what="the tables are back")
    up = scene.now()
    (job,) = scene.succeeds(enqueue(tasks.noop))
    times.note("tables back: job done", up, job.finished_at)
    assert worker.group == group
    after_check(scene, worker)
