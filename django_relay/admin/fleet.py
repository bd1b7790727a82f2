"""The workers and what they hold, by the database's clock; and who serves which queue.

That a worker is alive is what it says of itself and is for people to know; that it owns a job is
told by the lease alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import OuterRef, Subquery
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from django_relay.models import Job, Lease, Worker

from . import words
from .columns import Clipped
from .places import Place
from .words import Moment

#: A worker says every five seconds that it is there; after three misses it counts as silent.
SILENT_AFTER = timedelta(seconds=15)

#: Workers and leases that a page shows, and running jobs of one worker that it names.
MOST_WORKERS, MOST_LEASES, NAMED = 100, 500, 20


class _Worker(NamedTuple):
    id: str
    queues: Any
    processes: int
    slots: int
    version: str
    started_at: datetime
    seen_at: datetime
    waiting: bool
    stopped_at: datetime | None


class _Lease(NamedTuple):
    job_id: int
    task: str | None
    state: str | None
    worker: str
    claim: int
    acquired_at: datetime
    begun_at: datetime | None
    expires_at: datetime
    deadline: datetime | None
    renewals: int
    cancel_requested_at: datetime | None


def _columns(row: type[Any]) -> tuple[Any, ...]:
    """Return what to read for a row; of a lease's job, which may have gone, what there is."""
    job = Job.objects.filter(pk=OuterRef("pk"))
    columns: dict[str, Any] = {each: Clipped(each) for each in row._fields if each.endswith("_at")}
    if row is _Lease:
        columns |= {each: Subquery(job.values(each)) for each in ("task", "state")}
    return tuple(columns.get(each, each) for each in row._fields)


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A lease for the eye: whose, on what, and until when by the database's clock.

    ``ends`` is that end, ``seen`` when it was read.
    """

    job_id: int
    url: str
    task: str
    letter: str
    hue: int
    worker: str
    held: str
    acquired: Moment | None
    until: Moment | None
    ends: datetime
    seen: datetime
    over: bool
    deadline: Moment | None
    renewals: int
    asked: Moment | None
    orphan: bool


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker for the eye: alive or not and since when, what it serves and runs."""

    id: str
    condition: str
    label: str
    since: Moment | None
    started: Moment | None
    queues: list[str] | None
    processes: int
    slots: int
    version: str
    sleeping: bool
    running: list[LeaseRow]
    more: int

    @property
    def alive(self) -> bool:
        return self.condition == "alive"

    @property
    def capacity(self) -> int:
        """How many jobs it runs at a time."""
        return self.processes * self.slots

    @property
    def busy(self) -> int:
        """How many jobs it runs now."""
        return len(self.running) + self.more

    def serves(self, queue: str) -> bool:
        """Tell whether it would take a job of ``queue``."""
        return self.alive and (self.queues is None or queue in self.queues)


def leases(place: Place, *, worker: str = "") -> tuple[list[LeaseRow], bool]:
    """Read the leases that end first, and tell whether there are more than these."""
    found = Lease.objects.using(place.database)
    if worker:
        found = found.filter(worker__startswith=f"{worker}/")
    rows = found.order_by("expires_at", "pk").values_list(Now(), *_columns(_Lease))
    read = list(rows[: MOST_LEASES + 1])
    shown = [_lease(_Lease._make(row[1:]), place, row[0]) for row in read[:MOST_LEASES]]
    return shown, len(read) > MOST_LEASES


def lease_of(place: Place, job_id: int) -> LeaseRow | None:
    """Read the lease on a job, if it is held."""
    found = Lease.objects.using(place.database).filter(pk=job_id)
    row = found.values_list(Now(), *_columns(_Lease)).first()
    return None if row is None else _lease(_Lease._make(row[1:]), place, row[0])


def workers(place: Place, held: Iterable[LeaseRow] = ()) -> list[WorkerRow]:
    """Read the workers seen last, those alive first, with what of ``held`` each holds."""
    found = Worker.objects.using(place.database).order_by("-seen_at", "pk")
    rows = found.values_list(Now(), *_columns(_Worker))[:MOST_WORKERS]
    by_worker: dict[str, list[LeaseRow]] = {}
    for lease in held:
        by_worker.setdefault(lease.worker.rpartition("/")[0], []).append(lease)
    read = [
        _worker(row, by_worker.get(row.id, []), now)
        for now, row in ((read[0], _Worker._make(read[1:])) for read in rows)
    ]
    return sorted(read, key=lambda worker: not worker.alive)


def _lease(row: _Lease, place: Place, now: datetime) -> LeaseRow:
    return LeaseRow(
        job_id=row.job_id,
        url=place.job(row.job_id),
        task=row.task or "",
        letter=words.letter(row.claim),
        hue=words.hue(row.claim),
        worker=row.worker,
        held=words.span(row.begun_at or row.acquired_at, now),
        acquired=words.moment(row.acquired_at, now),
        until=words.moment(row.expires_at, now),
        ends=row.expires_at,
        seen=now,
        over=row.expires_at <= now,
        deadline=words.moment(row.deadline, now),
        renewals=row.renewals,
        asked=words.moment(row.cancel_requested_at, now),
        orphan=row.state != "running",
    )


def _worker(row: _Worker, held: list[LeaseRow], now: datetime) -> WorkerRow:
    condition, label, since = "alive", _("Alive"), row.started_at
    if row.stopped_at is not None:
        condition, label, since = "stopped", _("Stopped"), row.stopped_at
    elif now - row.seen_at > SILENT_AFTER:
        condition, label, since = "silent", _("Silent"), row.seen_at
    queues = row.queues
    return WorkerRow(
        id=row.id,
        condition=condition,
        label=label,
        since=words.moment(since, now),
        started=words.moment(row.started_at, now),
        queues=[str(name) for name in queues] if isinstance(queues, list) else None,
        processes=row.processes,
        slots=row.slots,
        version=row.version,
        sleeping=row.waiting,
        running=held[:NAMED],
        more=max(len(held) - NAMED, 0),
    )
