"""Jobs that run longer than a lease, also while their worker stops, run once."""

from __future__ import annotations

import signal
from datetime import datetime
from itertools import pairwise

import pytest

from django_relay.models import Lease

from . import tasks
from .aftercheck import after_check
from .scene import Scene, enqueue
from .waiting import let_pass, wait_until

LEASE = 6.0

pytestmark = pytest.mark.process


class Ends:
    """The lease ends that were seen, and when: sampled while a test waits for something else."""

    def __init__(self) -> None:
        self.seen: dict[int, list[tuple[datetime, datetime]]] = {}

    def sample(self, scene: Scene) -> None:
        """Look at all leases once."""
        now = scene.now()
        for job_id, end in Lease.objects.values_list("job_id", "expires_at"):
            ends = self.seen.setdefault(job_id, [])
            if not ends or ends[-1][1] != end:
                ends.append((now, end))

    def longest_pause(self, job_id: int) -> float:
        """The longest time for which the job's lease did not move, in seconds."""
        times = [at for at, _ in self.seen[job_id]]
        return max((b - a).total_seconds() for a, b in pairwise(times))


def test_a_job_longer_than_its_lease_runs_once_while_its_lease_moves_on(scene: Scene) -> None:
    """Four at once: plain; its worker stopping; that with a shorter one beside it; on the GIL."""
    names = ["plain", "stopping", "beside", "gil"]
    other = scene.start("other", queues=names)
    gate = scene.occupy(other)
    patient = ["--grace", "60"]
    workers = {name: scene.start(name, queues=[name], slots=2, flags=patient) for name in names}
    long = {name: enqueue(tasks.rest, 25, queue=name) for name in names[:3]}
    long["gil"] = enqueue(tasks.hog, 13, queue="gil")
    short = enqueue(tasks.rest, 12, queue="beside")
    for job_id in (*long.values(), short):
        scene.begun(job_id, within=60)
    gate.touch()
    let_pass(3)
    stopping = ["stopping", "beside", "gil"]
    for name in stopping:
        workers[name].signal(signal.SIGTERM)

    ends = Ends()

    def all_ended() -> bool:
        ends.sample(scene)
        return len(scene.marks(mark="end")) == len(long) + 2

    wait_until(all_ended, 60, what="the long jobs end", pause=0.2)
    scene.succeeds(*long.values(), short)
    assert scene.job(long["gil"]).result > 2 * LEASE
    for name in stopping:
        assert workers[name].wait(10) == 0
    for job_id in (*long.values(), short):
        assert len(scene.begins(job_id)) == 1
        assert scene.kinds(job_id) == ["enqueued", "claimed", "succeeded"]
        assert ends.longest_pause(job_id) < 2.5
    after_check(scene, other, workers["plain"])
