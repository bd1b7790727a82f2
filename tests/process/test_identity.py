"""A job belongs to one claim's token: names, hosts, pids and rows of workers prove nothing."""

from __future__ import annotations

import signal

import pytest
from django.db import connection

from . import tasks
from .aftercheck import after_check
from .namespaces import NEW_PIDS, why_not
from .scene import Scene, enqueue
from .workers import send

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(bool(why_not()), reason=str(why_not())),
]

LEASE, POLL = 6.0, 0.5


def test_a_new_worker_with_the_same_host_and_pid_does_not_keep_the_old_ones_job(
    scene: Scene,
) -> None:
    """Twice at once; the second time every row about workers is deleted after the kill."""
    cases = ["named", "deleted"]
    old = {case: scene.start(case, queues=[case], wrapped=NEW_PIDS) for case in cases}
    jobs = {case: enqueue(tasks.linger, 30, 0.2, queue=case) for case in cases}
    for job_id in jobs.values():
        scene.begun(job_id, within=60)
    killed = scene.now()
    for worker in old.values():
        send(worker.group, signal.SIGKILL)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_relay_worker")
    new = [scene.start(f"{case}-again", queues=[case], slots=2, wrapped=NEW_PIDS) for case in cases]
    busy = [enqueue(tasks.rest, 3, queue=worker.own) for worker in new]
    scene.succeeds(*jobs.values(), within=30)
    for job_id in jobs.values():
        again = scene.begins(job_id)[1]  # kept, it would not begin again before the job has ended
        assert (again.at - killed).total_seconds() < LEASE + 2 * POLL + 12
        names = [event.worker.split("/")[0] for event in scene.events(job_id, "claimed")]
        host_and_pid = {name.rpartition("-")[0] for name in names}
        assert len(host_and_pid) == 1
        assert len(set(names)) == 2
        assert scene.kinds(job_id) == ["enqueued", "claimed", "rescued", "claimed", "succeeded"]
    scene.succeeds(*busy)
    after_check(scene, *new)
