"""A stop that arrives while a worker's children are still starting."""

from __future__ import annotations

import signal

import pytest

from . import tasks
from .aftercheck import after_check
from .scene import Scene, enqueue_many
from .waiting import let_pass, wait_until

pytestmark = pytest.mark.process

DELAYS = [0.0, 0.15, 0.3, 0.5, 0.8]


def test_a_worker_stopped_while_its_children_start_begins_nothing_after_it(scene: Scene) -> None:
    jobs = enqueue_many(tasks.rest.using(max_attempts=1), [[20]] * 4)
    for number, delay in enumerate(DELAYS):
        worker = scene.start(f"{number}", slots=4, flags=["--grace", "0.5"])
        wait_until(lambda: worker.said, 40, what="it has started")  # noqa: B023
        let_pass(delay)
        worker.signal(signal.SIGTERM)
        assert worker.wait(20) == 0
        _before, stop, after = worker.said.partition("stopping")
        assert stop
        assert " started (claim" not in after
    # What had begun before the stop was given back, and what began after it is nothing.
    assert {scene.job(job).state for job in jobs} <= {"ready", "failed"}
    assert all(not scene.job(job).losses for job in jobs)
    after_check(scene)
