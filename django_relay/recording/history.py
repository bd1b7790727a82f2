"""The reading: the history of jobs out of the database, and looks at their leases meanwhile.

Reads only. Tokens become letters and workers numbers here, so that neither leaves the database.
"""

from __future__ import annotations

import json
import math
import os
import platform
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import django

from django_relay import __version__
from django_relay.transitions import Session

from .document import Mark, Moment, RecordedJob, Recording, Sight

#: How many events of a job are counted; of one that has more it is only known that it has.
COUNTED = 10_000

#: Of an event's data no more is read: anything longer was not written by a transition.
_BULK = 20_000
#: Seconds beyond which a time is only far away: a hundred thousand years.
_FAR = 3e12

# Locks nothing. All events of each job, or its first and its last ``half``, through (job_id, id).
# Whatever stands in an event, it can be read: times may be infinite, data of any kind.
EVENTS = f"""
WITH chosen AS MATERIALIZED (
  SELECT v.id FROM unnest(%(ids)s::bigint[]) AS j(id) CROSS JOIN LATERAL (
    (SELECT id FROM django_relay_event WHERE job_id = j.id ORDER BY id LIMIT %(half)s::bigint)
    UNION
    (SELECT id FROM django_relay_event WHERE job_id = j.id ORDER BY id DESC LIMIT %(half)s::bigint)
  ) AS v
)
SELECT
  v.job_id, EXTRACT(EPOCH FROM v.at)::float8, v.kind, v.claim, v.token::text, v.worker, v.actor,
  CASE jsonb_typeof(v.data) WHEN 'object' THEN left((v.data - 'error')::text, {_BULK}) END,
  left(v.data->'error'->>'class', 255), left(v.data->'error'->>'message', {_BULK})
FROM django_relay_event AS v
WHERE v.id = ANY (ARRAY(SELECT id FROM chosen))
ORDER BY v.id
"""
# Locks nothing. How many events there are is counted up to a limit, where not all are read.
JOBS = f"""
SELECT
  j.id, j.task, j.queue, j.state,
  CASE WHEN %(half)s::bigint IS NOT NULL THEN (
    SELECT count(*) FROM (
      SELECT 1 FROM django_relay_event AS v WHERE v.job_id = j.id LIMIT {COUNTED + 1}
    ) AS e
  ) END,
  EXTRACT(EPOCH FROM j.enqueued_at)::float8, current_setting('server_version')
FROM django_relay_job AS j WHERE j.id = ANY (%(ids)s::bigint[]) ORDER BY j.id
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
    """Return A for 0, B for 1, AA after Z."""
    letters = ""
    while number >= 0:
        number, place = divmod(number, 26)
        letters = string.ascii_uppercase[place] + letters
        number -= 1
    return letters


def letter_of(claim: int | None) -> str | None:
    """Return the letter of a claim's lease: each claim has one lease, and the first is claim 1."""
    return letter(claim - 1) if claim is not None and claim > 0 else None


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
    most: int | None = None,
    hosts: bool = False,
) -> Recording:
    """Read the history of jobs from the database.

    ``seen`` are looks at their leases meanwhile. ``marks`` tell what was done from outside: when
    (in seconds since 1970, by the database's clock), what, to whom (a worker's name, its part
    before the slash for all of it, or nothing). Of a job with more than ``most`` events the first
    and the last half of so many are read. With ``hosts`` workers keep their names, which tell where
    they ran. Raises LookupError when none of the jobs exists.
    """
    jobs, rows = _read(connection, job_ids, most)
    start = min(job[5] for job in jobs)
    names = {} if hosts else _names(row[5] for row in rows)
    read = Counter(row[0] for row in rows)
    return Recording(
        experiment=experiment,
        jobs=tuple(_job(job, read[job[0]]) for job in jobs),
        moments=tuple(_moment(row, start, _named(row[5], names, hosts)) for row in rows),
        sights=_sights(seen, start, {row[4]: letter_of(row[3]) for row in rows}),
        marks=tuple(
            Mark(_ms(at - start), what, _named(who, names, hosts) or "") for at, what, who in marks
        ),
        settings=dict(settings or {}),
        figures=dict(figures or {}),
        software=_software(jobs[0][6]),
        machine=machine(),
    )


