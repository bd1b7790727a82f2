"""Being stopped by a deploy is no failure: the job goes back and the next worker takes it."""

from __future__ import annotations

from statistics import median

import pytest

from . import LONG, tasks, times
from .aftercheck import after_check
from .scene import Scene, enqueue

pytestmark = pytest.mark.process

LEASE, POLL = 6.0, 0.5


def test_six_deploys_cost_a_job_with_three_attempts_none_of_them(scene: Scene) -> None:
    gate, stopped = scene.directory / "gate", []
    job_id = enqueue(tasks.hold, str(gate))
    worker = scene.start("deploy-0", flags=["--grace", "1"])
    for number in range(1, 7):
        scene.begun(job_id, number, within=60)
        following = scene.start(f"deploy-{number}", flags=["--grace", "1"])
        # It has to be up, or its start would be measured.
        scene.succeeds(enqueue(tasks.noop, queue=following.own), within=60)
        assert worker.stop() == 0
        stopped.append(scene.now())
        worker = following
    scene.begun(job_id, 7)
    gate.touch()
    (job,) = scene.succeeds(job_id)

    assert (job.failures, job.losses, job.interruptions) == (0, 0, 6)
    assert scene.kinds(job_id) == ["enqueued", *["claimed", "released"] * 6, "claimed", "succeeded"]
    released = scene.events(job_id, "released")
    assert all(event.data["began"] for event in released)
    claimed = [event.at for event in scene.events(job_id, "claimed")[1:]]
    took: dict[str, list[float]] = {"process gone": [], "claimed again": []}
    for event, gone, again in zip(released, stopped, claimed, strict=True):
        took["process gone"].append(times.note("stop, process gone", event.at, gone))
        took["claimed again"].append(times.note("stop, claimed again", event.at, again))
    # How long a process takes to end depends on who else uses the processor.
    assert median(took["process gone"]) < (1.0 if LONG else 4.0)
    assert median(took["claimed again"]) < 2 * POLL
    assert max(took["claimed again"]) < LEASE
    assert scene.result(job_id).errors == []
    after_check(scene, worker)


def test_a_job_that_may_be_tried_once_fails_when_a_stop_interrupts_it(scene: Scene) -> None:
    job_id = enqueue(tasks.rest.using(max_attempts=1), 60)
    worker = scene.start("a", flags=["--grace", "0.2"])
    scene.begun(job_id)
    assert worker.stop() == 0
    job = scene.job(job_id)
    assert (job.state, job.failures, job.interruptions) == ("failed", 0, 1)
    assert scene.result(job_id).errors[-1].exception_class.__name__ == "WorkerLost"
    after_check(scene)
