"""Handlers that reach into the worker's own machinery: it ends what they broke, and goes on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from . import tasks, unruly
from .scene import Scene, enqueue
from .waiting import wait_until

pytestmark = pytest.mark.process


def test_an_exception_that_cannot_be_looked_at_costs_no_slot(scene: Scene) -> None:
    worker = scene.start("a", slots=2)
    jobs = [enqueue(unruly.raise_unlookable) for _ in range(4)]
    scene.reaches("failed", *jobs)
    assert {scene.result(job).errors[0].exception_class_path for job in jobs} == {
        "tests.process.unruly.Unlookable"
    }
    scene.succeeds(*[enqueue(tasks.noop) for _ in range(4)])
    assert len(worker.children) == 1


def test_a_task_that_stops_the_event_loop_costs_its_child_and_no_more(scene: Scene) -> None:
    scene.start("a", slots=2)
    job = enqueue(unruly.stop_the_loop)
    scene.begun(job)
    # Its first run may have been in company; from then on it runs alone.
    others = [enqueue(unruly.pause_async, 0.2) for _ in range(3)]
    others += [enqueue(tasks.noop) for _ in range(3)]
    scene.reaches("failed", job, within=60)
    scene.succeeds(*others, within=60)


def test_a_task_that_cancels_all_others_leaves_none_of_them_running(scene: Scene) -> None:
    worker = scene.start("a", slots=4)
    jobs = [enqueue(unruly.pause_async, 0.01) for _ in range(4)]
    wait_until(lambda: all(scene.job(job).finished_at for job in jobs), 30, what="a warm start")
    rowdy = enqueue(unruly.cancel_the_others, 3.0)
    jobs = []
    until = time.monotonic() + 3
    while time.monotonic() < until:
        jobs.append(enqueue(unruly.pause_async, 0.01))
    scene.succeeds(rowdy, within=40)
    wait_until(lambda: all(scene.job(job).finished_at for job in jobs), 60, what="all have ended")
    scene.succeeds(enqueue(unruly.pause_async, 0.01), enqueue(tasks.noop))
    assert worker.process.poll() is None


@pytest.mark.parametrize(
    ("hostile", "arguments"),
    [
        (unruly.break_the_bookkeeper, []),
        (unruly.write_into_every_pipe, ["nonsense"]),
        (unruly.write_into_every_pipe, ["["]),
        (unruly.die_without_a_name, []),
        (unruly.spoil_the_library, []),
    ],
    ids=[
        *("an error in its main thread", "nonsense in its pipe", "depths", "a nameless signal"),
        "a spoilt library",
    ],
)
def test_a_child_whose_machinery_is_broken_is_replaced(
    scene: Scene, hostile: object, arguments: list[str]
) -> None:
    worker = scene.start("a", slots=2)
    job = enqueue(hostile, *arguments)
    scene.reaches("failed", job, within=30)
    assert "WorkerLost" in scene.result(job).errors[-1].exception_class_path
    scene.succeeds(*[enqueue(tasks.noop) for _ in range(4)])
    assert worker.process.poll() is None


def test_jobs_of_a_loop_that_can_make_no_tasks_fail_and_do_not_hang(scene: Scene) -> None:
    worker = scene.start("a", slots=2)
    scene.succeeds(enqueue(unruly.make_no_tasks), within=40)
    one_try = unruly.pause_async.using(max_attempts=1)
    scene.reaches("failed", *[enqueue(one_try, 0.01) for _ in range(3)])
    scene.succeeds(enqueue(tasks.noop))
    assert worker.process.poll() is None


def test_a_heartbeat_file_that_cannot_be_written_is_told_at_the_start(
    scene: Scene, tmp_path: Path
) -> None:
    worker = scene.start("a", flags=["--heartbeat-file", str(tmp_path / "missing" / "alive")])
    assert worker.wait(20) == 1
    assert "--heartbeat-file" in worker.said


def test_a_heartbeat_file_whose_folder_goes_away_stops_nothing(
    scene: Scene, tmp_path: Path
) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    scene.start("a", flags=["--heartbeat-file", str(folder / "alive")])
    scene.succeeds(enqueue(tasks.noop))
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    poison = enqueue(unruly.poison, "kill")
    scene.reaches("failed", poison, within=60)
    scene.succeeds(enqueue(tasks.noop))
