"""The flags of ``relay_worker``, and the lines that it says at the start and at the end."""

from __future__ import annotations

import os
from collections import Counter
from datetime import timedelta

import pytest

from . import tasks
from .aftercheck import after_check
from .scene import Scene, enqueue, enqueue_many, enqueue_path
from .waiting import let_pass, wait_until

pytestmark = pytest.mark.process


@pytest.mark.smoke
def test_drain_ends_when_nothing_due_is_left(scene: Scene) -> None:
    jobs = enqueue_many(tasks.rest, [[0.2]] * 10)
    retried = enqueue(tasks.succeed_or_raise, False)
    later = int(tasks.noop.using(run_after=timedelta(hours=1)).enqueue().id)
    worker = scene.start("a", slots=2, flags=["--drain"])
    assert worker.wait(40) == 0
    assert {scene.job(job_id).state for job_id in jobs} == {"successful"}
    # Its second attempt was not due yet when the first had failed, or it was.
    assert scene.job(retried).state in ("successful", "scheduled", "ready")
    assert scene.job(later).state == "scheduled"
    after_check(scene)


def test_drain_of_an_empty_queue_ends_at_once(scene: Scene) -> None:
    worker = scene.start("a", flags=["--drain"])
    assert worker.wait(30) == 0
    assert "no job was run" in worker.said


def test_a_worker_tells_what_it_does_when_it_starts_and_what_it_did_at_its_end(
    scene: Scene,
) -> None:
    worker = scene.start("a", queues=["mail"], slots=2, flags=["--lease", "7"])
    scene.succeeds(enqueue(tasks.noop, queue="mail"), enqueue(tasks.noop, queue="mail"))
    assert worker.stop() == 0
    first, *_, last = worker.said.splitlines()
    for word in ("queues mail, only-a", "1 x 2 slots", "database default", "lease 7 s"):
        assert word in first
    assert "stopped after" in last
    assert "2 succeeded" in last


def test_a_worker_takes_from_its_queues_alone(scene: Scene) -> None:
    mail, elsewhere = enqueue(tasks.noop, queue="mail"), enqueue(tasks.noop, queue="default")
    worker = scene.start("a", queues=["mail"])
    scene.succeeds(mail)
    after_check(scene, worker)
    assert scene.kinds(elsewhere) == ["enqueued"]


def test_a_child_is_replaced_after_its_share_of_jobs(scene: Scene) -> None:
    worker = scene.start("a", slots=1, flags=["--max-jobs", "3"])
    jobs = enqueue_many(tasks.noop, [[]] * 8)
    scene.succeeds(*jobs, within=40)
    shares = Counter(mark.pid for mark in scene.begins())
    assert sorted(shares.values()) == [2, 3, 3]
    assert {len(scene.begins(job_id)) for job_id in jobs} == {1}
    assert all(job.losses == 0 for job in map(scene.job, jobs))
    after_check(scene, worker)
    assert "ERROR" not in worker.said


def test_the_heartbeat_file_is_touched_while_all_is_well(scene: Scene) -> None:
    file = scene.directory / "alive"
    worker = scene.start("a", flags=["--heartbeat-file", str(file)])
    wait_until(file.exists, 30, what="the heartbeat file is there")
    before = file.stat().st_mtime_ns
    wait_until(lambda: file.stat().st_mtime_ns > before, 10, what="it is touched again")
    after_check(scene, worker)


CHANGING = """
from django_relay import task
from tests.process import ledger

@task
def version():
    ledger.write("begin")
    return "{}"
"""


def test_changed_code_is_used_from_the_next_job_on(scene: Scene) -> None:
    module = scene.directory / "changing.py"
    module.write_text(CHANGING.format("old"))
    path = os.pathsep.join([str(scene.directory), *filter(None, [os.environ.get("PYTHONPATH")])])
    worker = scene.start("a", flags=["--reload"], env={"PYTHONPATH": path})
    first = enqueue_path("changing.version")
    scene.succeeds(first)
    child = worker.children
    let_pass(2.5)  # the child looks at its files each second; the first look is what it compares to
    module.write_text(CHANGING.format("new"))
    wait_until(lambda: worker.children not in ([], child), 20, what="the child is replaced")
    second = enqueue_path("changing.version")
    scene.succeeds(second)
    assert [scene.job(job_id).result for job_id in (first, second)] == ["old", "new"]
    after_check(scene, worker)
