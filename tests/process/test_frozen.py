"""A worker frozen past its lease wakes: whatever it still says about its job changes nothing."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

import pytest

from . import tasks, unruly
from .aftercheck import after_check
from .scene import Scene, Scenes, enqueue
from .waiting import let_pass, wait_until
from .workers import send

pytestmark = pytest.mark.process

LEASE = 6.0

#: How long the handler of A runs, how it ends, and the verb of the ending that comes too late.
CASES = {
    "success": (8.0, "return", "succeed"),
    "failure": (8.0, "raise", "retry"),
    "release": (60.0, "return", "release"),
    "renewal": (15.0, "return", "succeed"),
}


@dataclass(frozen=True, slots=True)
class Late:
    """What became of a job whose first worker woke too late."""

    kinds: list[str]
    refused: dict[str, Any]
    result: Any
    begins: int
    lease_before: tuple[Any, int]
    lease_after: tuple[Any, int]
    failures: int
    interruptions: int
    log: str


def owner(scene: Scene, job_id: int) -> tuple[Any, int]:
    """Who holds the job: the token and the number of its claim."""
    lease = scene.lease(job_id)
    assert lease is not None
    return lease.token, lease.claim


@pytest.fixture(scope="module")
def late(scenes: Scenes) -> dict[str, Late]:
    """Four workers frozen in mid-job until another runs their jobs, then woken."""
    with scenes("late") as scene:
        frozen = {case: scene.start(case, queues=[case], flags=["--grace", "1"]) for case in CASES}
        other = scene.start("other", queues=list(CASES), processes=4)
        gate = scene.occupy(other)
        jobs = {
            case: enqueue(tasks.contend, first, ending, 10, queue=case)
            for case, (first, ending, _) in CASES.items()
        }
        for job_id in jobs.values():
            scene.begun(job_id, within=60)
        gate.touch()
        for worker in frozen.values():
            send(worker.group, signal.SIGSTOP)
        for job_id in jobs.values():
            scene.begun(job_id, 2, within=LEASE + 5)
        let_pass(1)

        before = {case: owner(scene, job_id) for case, job_id in jobs.items()}
        for worker in frozen.values():
            send(worker.group, signal.SIGCONT)
        frozen["release"].signal(signal.SIGTERM)
        for job_id in jobs.values():
            wait_until(
                lambda job_id=job_id: scene.events(job_id, "refused"),
                12,
                what=f"the late ending of job {job_id} is refused",
            )
        after = {case: owner(scene, job_id) for case, job_id in jobs.items()}
        scene.succeeds(*jobs.values())
        assert frozen.pop("release").wait(10) == 0
        after_check(scene, other, *frozen.values())
        return {case: told(scene, case, jobs[case], before[case], after[case]) for case in CASES}


def told(
    scene: Scene, case: str, job_id: int, before: tuple[Any, int], after: tuple[Any, int]
) -> Late:
    """Write down what became of one job."""
    job = scene.job(job_id)
    (refused,) = scene.events(job_id, "refused")
    (log,) = (worker.said for worker in scene.workers if worker.name == case)
    return Late(
        kinds=scene.kinds(job_id),
        refused=refused.data,
        result=scene.result(job_id).return_value,
        begins=len(scene.begins(job_id)),
        lease_before=before,
        lease_after=after,
        failures=job.failures,
        interruptions=job.interruptions,
        log=log,
    )


@pytest.mark.parametrize("case", CASES)
def test_a_late_ending_is_refused_changes_nothing_and_is_told(
    late: dict[str, Late], case: str
) -> None:
    story = late[case]
    assert story.kinds == ["enqueued", "claimed", "rescued", "claimed", "refused", "succeeded"]
    assert story.refused["reason"] == "superseded"
    assert story.refused["would_have"] == CASES[case][2]
    assert story.refused["late_ms"] > 0
    assert story.result == "B"
    assert story.begins == 2
    assert (story.failures, story.interruptions) == (0, 0)


@pytest.mark.parametrize("case", CASES)
def test_the_new_owners_lease_is_not_touched_by_the_late_one(
    late: dict[str, Late], case: str
) -> None:
    story = late[case]
    assert story.lease_before == story.lease_after
    assert story.lease_before[1] == 2


@pytest.mark.parametrize("case", CASES)
def test_the_late_worker_logs_that_its_outcome_was_refused(
    late: dict[str, Late], case: str
) -> None:
    assert "lost its lease (superseded" in late[case].log
    assert "was refused and changes nothing" in late[case].log


def test_a_late_renewal_tells_the_handler_that_its_job_is_lost(late: dict[str, Late]) -> None:
    assert "lost its lease and runs on" in late["renewal"].log


def test_a_supervisor_frozen_for_a_moment_costs_no_child_and_no_attempt(scene: Scene) -> None:
    worker = scene.start("a", slots=4)
    jobs = [enqueue(unruly.pause_async, 0.001) for _ in range(1500)]
    wait_until(lambda: scene.job(jobs[20]).finished_at, 40, what="the flood has begun")
    children = worker.children
    worker.signal(signal.SIGSTOP)
    let_pass(1.0)
    worker.signal(signal.SIGCONT)
    scene.succeeds(*jobs, within=60)
    assert worker.children == children
    assert not scene.events(jobs[0], "rescued")
