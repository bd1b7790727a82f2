"""A scene: empty tables, workers that end with it, and what a test asks about its jobs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from django.db import connection

from django_relay import transitions
from django_relay.compat import task_backends
from django_relay.models import Event, Job, Lease
from django_relay.transitions import NewJob

from . import ledger, tasks
from .ledger import Mark
from .places import Place, led_to
from .waiting import wait_until
from .workers import Worker

EMPTY = """
TRUNCATE django_relay_job, django_relay_event, django_relay_lease, django_relay_worker, ledger
RESTART IDENTITY
"""


class Scene:
    """Starts workers and answers questions, by the database's clock and by the ledger."""

    def __init__(self, place: Place, directory: Path) -> None:
        self.place = place
        self.directory = directory
        self.workers: list[Worker] = []
        #: Where handlers write while the database is down on purpose.
        self.ledger_file: Path | None = None

    # Workers -------------------------------------------------------------------------------------

    def start(self, name: str, *, env: dict[str, str] | None = None, **how: Any) -> Worker:
        """Start a worker; see ``Worker`` for what may be said about it."""
        log = self.directory / f"{name}.log"
        worker = Worker(name, log, env=self.environment(**(env or {})), **how)
        self.workers.append(worker)
        return worker

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a worker in this scene."""
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.process.settings",
            "DATABASE_URL": self.place.url,
            "RELAY_LEDGER": self.place.url,
            **({"RELAY_LEDGER_FILE": str(self.ledger_file)} if self.ledger_file else {}),
            **more,
        }

    def close(self) -> None:
        """End what still runs and show the logs, which pytest prints if the test failed."""
        for worker in self.workers:
            worker.end()
        for worker in self.workers:
            print(f"---- log of worker {worker.name}\n{worker.said[-6000:]}")

    def occupy(self, worker: Worker) -> Path:
        """Keep all slots of a worker busy until the returned file is made."""
        gate = self.directory / f"{worker.name}.gate"
        held = [enqueue(tasks.hold, str(gate), queue=worker.own) for _ in range(worker.capacity)]
        for job_id in held:
            self.begun(job_id, within=40)
        return gate

    # The ledger ----------------------------------------------------------------------------------

    def marks(self, job_id: int | None = None, mark: str | None = None) -> list[Mark]:
        """What handlers wrote: of one job or of all, one kind of mark or all."""
        file = self.ledger_file
        return [
            each
            for each in (ledger.read_file(file) if file else ledger.read(self.place.url))
            if job_id in (None, each.job_id) and mark in (None, each.mark)
        ]

    def begins(self, job_id: int | None = None) -> list[Mark]:
        """When handlers began, of one job or of all."""
        return self.marks(job_id, "begin")

    def begun(self, job_id: int, times: int = 1, *, within: float = 20) -> Mark:
        """Wait until a job's handler has begun so often, and return that mark."""
        return wait_until(
            lambda: self.begins(job_id)[times - 1 :],
            within,
            what=f"job {job_id} begins for the {times}. time",
        )[0]

    # The product ---------------------------------------------------------------------------------

    def now(self) -> datetime:
        """The database's clock."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            found: datetime = cursor.fetchone()[0]
            return found

    def job(self, job_id: int) -> Job:
        """The job's row as it is now."""
        found: Job = Job.objects.get(pk=job_id)
        return found

    def lease(self, job_id: int) -> Lease | None:
        """The job's lease, if it has one."""
        return Lease.objects.filter(pk=job_id).first()

    def events(self, job_id: int, *kinds: str) -> list[Event]:
        """The job's events in order, of some kinds or of all."""
        found = Event.objects.filter(job_id=job_id).order_by("id")
        return list(found.filter(kind__in=kinds) if kinds else found)

    def kinds(self, job_id: int) -> list[str]:
        """The kinds of the job's events in order."""
        return [event.kind for event in self.events(job_id)]

    def result(self, job_id: int) -> Any:
        """The job's result through the Tasks API."""
        return task_backends["default"].get_result(str(job_id))

    def reaches(self, state: str, *job_ids: int, within: float = 20) -> list[Job]:
        """Wait until all of these jobs are in a state, and return their rows."""
        wanted = set(job_ids)
        if not wanted:
            return []
        what = f"jobs {sorted(wanted)} are {state}"

        def there() -> list[Job]:
            found = list(Job.objects.filter(pk__in=wanted, state=state).order_by("id"))
            return found if len(found) == len(wanted) else []

        try:
            return wait_until(there, within, what=what)
        except AssertionError as late:
            for job_id in sorted(wanted)[:5]:
                late.add_note(f"job {job_id}: {self.job(job_id).state}, {self.kinds(job_id)[-9:]}")
            raise

    def succeeds(self, *job_ids: int, within: float = 20) -> list[Job]:
        """Wait until all of these jobs are successful, and return their rows."""
        return self.reaches("successful", *job_ids, within=within)


def enqueue(task: Any, *args: Any, queue: str = "default", **kwargs: Any) -> int:
    """Enqueue through the public call and return the job's id."""
    return int(task.using(queue_name=queue).enqueue(*args, **kwargs).id)


def enqueue_many(task: Any, calls: Sequence[Sequence[Any]], *, queue: str = "default") -> list[int]:
    """Enqueue a task once for each list of arguments."""
    return [enqueue(task, *call, queue=queue) for call in calls]


def enqueue_path(path: str, *args: Any) -> int:
    """Enqueue a task by its path, which need not lead to anything here."""
    job = NewJob(
        backend="default",
        queue="default",
        task=path,
        args=json.dumps(args),
        kwargs="{}",
        max_attempts=3,
    )
    return transitions.enqueue(connection, job).id


#: Opens a scene by a name; for fixtures that play one for several tests.
Scenes = Callable[[str], AbstractContextManager["Scene"]]


@contextmanager
def opened(place: Place, directory: Path) -> Iterator[Scene]:
    """Open a scene on a place that nobody else uses."""
    with psycopg.connect(place.url, autocommit=True) as session:
        session.execute(EMPTY)
    with led_to(place.url):
        scene = Scene(place, directory)
        try:
            yield scene
        finally:
            scene.close()
