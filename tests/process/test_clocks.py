"""Nobody's clock counts but the database's."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from django_relay.models import Lease

from . import tasks
from .aftercheck import after_check
from .scene import Scene, enqueue
from .waiting import wait_until
from .workers import Worker

pytestmark = pytest.mark.process

LEASE, POLL = 6.0, 0.5

#: Moves the wall clock of a Python process, as far as Python's own functions tell.
SITECUSTOMIZE = """
import datetime, os, time

real_time, real = time.time, datetime.datetime
shift = float(os.environ["RELAY_TEST_SHIFT"])
started = time.monotonic()

def moved():
    # From the sixth second on it is set back by ten minutes.
    return shift - (600 if time.monotonic() - started > 6 else 0)

class Kind(type):
    def __instancecheck__(cls, value):
        return isinstance(value, real)

    def __subclasscheck__(cls, other):
        return issubclass(other, real)

class Moved(real, metaclass=Kind):
    @classmethod
    def now(cls, tz=None):
        return real.now(tz) + datetime.timedelta(seconds=moved())

    @classmethod
    def utcnow(cls):
        return real.now(datetime.UTC).replace(tzinfo=None) + datetime.timedelta(seconds=moved())

time.time = lambda: real_time() + moved()
time.time_ns = lambda: int(time.time() * 1e9)
datetime.datetime = Moved
"""


def workers_off(scene: Scene, shifts: dict[str, int]) -> dict[str, Worker]:
    """Start workers whose wall clocks are off by so many seconds."""
    (scene.directory / "sitecustomize.py").write_text(SITECUSTOMIZE)
    path = os.pathsep.join([str(scene.directory), os.environ.get("PYTHONPATH", "")])
    return {
        name: scene.start(
            name,
            queues=["all", name],
            slots=4,
            env={"PYTHONPATH": path, "RELAY_TEST_SHIFT": str(shift)},
        )
        for name, shift in shifts.items()
    }


def test_workers_whose_clocks_are_an_hour_off_do_everything_by_the_databases_time(
    scene: Scene,
) -> None:
    workers = workers_off(scene, {"ahead": 3600, "behind": -3600})
    shifts = list(workers)
    right = scene.start("right", queues=["all", *shifts], slots=4)
    gate = scene.occupy(right)
    hours = [enqueue(tasks.tell_time, queue=worker.own) for worker in workers.values()]
    told = [float(job.result) for job in scene.succeeds(*hours, within=60)]
    assert told[0] - told[1] > 6000, "the clocks are not off"

    long = [enqueue(tasks.rest, 10, queue=name) for name in shifts]
    for job_id in long:
        scene.begun(job_id)
    gate.touch()
    soon = [enqueue(tasks.enqueue_in, 3.0, "all", queue=worker.own) for worker in workers.values()]
    soon = [int(job.result) for job in scene.succeeds(*soon)]
    late = int(tasks.noop.using(queue_name="all", run_after=timedelta(minutes=30)).enqueue().id)
    retried = [enqueue(tasks.fail_once, queue=worker.own) for worker in workers.values()]

    def all_done() -> bool:
        for lease in Lease.objects.all():
            assert 0 < (lease.expires_at - scene.now()).total_seconds() + 1 < LEASE + 2
        return all(scene.job(job_id).state == "successful" for job_id in (*long, *soon, *retried))

    wait_until(all_done, 40, what="all jobs but the late one are done", pause=0.2)
    assert [len(scene.begins(job_id)) for job_id in long] == [1, 1]
    for job_id in soon:
        late_by = (scene.begins(job_id)[0].at - scene.job(job_id).run_after).total_seconds()
        assert 0 <= late_by < 2 * POLL + 1
    for job_id in retried:
        first, second = (mark.at for mark in scene.begins(job_id))
        assert 3 <= (second - first).total_seconds() < 3 + 2 * POLL + 1
    assert scene.kinds(late) == ["enqueued"]
    for job_id in (*long, *soon, *retried):
        times = [event.at for event in scene.events(job_id)]
        assert times == sorted(times)
        assert abs((times[0] - scene.now()).total_seconds()) < 120
    after_check(scene, right, *workers.values())
