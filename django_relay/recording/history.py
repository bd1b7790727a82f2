"""The reading: the history of jobs out of the database, and looks at their leases meanwhile.

Reads only. Tokens become letters and workers numbers here, so that neither leaves the database.
"""

from __future__ import annotations

import json
import os
import platform
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import django

from django_relay import __version__
from django_relay.transitions import Session

from .document import Mark, Moment, RecordedJob, Recording, Sight

# Locks nothing. Times are milliseconds from the enqueueing of the first of the jobs, on the
# database's clock; so are those that an event's data name.
EVENTS = """
WITH start AS (
  SELECT min(enqueued_at) AS at FROM django_relay_job WHERE id = ANY (%(ids)s)
)
SELECT
  v.job_id, EXTRACT(EPOCH FROM v.at - start.at)::float8 * 1000,
  v.kind, v.claim, v.token::text, v.worker, v.actor,
  v.data - 'error' - 'expired_at' - 'run_after' || jsonb_strip_nulls(jsonb_build_object(
    'expired_ms', round((EXTRACT(EPOCH FROM
      (v.data->>'expired_at')::timestamptz - start.at) * 1000)::numeric, 3),
    'run_after_ms', round((EXTRACT(EPOCH FROM
      (v.data->>'run_after')::timestamptz - start.at) * 1000)::numeric, 3)
  )),
  v.data->'error'->>'class', v.data->'error'->>'message'
FROM django_relay_event AS v CROSS JOIN start
WHERE v.job_id = ANY (%(ids)s)
ORDER BY v.id
"""
JOBS = """
SELECT id, task, queue, state, EXTRACT(EPOCH FROM enqueued_at)::float8
FROM django_relay_job WHERE id = ANY (%(ids)s) ORDER BY id
"""
SERVER = "SELECT current_setting('server_version')"

# Locks nothing: the leases of a queue's jobs as they are now.
LEASES = """
SELECT
  EXTRACT(EPOCH FROM clock_timestamp())::float8, l.job_id, l.token::text,
  EXTRACT(EPOCH FROM l.expires_at)::float8, l.renewals
FROM django_relay_lease AS l JOIN django_relay_job AS j ON j.id = l.job_id
WHERE j.queue = %(queue)s
ORDER BY l.job_id
"""


@dataclass(frozen=True, slots=True)
class Glimpse:
    """A lease as it is in the database: both times in seconds since 1970, by its clock."""

    at: float
    job: int
    token: str
    ends: float
    renewals: int


def letter(number: int) -> str:
    """Return A for the first lease of a job, B for the second, AA after Z."""
    letters = ""
    while number >= 0:
        number, place = divmod(number, 26)
        letters = string.ascii_uppercase[place] + letters
        number -= 1
    return letters


def look(connection: Session, *, queue: str) -> list[Glimpse]:
    """Look at the leases of a queue's jobs, for ``record`` to tell how they moved."""
    with connection.cursor() as cursor:
        cursor.execute(LEASES, {"queue": queue})
        return [Glimpse(*row) for row in cursor.fetchall()]


def record(
    connection: Session,
    job_ids: Sequence[int],
    *,
    experiment: str = "job",
    seen: Iterable[Glimpse] = (),
    marks: Iterable[tuple[float, str, str]] = (),
    settings: Mapping[str, Any] | None = None,
    figures: Mapping[str, Any] | None = None,
) -> Recording:
    """Read the history of jobs from the database.

    ``seen`` are looks at their leases meanwhile. ``marks`` tell what was done from outside: when
    (in seconds since 1970, by the database's clock), what, to whom (a worker's name, its part
    before the slash for all of it, or nothing). Raises LookupError when none of the jobs exists.
    """
    with connection.cursor() as cursor:
        cursor.execute(JOBS, {"ids": list(job_ids)})
        jobs = cursor.fetchall()
        if not jobs:
            raise LookupError(f"none of the jobs {list(job_ids)} exists")
        cursor.execute(EVENTS, {"ids": list(job_ids)})
        rows = cursor.fetchall()
    start = min(job[-1] for job in jobs)
    letters, names = _letters(rows), _names(row[5] for row in rows)
    return Recording(
        experiment=experiment,
        jobs=tuple(RecordedJob(*job[:-1]) for job in jobs),
        moments=tuple(_moment(row, letters, names) for row in rows),
        sights=_sights(seen, start, letters),
        marks=tuple(Mark(_ms(at - start), what, _named(who, names)) for at, what, who in marks),
        settings=dict(settings or {}),
        figures=dict(figures or {}),
        software=software(connection),
        machine=machine(),
    )


def summary(
    connection: Session,
    *,
    experiment: str,
    settings: Mapping[str, Any],
    figures: Mapping[str, Any],
) -> Recording:
    """Keep the figures of an experiment that is not about single jobs."""
    return Recording(
        experiment=experiment,
        jobs=(),
        moments=(),
        settings=dict(settings),
        figures=dict(figures),
        software=software(connection),
        machine=machine(),
    )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _letters(rows: Iterable[Sequence[Any]]) -> dict[str, str]:
    """Give each lease of a job its letter, in the order of the claims."""
    letters: dict[str, str] = {}
    count: dict[int, int] = {}
    for job_id, _, kind, _, token, *_ in rows:
        if kind == "claimed" and token is not None:
            letters[token] = letter(count.get(job_id, 0))
            count[job_id] = count.get(job_id, 0) + 1
    return letters


def _names(workers: Iterable[str | None]) -> dict[str, str]:
    """Number the workers in the order in which they appear; what they are called tells the host."""
    names: dict[str, str] = {}
    for worker in workers:
        if worker:
            names.setdefault(worker.rpartition("/")[0] or worker, f"worker {len(names) + 1}")
    return names


def _named(worker: str, names: Mapping[str, str]) -> str:
    """Return a worker's number, and its child's where one is named."""
    whole, slash, child = worker.rpartition("/")
    if not slash:
        return names.get(worker, "another worker") if worker else ""
    return names.get(whole, "another worker") + slash + child


def _sights(seen: Iterable[Glimpse], start: float, letters: Mapping[str, str]) -> tuple[Sight, ...]:
    """Keep the looks that show something new."""
    last: dict[str, float] = {}
    sights = []
    for each in seen:
        if each.token in letters and last.get(each.token) != each.ends:
            last[each.token] = each.ends
            times = _ms(each.at - start), _ms(each.ends - start)
            sights.append(Sight(times[0], each.job, letters[each.token], times[1], each.renewals))
    return tuple(sights)


def _moment(row: Sequence[Any], letters: Mapping[str, str], names: Mapping[str, str]) -> Moment:
    job_id, ms, kind, claim, token, worker, actor, data, error, message = row
    data = json.loads(data) if isinstance(data, str) else dict(data or {})
    if error is not None:
        data["error"] = {"class": error, "message": message or ""}
    return Moment(
        ms=round(ms, 3),
        job=job_id,
        kind=kind,
        claim=claim,
        lease=letters.get(token),
        worker=None if worker is None else _named(worker, names),
        actor=actor,
        data=data,
    )


def software(connection: Session) -> dict[str, str]:
    """Name the versions that a recording was made with."""
    with connection.cursor() as cursor:
        cursor.execute(SERVER)
        postgresql = cursor.fetchone()[0]
    return {
        "django_relay": __version__,
        "django": django.get_version(),
        "python": platform.python_version(),
        "postgresql": postgresql,
    }


def machine() -> str:
    """Describe this machine in general words."""
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"