def _read(
    connection: Session, job_ids: Sequence[int], most: int | None
) -> tuple[list[Any], list[Any]]:
    values = {"ids": list(job_ids), "half": None if most is None else most // 2}
    with connection.cursor() as cursor:
        cursor.execute(JOBS, values)
        jobs = cursor.fetchall()
        if not jobs:
            raise LookupError(f"none of the jobs {list(job_ids)} exists")
        cursor.execute(EVENTS, values)
        return jobs, cursor.fetchall()


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
    """Return milliseconds; of times without end only that they lie far away."""
    return 0.0 if math.isnan(seconds) else round(min(max(seconds, -_FAR), _FAR) * 1000, 3)


def _names(workers: Iterable[str | None]) -> dict[str, str]:
    """Number the workers in the order in which they appear; what they are called tells the host."""
    names: dict[str, str] = {}
    for worker in workers:
        if worker:
            names.setdefault(worker.rpartition("/")[0] or worker, f"worker {len(names) + 1}")
    return names


def _named(worker: str | None, names: Mapping[str, str], hosts: bool) -> str | None:
    """Return a worker's number, and its child's where one is named; or its own name."""
    if not worker or hosts:
        return worker
    whole, slash, child = worker.rpartition("/")
    if not slash:
        return names.get(worker, "another worker")
    return names.get(whole, "another worker") + slash + child


def _sights(
    seen: Iterable[Glimpse], start: float, letters: Mapping[str | None, str | None]
) -> tuple[Sight, ...]:
    """Keep the looks that show something new."""
    last: dict[str, float] = {}
    sights = []
    for each in seen:
        lease = letters.get(each.token)
        if lease is not None and last.get(each.token) != each.ends:
            last[each.token] = each.ends
            times = _ms(each.at - start), _ms(each.ends - start)
            sights.append(Sight(times[0], each.job, lease, times[1], each.renewals))
    return tuple(sights)


def _job(row: Sequence[Any], read: int) -> RecordedJob:
    job_id, task, queue, state, there, *_ = row
    return RecordedJob(job_id, task, queue, state, left_out=max((there or 0) - read, 0))


def _moment(row: Sequence[Any], start: float, worker: str | None) -> Moment:
    job_id, at, kind, claim, _, _, actor, text, error, message = row
    data = _data(text, start)
    if error is not None:
        data["error"] = {"class": error, "message": message or ""}
    return Moment(
        ms=_ms(at - start),
        job=job_id,
        kind=kind,
        claim=claim,
        lease=letter_of(claim),
        worker=worker,
        actor=actor,
        data=data,
    )


def _data(text: str | None, start: float) -> dict[str, Any]:
    """Read an event's data, its times as milliseconds from ``start``; {} where it is none."""
    try:
        data = json.loads(text or "{}")
    except (ValueError, RecursionError):  # cut off, or a number that Python does not read
        return {}
    if not isinstance(data, dict):
        return {}
    for key, name in (("expired_at", "expired_ms"), ("run_after", "run_after_ms")):
        at = _seconds(data.pop(key, None))
        if at is not None:
            data[name] = _ms(at - start)
    return data


def _seconds(text: object) -> float | None:
    try:
        at = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return at.timestamp() if at is not None and at.tzinfo is not None else None


def software(connection: Session) -> dict[str, str]:
    """Name the versions that a recording was made with."""
    with connection.cursor() as cursor:
        cursor.execute(SERVER)
        return _software(cursor.fetchone()[0])


def _software(postgresql: str) -> dict[str, str]:
    return {
        "django_relay": __version__,
        "django": django.get_version(),
        "python": platform.python_version(),
        "postgresql": postgresql,
    }


def machine() -> str:
    """Describe this machine in general words."""
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"
