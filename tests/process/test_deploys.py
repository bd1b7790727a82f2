"""Being stopped by a deploy is no failure: the job goes back and the next worker takes it."""

from __future__ import annotations

import pytest

from . import tasks
from .aftercheck import after_check
from .scene import Scene, enqueue

pytestmark = pytest.mark.process

POLL = 0.5


def test_six_deploys_cost_a_job_with_three_attempts_none_of_them(scene: Scene) -> None:
    job_id = enqueue(tasks.rest, 4)
    stopped = []
    for number in range(1, 7):
        worker = scene.start(f"deploy-{number}", flags=["--grace", "0.5"])
        scene.begun(job_id, number, within=60)
        assert worker.stop() == 0
        stopped.append(scene.now())
    last = scene.start("last")
    (job,) = scene.succeeds(job_id, within=40)

    assert (job.failures, job.losses, job.interruptions) == (0, 0, 6)
    assert scene.kinds(job_id) == ["enqueued", *["claimed", "released"] * 6, "claimed", "succeeded"]
    released = scene.events(job_id, "released")
    assert all(event.data["began"] for event in released)
    for event, gone in zip(released, stopped, strict=True):
        assert (gone - event.at).total_seconds() < 1.5
    assert scene.result(job_id).errors == []
    after_check(scene, last)


def test_a_job_that_may_be_tried_once_fails_when_a_stop_interrupts_it(scene: Scene) -> None:
    job_id = enqueue(tasks.rest.using(max_attempts=1), 60)
    worker = scene.start("a", flags=["--grace", "0.2"])
    scene.begun(job_id)
    assert worker.stop() == 0
    job = scene.job(job_id)
    assert (job.state, job.failures, job.interruptions) == ("failed", 0, 1)
    assert scene.result(job_id).errors[-1].exception_class.__name__ == "WorkerLost"
    after_check(scene)
