"""Everything that one job's page shows, read in a bounded number of queries.

Its history is a recording, cut in the middle where it is long; the replay and the attempts are both
made of that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connections
from django.db.models import FloatField, Func
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_relay import recording, replay
from django_relay.models import Job
from django_relay.recording import Recording, Sight
from django_relay.states import State

from . import attempts, fleet, history, rows, values, words
from .attempts import Attempts
from .fleet import LeaseRow
from .places import Place
from .rows import JobRow, Row
from .values import Value

#: Events that the page shows: the first and the last half of so many.
EVENTS = 120

#: What stands where there is nothing to say.
NOTHING = "\N{EN DASH}"


class _Extra(NamedTuple):
    """What only the job's own page needs of its row."""

    now: datetime
    start_before: datetime | None
    timeout: float | None
    unique_name: str | None
    unique_key: str | None
    limit_key: str | None
    limit_n: int | None


_COLUMNS = (
    Now(),
    "start_before",
    Func(
        "timeout",
        template="EXTRACT(EPOCH FROM %(expressions)s)::float8",
        output_field=FloatField(null=True),
    ),
    "unique_name",
    "unique_key",
    "limit_key",
    "limit_n",
)


class Fact(NamedTuple):
    """One line of what is known of a job; ``title`` is what a pointer learns beyond it."""

    label: str
    text: str
    note: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class JobPage:
    """A job, its lease, its history and its values; None for values that are not to be seen.

    ``replay`` is what the template ``django_relay/replay/body.html`` needs.
    """

    job: JobRow
    facts: list[Fact]
    replay: dict[str, Any]
    attempts: Attempts
    lease: LeaseRow | None
    values: list[Value] | None
    alone: bool


def read(place: Place, job_id: int) -> JobPage | None:
    """Read a job's page; None where there is no such job."""
    found = Job.objects.using(place.database).filter(pk=job_id)
    read = found.values_list(*rows.COLUMNS, *_COLUMNS).first()
    if read is None:
        return None
    row, extra = Row._make(read[: len(Row._fields)]), _Extra._make(read[len(Row._fields) :])
    (job,) = rows.describe([row], place, extra.now)
    lease = fleet.lease_of(place, job_id) if row.state == State.RUNNING else None
    made = _record(place, row, lease)
    if made is None:
        return None
    failed = any("error" in moment.data for moment in made.moments)
    tracebacks = history.tracebacks(place, job_id) if failed else {}
    return JobPage(
        job=job,
        facts=_facts(row, extra, job),
        replay=replay.context(made),
        attempts=attempts.build(row, made, tracebacks, holder=job.holder, now=extra.now),
        lease=lease,
        values=values.read(place, job_id),
        alone=row.state == State.READY and not _served(place, row.queue),
    )


def _record(place: Place, row: Row, lease: LeaseRow | None) -> Recording | None:
    """Record the job's history until now; None where the job has just gone."""
    try:
        made = recording.record(connections[place.database], [row.id], most=EVENTS, hosts=True)
    except LookupError:
        return None
    if lease is None:
        return made
    seen, ends = (1000 * (at - row.enqueued_at).total_seconds() for at in (lease.seen, lease.ends))
    return replace(made, sights=(Sight(seen, row.id, lease.letter, ends, lease.renewals),))


def _served(place: Place, queue: str) -> bool:
    return any(worker.serves(queue) for worker in fleet.workers(place))


def _facts(row: Row, extra: _Extra, job: JobRow) -> list[Fact]:
    now = extra.now
    return [
        Fact(_("Attempt"), job.attempt or _("not begun"), job.trouble),
        Fact(_("Queue"), row.queue, _priority(row)),
        _at(_("Enqueued"), row.enqueued_at, now),
        _started(row, job, now),
        *_next(row, job, now),
        *_run(row, job),
        *([_at(_("Finished"), row.finished_at, now)] if row.finished_at else []),
        *_policy(row, extra, now),
    ]


def _at(label: str, at: datetime | None, now: datetime, note: str = "") -> Fact:
    moment = words.moment(at, now)
    if moment is None:
        return Fact(label, NOTHING, note)
    return Fact(label, moment.ago, note or moment.exact, moment.exact)


def _priority(row: Row) -> str:
    return _("priority %(n)s") % {"n": row.priority} if row.priority else ""


def _started(row: Row, job: JobRow, now: datetime) -> Fact:
    """Say when the first attempt began; of one that still runs its lease knows it."""
    since = row.started_at or (job.holder.since if job.holder else None)
    return _at(_("First started"), since, now, rows.waited(row, since))


def _next(row: Row, job: JobRow, now: datetime) -> list[Fact]:
    if row.state == State.SCHEDULED:
        return [Fact(_("Next run"), job.when_note, words.exact(row.run_after))]
    if row.state in (State.READY, State.BLOCKED):
        return [Fact(_("Next run"), job.when_note)]
    return []


def _run(row: Row, job: JobRow) -> list[Fact]:
    if row.state == State.RUNNING:
        return [Fact(_("Running for"), job.took or NOTHING, job.took_note)]
    return [Fact(_("Last run took"), job.took)] if job.took and row.finished_at else []


def _policy(row: Row, extra: _Extra, now: datetime) -> list[Fact]:
    """Tell the rules that the job was enqueued under, those that say something."""
    facts: list[Any] = []
    if extra.timeout is not None:
        facts.append(Fact(_("Time-out"), words.duration(extra.timeout)))
    if extra.start_before is not None:
        facts.append(_at(_("Must start before"), extra.start_before, now))
    if extra.unique_name is not None:
        held = _("held") if extra.unique_key is not None else _("not held now")
        facts.append(Fact(_("Unique name"), extra.unique_name, held))
    if extra.limit_key is not None:
        n = _("at most %(n)s at a time") % {"n": extra.limit_n}
        facts.append(Fact(_("Limit"), extra.limit_key, n))
    claimed = ngettext("claimed once", "claimed %(n)s times", row.claims) % {"n": row.claims}
    facts.append(Fact(_("Backend"), row.backend, claimed))
    return facts
