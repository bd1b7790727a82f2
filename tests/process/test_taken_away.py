"""A running job is deleted or cancelled: its handler is told, and its worker goes on."""

from __future__ import annotations

import pytest
from django.db import connection

from django_relay import transitions
from django_relay.models import Event, Job

from . import tasks
from .aftercheck import after_check
from .scene import Scene, enqueue
from .waiting import wait_until

pytestmark = pytest.mark.process

LEASE, HEARTBEAT = 6.0, 2.0


def test_a_handler_is_told_within_a_heartbeat_that_its_job_is_not_wanted(scene: Scene) -> None:
    """Deleted by SQL, cancelled by force, asked to stop; each once obeyed and once not."""
    worker = scene.start("a", slots=6)
    jobs = {
        (how, obeys): enqueue(tasks.go_on_until_told, 0, obeys)
        for how in ("deleted", "forced", "asked")
        for obeys in (True, False)
    }
    for job_id in jobs.values():
        scene.begun(job_id)
    ids = {how: [jobs[how, True], jobs[how, False]] for how in ("deleted", "forced", "asked")}
    when = scene.now()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_relay_job WHERE id = ANY (%s)", [ids["deleted"]])
    transitions.cancel(connection, ids["forced"], actor="somebody", force=True)
    transitions.cancel(connection, ids["asked"], actor="somebody")
    wait_until(
        lambda: len(scene.marks(mark="told to stop")) == len(jobs), 10, what="all are told to stop"
    )
    for (how, _), job_id in jobs.items():
        (told,) = scene.marks(job_id, "told to stop")
        # The lease that a deleted row leaves behind is not renewed, and runs out.
        bound = LEASE if how == "deleted" else HEARTBEAT
        assert (told.at - when).total_seconds() < bound + 1

    scene.reaches("cancelled", *ids["forced"], jobs["asked", True])
    # Success counts also when somebody has asked to stop.
    scene.succeeds(jobs["asked", False])
    assert scene.kinds(jobs["asked", True])[2:] == ["cancel_requested", "cancelled"]
    for job_id in ids["forced"]:
        wait_until(lambda job_id=job_id: scene.events(job_id, "refused"), 5, what="it is refused")
        assert scene.kinds(job_id) == ["enqueued", "claimed", "cancelled", "refused"]
        assert scene.events(job_id, "refused")[0].data["reason"] == "cancelled"
    assert not Job.objects.filter(pk__in=ids["deleted"]).exists()
    assert not Event.objects.filter(job_id__in=ids["deleted"], kind="refused").exists()
    with connection.cursor() as cursor:
        # What somebody deletes by hand he deletes with what belongs to it.
        cursor.execute("DELETE FROM django_relay_lease WHERE job_id = ANY (%s)", [ids["deleted"]])
    after_check(scene, worker)
