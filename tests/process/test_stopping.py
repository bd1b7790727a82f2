"""Signals: no new work after the first, an end within two seconds of the second."""

from __future__ import annotations

import random
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, connections

from django_relay.models import Worker as Row

from . import LONG, tasks
from .aftercheck import after_check
from .namespaces import NEW_PIDS, why_not
from .scene import Scene, enqueue, enqueue_many
from .waiting import let_pass, wait_until
from .workers import Worker, runs

pytestmark = pytest.mark.process

POLL = 0.5

SLOW_CLAIMS = """
CREATE OR REPLACE FUNCTION slow_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER slow_commit AFTER UPDATE ON django_relay_job
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.state = 'running')
EXECUTE FUNCTION slow_commit()
"""


@pytest.fixture
def slow_claims(scene: Scene):
    """Make the commit of each claim take half a second."""
    with connection.cursor() as cursor:
        cursor.execute(SLOW_CLAIMS)
    yield
    for worker in scene.workers:
        worker.end()
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER slow_commit ON django_relay_job")


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("slow_claims")
def test_a_stop_while_a_claim_commits_loses_nothing_and_costs_no_attempt(scene: Scene) -> None:
    """Rounds of start, claim and stop, in four rows at once on queues of their own."""
    lanes, rounds = 4, 13 if LONG else 3
    chance = random.Random(10)
    delays = [[chance.uniform(0, 0.7) for _ in range(rounds)] for _ in range(lanes)]
    jobs: list[list[int]] = [[] for _ in range(lanes)]
    firsts: list[list[int]] = [[] for _ in range(lanes)]

    def ready(worker: Worker, lane: int) -> None:
        """Wait until a worker claims: it has run what its own queue holds, and what was left."""
        firsts[lane].append(enqueue(tasks.noop, queue=worker.own))
        scene.succeeds(firsts[lane][-1], *jobs[lane][-1:], within=60)

    def play(lane: int) -> None:
        try:
            for number, delay in enumerate(delays[lane]):
                worker = scene.start(f"{lane}-{number}", queues=[f"lane-{lane}"], slots=2)
                ready(worker, lane)
                jobs[lane].append(enqueue(tasks.noop, queue=f"lane-{lane}"))
                let_pass(delay)
                assert worker.stop(20) == 0
                job = scene.job(jobs[lane][-1])
                assert job.state in {"ready", "successful"}
                assert (job.failures, job.losses, job.interruptions) == (0, 0, 0)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(lanes) as pool:
        for played in [pool.submit(play, lane) for lane in range(lanes)]:
            played.result()
    last = scene.start("last", queues=[f"lane-{lane}" for lane in range(lanes)], slots=2 * lanes)
    for lane in range(lanes):
        ready(last, lane)
        for job_id, first in zip(jobs[lane], firsts[lane][1:], strict=True):
            (began,), (following,) = scene.begins(job_id), scene.begins(first)
            late = (began.at - following.at).total_seconds()
            assert late < 2 * POLL, "the next worker's first claim passed it by"
    after_check(scene, last)


@pytest.mark.smoke
@pytest.mark.skipif(bool(why_not()), reason=str(why_not()))
def test_process_1_takes_nothing_new_after_the_first_signal_and_exits_0(scene: Scene) -> None:
    worker = scene.start("a", slots=2, wrapped=NEW_PIDS)
    jobs = enqueue_many(tasks.rest, [[1.0]] * 30)
    wait_until(lambda: len(scene.begins()) >= 5, 60, what="five jobs have begun")
    signalled = scene.now()
    worker.signal(signal.SIGTERM)
    assert worker.wait(20) == 0

    assert max((m.at - signalled).total_seconds() for m in scene.begins()) < 1.0
    begun = {mark.job_id for mark in scene.begins()}
    for job in map(scene.job, jobs):
        assert job.state == ("successful" if job.pk in begun else "ready")
        assert scene.kinds(job.pk).count("claimed") == scene.kinds(job.pk).count("released") + (
            job.pk in begun
        )
    after_check(scene)


@pytest.mark.smoke
def test_a_second_signal_ends_the_group_within_two_seconds_with_code_3(scene: Scene) -> None:
    """Two workers at once: a second SIGTERM, and a SIGINT as the second."""
    seconds = {"term": signal.SIGTERM, "int": signal.SIGINT}
    workers = {name: scene.start(name, queues=[name], flags=["--grace", "120"]) for name in seconds}
    jobs = {name: enqueue(tasks.linger, 60, 0.1, queue=name) for name in seconds}
    for job_id in jobs.values():
        scene.begun(job_id, within=60)
    for worker in workers.values():
        worker.signal(signal.SIGTERM)
        worker.signal(signal.SIGTERM)
    let_pass(3)
    for name, worker in workers.items():
        assert worker.alive, "two signals within a second are one"
        group = worker.group
        worker.signal(seconds[name])
        assert worker.wait(2) == 3
        assert not any(map(runs, group))
    last = scene.start("last", queues=list(seconds))
    scene.succeeds(*jobs.values(), within=30)
    assert [len(scene.begins(job_id)) for job_id in jobs.values()] == [2, 2]
    after_check(scene, last)


def test_a_stop_gives_back_at_once_what_has_not_begun(scene: Scene) -> None:
    worker = scene.start("a", slots=2, flags=["--prefetch", "2", "--grace", "3"])
    running = enqueue_many(tasks.rest, [[2.0]] * 2)
    for job_id in running:
        scene.begun(job_id)
    waiting = enqueue_many(tasks.noop, [[]] * 6)
    wait_until(
        lambda: [job_id for job_id in waiting if scene.lease(job_id)],
        5,
        what="jobs are fetched ahead",
    )
    asked = scene.now()
    worker.signal(signal.SIGTERM)
    assert worker.wait(10) == 0
    for job_id in waiting:
        job = scene.job(job_id)
        assert (job.state, job.interruptions) == ("ready", 0)
        for event in scene.events(job_id, "released"):
            assert not event.data["began"]
            assert (event.at - asked).total_seconds() < 1.0
    scene.succeeds(*running)
    after_check(scene)


def test_what_a_stopped_worker_gives_back_wakes_one_that_sleeps(scene: Scene) -> None:
    stopped = scene.start("a", flags=["--grace", "0.2", "--lease", "60"])
    gate = scene.directory / "gate"
    held = enqueue(tasks.hold, str(gate), queue=stopped.own)
    scene.begun(held, within=40)
    other = scene.start("b", queues=[stopped.own], flags=["--poll", "60", "--lease", "60"])
    sleeps = Row.objects.filter(waiting=True, id__contains=f"-{other.pid}-")
    wait_until(lambda: sleeps.exists(), 40, what="the other one sleeps")
    stopped.signal(signal.SIGTERM)
    scene.begun(held, 2, within=30)
    gate.touch()
    scene.succeeds(held)
    after_check(scene, other)


def test_a_child_that_hears_nothing_is_killed_after_its_grace_and_costs_no_loss(
    scene: Scene,
) -> None:
    """Its handler holds the GIL. Five seconds beyond the grace are over."""
    worker = scene.start("a", flags=["--grace", "0.5"])
    job_id = enqueue(tasks.hog, 40)
    scene.begun(job_id)
    worker.signal(signal.SIGTERM)
    assert worker.wait(25) == 0
    assert scene.kinds(job_id) == ["enqueued", "claimed", "released"]
    job = scene.job(job_id)
    assert (job.losses, job.interruptions) == (0, 1)
    after_check(scene)
