"""Accept a job: its row and its first event in one statement, in the caller's own transaction."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from .session import Session

#: Workers that sleep listen here; the payload is the queue's name and nothing else.
CHANNEL = "django_relay"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """What a job is made of. ``args``, ``kwargs`` and ``metadata`` are JSON texts.

    ``run_after`` as a timedelta counts from the database's clock, as a datetime it is taken as is.
    """

    backend: str
    queue: str
    task: str
    args: str
    kwargs: str
    priority: int = 0
    run_after: datetime | timedelta | None = None
    start_before: datetime | None = None
    max_attempts: int | None = None
    timeout: timedelta | None = None
    metadata: str | None = None
    notify: bool = True


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The accepted job. It exists once the surrounding transaction commits."""

    id: int
    state: str
    enqueued_at: datetime


# Locks nothing but the new rows. The job and its event are one statement, so they are one fate also
# in autocommit. Whether the job is due is judged by the database's clock. A worker is notified only
# if one has said that it sleeps, because a NOTIFY makes commits queue behind one lock; PostgreSQL
# itself keeps one notification per queue and transaction. A worker that fell asleep after this
# statement's snapshot misses it and finds the job with its next poll.
ENQUEUE = """
WITH job AS (
  INSERT INTO django_relay_job (
    backend, queue, task, args, kwargs, state, priority, run_after, start_before, claims, failures,
    losses, interruptions, max_attempts, timeout, metadata, enqueued_at
  )
  SELECT
    %(backend)s, %(queue)s, %(task)s, %(args)s::json, %(kwargs)s::json,
    CASE WHEN due.at > statement_timestamp() THEN 'scheduled' ELSE 'ready' END,
    %(priority)s::smallint, due.at, %(start_before)s::timestamptz, 0, 0, 0, 0,
    %(max_attempts)s::integer, %(timeout)s::interval, %(metadata)s::jsonb, clock_timestamp()
  FROM (
    SELECT COALESCE(
      %(run_at)s::timestamptz, statement_timestamp() + %(run_in)s::interval, statement_timestamp()
    ) AS at
  ) AS due
  RETURNING id, queue, state, enqueued_at
), event AS (
  INSERT INTO django_relay_event (job_id, kind, at, data)
  SELECT id, 'enqueued', enqueued_at, jsonb_build_object('state', state) FROM job
)
SELECT id, state, enqueued_at, CASE
  WHEN %(notify)s AND state = 'ready'
    AND EXISTS (SELECT 1 FROM django_relay_worker WHERE waiting)
  THEN pg_notify('django_relay', queue)
END
FROM job
"""


def enqueue(connection: Session, job: NewJob) -> Enqueued:
    """Store ``job`` with its ``enqueued`` event and return its id, state and time.

    The caller has validated the values; what the columns do not accept raises django.db.DataError
    and stores nothing.
    """
    values = asdict(job)
    run_after = values.pop("run_after")
    delayed = isinstance(run_after, timedelta)
    values["run_in"] = run_after if delayed else None
    values["run_at"] = None if delayed else run_after
    with connection.cursor() as cursor:
        cursor.execute(ENQUEUE, values)
        job_id, state, enqueued_at, _ = cursor.fetchone()
    return Enqueued(job_id, state, enqueued_at)
