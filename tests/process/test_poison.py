"""A job that kills whichever process runs it is stopped, and takes no other job with it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from django.db import connection

from . import LONG, tasks, unruly
from .aftercheck import after_check
from .scene import Scene, Scenes, enqueue, enqueue_many
from .waiting import wait_until

pytestmark = pytest.mark.process

KINDS = ["kill", "exit", "crash"]

SUSPECT = "UPDATE django_relay_job SET losses = 1, queue = 'default' WHERE id = %s"


@dataclass(frozen=True, slots=True)
class Story:
    """What became of one poison job and of the twenty jobs around it."""

    state: str
    counters: tuple[int, int]
    spacing: list[float]
    put_off: list[bool]
    error: type[Exception]
    reason: str
    failures_of_others: int
    losses_of_others: int


@pytest.fixture(scope="module")
def stories(scenes: Scenes) -> dict[str, list[Story]]:
    """Three workers of four slots, each with a poison job among twenty innocent ones.

    The long form plays them again and again, which makes more than a hundred poison jobs.
    """
    with scenes("poison") as scene:
        workers = [scene.start(how, queues=[how], slots=4) for how in KINDS]
        rounds = [play(scene) for _ in range(34 if LONG else 1)]
        after_check(scene, *workers)
        return {how: [found[how] for found in rounds] for how in KINDS}


def play(scene: Scene) -> dict[str, Story]:
    """Give each worker its jobs and tell what became of them."""
    innocents, poisons = {}, {}
    for how in KINDS:
        innocents[how] = enqueue_many(tasks.rest, [[2.0]] * 5, queue=how)
        poisons[how] = enqueue(unruly.poison, how, queue=how)
        innocents[how] += enqueue_many(tasks.rest, [[2.0]] * 15, queue=how)
    ended = scene.reaches("failed", *poisons.values(), within=90)
    found = {}
    for how, job in zip(KINDS, ended, strict=True):
        others = scene.succeeds(*innocents[how], within=60)
        begins = [mark.at for mark in scene.begins(job.pk)]
        (error,) = scene.result(job.pk).errors[-1:]
        found[how] = Story(
            state=job.state,
            counters=(job.failures, job.losses),
            spacing=[(b - a).total_seconds() for a, b in pairwise(begins)],
            put_off=["run_after" in each.data for each in scene.events(job.pk, "rescued")],
            error=error.exception_class,
            reason=error.traceback or str(scene.events(job.pk, "failed")[0].data["error"]),
            failures_of_others=sum(each.failures for each in others),
            losses_of_others=max(each.losses for each in others),
        )
    return found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", KINDS)
def test_a_job_that_kills_its_process_fails_after_three_losses(
    stories: dict[str, list[Story]], how: str
) -> None:
    for story in stories[how]:
        assert story.state == "failed"
        assert story.counters == (0, 3)
        assert len(story.spacing) == 2
        assert story.put_off == [False, True]
        assert story.spacing[1] > 4.0
        assert story.error.__name__ == "WorkerLost"
        assert "lost" in story.reason


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", KINDS)
def test_jobs_beside_it_succeed_and_lose_their_process_once_at_most(
    stories: dict[str, list[Story]], how: str
) -> None:
    for story in stories[how]:
        assert story.failures_of_others == 0
        assert story.losses_of_others <= 1


@pytest.mark.smoke
def test_a_job_that_kills_its_process_may_be_the_only_one(scene: Scene) -> None:
    worker = scene.start("a", slots=2)
    job_id = enqueue(unruly.poison.using(max_attempts=1), "kill")
    (job,) = scene.reaches("failed", job_id)
    assert (job.failures, job.losses) == (0, 1)
    assert len(scene.begins(job_id)) == 1
    after_check(scene, worker)


def test_a_job_that_must_run_alone_holds_up_nobody_and_gets_a_child_of_its_own(
    scene: Scene,
) -> None:
    worker = scene.start("a", slots=2)
    gate = scene.directory / "gate"
    held = enqueue(tasks.hold, str(gate))
    scene.begun(held, within=40)
    suspect = enqueue(tasks.noop, queue="later")
    with connection.cursor() as cursor:
        cursor.execute(SUSPECT, [suspect])
    quick = enqueue_many(tasks.noop, [[]] * 20)
    scene.succeeds(suspect, *quick, within=40)
    assert scene.job(held).state == "running"
    (own,) = scene.events(suspect, "claimed")
    assert own.worker not in {event.worker for job in quick for event in scene.events(job)}
    assert len(worker.children) == 2
    wait_until(lambda: len(worker.children) == 1, 60, what="the child of its own has ended")
    gate.touch()
    scene.succeeds(held)
    after_check(scene, worker)


def test_no_job_waits_behind_one_that_runs_alone_in_the_only_child(scene: Scene) -> None:
    worker = scene.start("a", slots=2)
    scene.succeeds(enqueue(tasks.noop), within=40)
    gate = scene.directory / "gate"
    suspect = enqueue(tasks.hold, str(gate), queue="later")
    with connection.cursor() as cursor:
        cursor.execute(SUSPECT, [suspect])
    scene.begun(suspect, within=40)
    scene.succeeds(*enqueue_many(tasks.noop, [[]] * 20), within=40)
    assert scene.job(suspect).state == "running"
    gate.touch()
    scene.succeeds(suspect)
    after_check(scene, worker)


def test_a_lane_with_nothing_to_do_is_woken_for_the_next_such_job(scene: Scene) -> None:
    worker = scene.start("a", slots=2, flags=["--poll", "60"])
    scene.succeeds(enqueue(tasks.noop), within=40)
    suspects = [enqueue(tasks.noop, queue="later") for _ in range(2)]
    for suspect in suspects:
        with connection.cursor() as cursor:
            cursor.execute(SUSPECT, [suspect])
        # Its wake-up reaches an ordinary child, whose claim sees that the other one waits.
        scene.succeeds(enqueue(tasks.noop), suspect, within=40)
    (first,), (second,) = (scene.events(suspect, "claimed") for suspect in suspects)
    assert first.worker == second.worker
    after_check(scene, worker)


def test_a_lane_with_nothing_to_do_finds_the_next_such_job_while_every_slot_is_busy(
    scene: Scene,
) -> None:
    worker = scene.start("a", slots=1)
    gate = scene.directory / "gate"
    held = enqueue(tasks.hold, str(gate))
    scene.begun(held, within=40)
    for _ in range(2):
        suspect = enqueue(tasks.noop, queue="later")
        with connection.cursor() as cursor:
            cursor.execute(SUSPECT, [suspect])
        scene.succeeds(suspect, within=40)
    assert scene.job(held).state == "running"
    gate.touch()
    scene.succeeds(held)
    after_check(scene, worker)
