"""What must hold after every case, whatever it did to the workers.

(a) The same worker still takes a job within five seconds and runs as many at once as configured.
(b) No session of theirs has been idle in a transaction for over two seconds.
(c) No job is running without a live lease. (d) Each job's events tell the ledger's story.
(e) No traceback of the worker's own in its log, unless the case provoked it.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import psycopg
from django.db.models import Max

from django_relay.models import Event, Job
from django_relay.states import EventKind, replay

from . import tasks
from .scene import Scene, enqueue
from .waiting import wait_until
from .workers import Worker

IDLE = """
SELECT application_name, query FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND state LIKE 'idle in transaction%' AND state_change < clock_timestamp() - interval '2 seconds'
"""

LEASELESS = """
SELECT j.id FROM django_relay_job AS j
LEFT JOIN django_relay_lease AS l ON l.job_id = j.id AND l.expires_at > clock_timestamp()
WHERE j.state = 'running' AND l.job_id IS NULL
UNION ALL
SELECT l.job_id FROM django_relay_lease AS l
LEFT JOIN django_relay_job AS j ON j.id = l.job_id AND j.state = 'running'
WHERE j.id IS NULL
"""

#: Jobs, the events of each in order, and how many handlers began for each job and claim.
Story = tuple[list[Job], dict[int, list[Event]], Counter[tuple[int, int]]]

#: Endings after which a handler that began has had its say.
SAID = {EventKind.SUCCEEDED, EventKind.RETRIED, EventKind.SNOOZED}


def after_check(scene: Scene, *workers: Worker) -> None:
    """Check (a) to (e); ``workers`` are those that must still be alive and well."""
    _still_work(scene, workers)
    with psycopg.connect(scene.place.url, autocommit=True) as session:
        idle = session.execute(IDLE).fetchall()
        assert not idle, f"idle in transaction: {idle}"
        wait_until(
            lambda: not session.execute(LEASELESS).fetchall(),
            3,
            what="no running job without a live lease, no lease without a running job",
        )
    histories_agree(scene)
    for worker in scene.workers:
        assert worker.provoked or not _tracebacks(worker.said), worker.said


def _still_work(scene: Scene, workers: tuple[Worker, ...]) -> None:
    for worker in workers:
        assert worker.alive, f"worker {worker.name} ended with {worker.process.returncode}"
    asked = [enqueue(tasks.noop, queue=worker.own) for worker in workers]
    scene.succeeds(*asked, within=5)
    met = [
        enqueue(tasks.meet, worker.name, worker.capacity, queue=worker.own)
        for worker in workers
        for _ in range(worker.capacity)
    ]
    jobs = scene.succeeds(*met, within=20)
    assert all(job.result for job in jobs), "fewer jobs run at once than there are slots"


def histories_agree(scene: Scene) -> None:
    """Check (d): histories replay, and each claim's handler began as often as its events say."""
    story = wait_until(lambda: _story(scene), 20, what="a moment in which no event comes")
    assert story
    jobs, events_of, begun = story
    for job in jobs:
        events = events_of.get(job.pk, [])
        states = replay((event.kind, (event.data or {}).get("state")) for event in events)
        promoted = {"ready"} if "scheduled" in states else set()
        assert job.state in states | promoted, f"job {job.pk} is {job.state}, not {states}"
        claims = {event.claim for event in events if event.kind == EventKind.CLAIMED}
        for job_id, claim in begun:
            assert job_id != job.pk or claim in claims, f"job {job_id} began without claim {claim}"
        for event in events:
            _agrees(event, begun.get((job.pk, event.claim or 0), 0))


def _story(scene: Scene) -> Story | None:
    """Jobs, their events and who began, of one moment; None where an event came as they were read.

    What a case left scheduled goes on meanwhile, and three readings one after the other
    would tell of three moments.
    """
    before = Event.objects.count(), Event.objects.aggregate(Max("id"))
    jobs = list(Job.objects.all())
    events: dict[int, list[Event]] = {}
    for event in Event.objects.order_by("id"):
        events.setdefault(event.job_id, []).append(event)
    begun = Counter((mark.job_id, mark.claim) for mark in scene.begins())
    after = Event.objects.count(), Event.objects.aggregate(Max("id"))
    return (jobs, events, begun) if before == after else None


def _tracebacks(said: str) -> bool:
    """Whether a log has tracebacks of the worker's own.

    Django 5.2's backport logs each failed task with the error of its handler.
    """
    return any(
        line.startswith("Traceback") and not before.startswith("Task id=")
        for before, line in pairwise(["", *said.splitlines()])
    )


def _agrees(event: Event, begins: int) -> None:
    what = f"job {event.job_id}, {event.kind} of claim {event.claim}: {begins} handlers began"
    assert begins <= 1, what
    data = event.data or {}
    if event.kind in SAID:
        # A task that cannot be found or called has no handler to begin.
        uncalled = data.get("error", {}).get("class", "").endswith(("TaskNotFound", "TypeError"))
        assert begins == (0 if uncalled else 1), what
    if event.kind == EventKind.RELEASED and not data.get("began"):
        assert begins == 0, what
