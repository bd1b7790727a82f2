"""Whatever a handler raises is a failed attempt; the slot, the worker and the queue go on."""

from __future__ import annotations

import signal

import pytest

from django_relay import compat

from . import tasks, unruly
from .aftercheck import after_check
from .faulty import raise_at_end, raise_at_start
from .scene import Scene, enqueue, enqueue_many
from .waiting import wait_until

pytestmark = pytest.mark.process

LEAVES = {
    "exit 0": "SystemExit",
    "exit 3": "SystemExit",
    "KeyboardInterrupt": "KeyboardInterrupt",
    "GeneratorExit": "GeneratorExit",
    "CancelledError": "CancelledError",
    "Unusual": "Unusual",
}

ODD = {
    "no text": "NoText",
    "no repr": "NoRepr",
    "number for text": "NumberForText",
    "two arguments": "TwoArguments",
    "local class": "Local",
    "own cause": "ValueError",
    "group": "ExceptionGroup",
    "holds things": "ValueError",
}


@pytest.mark.smoke
def test_exits_and_interrupts_of_a_handler_are_failures_and_cost_no_slot(scene: Scene) -> None:
    worker = scene.start("a", slots=2)
    jobs = {
        enqueue(task, how): name
        for task in (unruly.leave, unruly.leave_async)
        for how, name in LEAVES.items()
        for _ in range(2)
    }
    scene.reaches("failed", *jobs, within=40)
    for job_id, name in jobs.items():
        assert scene.kinds(job_id) == ["enqueued", *["claimed", "retried"], "claimed", "failed"]
        errors = scene.result(job_id).errors
        assert [error.exception_class.__name__ for error in errors] == [name, name]
        assert len(scene.begins(job_id)) == 2

    seconds = enqueue_many(tasks.rest, [[1.0]] * 10)
    scene.succeeds(*seconds, within=30)
    began = min(scene.begins(job_id)[0].at for job_id in seconds)
    ended = max(mark.at for mark in scene.marks(mark="end"))
    assert (ended - began).total_seconds() < 5 + 2.5
    after_check(scene, worker)
    worker.signal(signal.SIGINT)
    assert worker.wait(10) == 0


def test_an_exception_that_cannot_be_shown_or_imported_is_recorded(scene: Scene) -> None:
    worker = scene.start("a", slots=2)
    jobs = {enqueue(unruly.raise_odd, how): name for how, name in ODD.items()}
    scene.reaches("failed", *jobs, within=40)
    for job_id, name in jobs.items():
        assert scene.kinds(job_id) == ["enqueued", "claimed", "retried", "claimed", "failed"]
        stored = [event.data["error"] for event in scene.events(job_id, "retried", "failed")]
        assert all(error["class"].endswith(name) for error in stored)
        assert all("raise_odd" in error["traceback"] for error in stored)
        for error in scene.result(job_id).errors:
            # The class itself where it can be imported, else one that stands for it.
            assert issubclass(error.exception_class, BaseException)
            assert "raise_odd" in error.traceback
    after_check(scene, worker)


def raise_at_enqueue(**kwargs: object) -> None:
    raise RuntimeError("a receiver at the enqueue")


@pytest.mark.parametrize(
    "cases",
    [
        ["started", "finished", "started,finished"],
        ["logging", "started,finished,logging"],
    ],
    ids=["receivers", "logging"],
)
def test_receivers_and_logging_that_raise_decide_nothing(scene: Scene, cases: list[str]) -> None:
    env = {"RELAY_TEST_APPS": "tests.process.faulty.Faulty"}
    workers = [
        scene.start(
            f"faulty-{number}",
            queues=[case.replace(",", "-")],
            env={**env, "RELAY_TEST_FAULTS": case},
        )
        for number, case in enumerate(cases)
    ]
    jobs = {}
    compat.task_enqueued.connect(raise_at_enqueue)
    try:
        for case in cases:
            queue = case.replace(",", "-")
            jobs[case] = [
                enqueue(tasks.succeed_or_raise, well, queue=queue) for well in (True, False)
            ]
    finally:
        compat.task_enqueued.disconnect(raise_at_enqueue)
    for case, (well, not_at_first) in jobs.items():
        scene.succeeds(well, not_at_first, within=12)
        assert scene.kinds(well) == ["enqueued", "claimed", "succeeded"], case
        assert scene.kinds(not_at_first)[1:] == ["claimed", "retried", "claimed", "succeeded"], case
        assert (len(scene.begins(well)), len(scene.begins(not_at_first))) == (1, 2), case
    for worker in workers:
        # Errors of receivers are told with their traceback.
        worker.provoked = True
    after_check(scene, *workers)
    for worker, case in zip(workers, cases, strict=True):
        if "logging" not in case:
            assert (raise_at_start.__qualname__ in worker.said) == ("started" in case)
            assert (raise_at_end.__qualname__ in worker.said) == ("finished" in case)


def test_receivers_are_told_once_of_each_end(scene: Scene) -> None:
    """Each call of a receiver that raises is a line in the log."""
    env = {"RELAY_TEST_APPS": "tests.process.faulty.Faulty", "RELAY_TEST_FAULTS": "finished"}
    worker = scene.start("a", slots=1, env=env)
    succeeds = enqueue(tasks.succeed_or_raise, True)
    fails = enqueue(tasks.succeed_or_raise.using(max_attempts=1), False)
    scene.reaches("failed", fails, within=40)
    scene.succeeds(succeeds, *(enqueue(tasks.noop) for _ in range(3)))
    for job_id in (succeeds, fails):
        line = f"about job {job_id}\n"
        wait_until(lambda line=line: line in worker.said, 20, what="a receiver was told")
        assert worker.said.count(line) == 1
