"""Accept jobs: the row and its first event in one statement, in the caller's own transaction.

One at a time, or many calls of one task together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import ProgrammingError
from psycopg.errors import DuplicatePreparedStatement, InvalidSqlStatementName

from .session import Session, bound

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
END, pg_backend_pid()
FROM job
"""


# The same for many calls of one task, in the order given: the ids rise with it, since the rows are
# numbered as they come out of the sort.
ENQUEUE_MANY = """
WITH due AS MATERIALIZED (
  SELECT COALESCE(
    %(run_at)s::timestamptz, statement_timestamp() + %(run_in)s::interval, statement_timestamp()
  ) AS at
), job AS (
  INSERT INTO django_relay_job (
    backend, queue, task, args, kwargs, state, priority, run_after, start_before, claims, failures,
    losses, interruptions, max_attempts, timeout, metadata, enqueued_at
  )
  SELECT
    %(backend)s, %(queue)s, %(task)s, call.args::json, call.kwargs::json,
    CASE WHEN due.at > statement_timestamp() THEN 'scheduled' ELSE 'ready' END,
    %(priority)s::smallint, due.at, %(start_before)s::timestamptz, 0, 0, 0, 0,
    %(max_attempts)s::integer, %(timeout)s::interval, %(metadata)s::jsonb, clock_timestamp()
  FROM due CROSS JOIN unnest(%(args)s::text[], %(kwargs)s::text[])
    WITH ORDINALITY AS call(args, kwargs, place)
  ORDER BY call.place
  RETURNING id, state, enqueued_at
), event AS (
  INSERT INTO django_relay_event (job_id, kind, at, data)
  SELECT id, 'enqueued', enqueued_at, jsonb_build_object('state', state) FROM job ORDER BY id
), told AS MATERIALIZED (
  SELECT pg_notify('django_relay', %(queue)s) FROM due
  WHERE %(notify)s AND due.at <= statement_timestamp()
    AND EXISTS (SELECT 1 FROM django_relay_worker WHERE waiting)
)
SELECT id, state, enqueued_at, (SELECT count(*) FROM told) FROM job ORDER BY id
"""

#: What the server says of a prepared statement that is not the one we left with it.
NOT_KEPT = (InvalidSqlStatementName, DuplicatePreparedStatement)
#: So many jobs go in one statement.
BATCH = 1000


def enqueue(connection: Session, job: NewJob, *, prepare: bool = False) -> Enqueued:
    """Store ``job`` with its ``enqueued`` event and return its id, state and time.

    The caller has validated the values; what the columns do not accept raises django.db.DataError
    and stores nothing. With ``prepare`` the statement is kept on the session, which halves what the
    server has to do: in autocommit alone, and once a session is known to have no pooler before it.
    """
    try:
        return _enqueue(connection, job, prepare=prepare)
    except ProgrammingError as error:
        if not prepare or not isinstance(error.__cause__, NOT_KEPT):
            raise
        # Somebody's DISCARD or DEALLOCATE, or a pooler after all: on this session no more of it.
        connection.connection.relay_direct = False  # type: ignore[attr-defined]
        return _enqueue(connection, job, prepare=False)


def _enqueue(connection: Session, job: NewJob, *, prepare: bool) -> Enqueued:
    with bound(connection, prepare=prepare) as cursor:
        cursor.execute(ENQUEUE, _values(job) | {"args": job.args, "kwargs": job.kwargs})
        job_id, state, enqueued_at, _, pid = cursor.fetchone()
    session = getattr(connection, "connection", None)
    if session is not None and not hasattr(session, "relay_direct"):
        # A pooler gives each client a number of its own; another process answers then.
        session.relay_direct = session.info.backend_pid == pid
    return Enqueued(job_id, state, enqueued_at)


def enqueue_many(
    connection: Session, job: NewJob, calls: Sequence[tuple[str, str]]
) -> list[Enqueued]:
    """Store one job for each of ``calls``, its arguments as JSON texts, otherwise like ``job``.

    A thousand go in one statement; more than that are all stored or none only in a transaction,
    which is the caller's. The answers are in the order of the calls, and so are the ids.
    """
    stored: list[Enqueued] = []
    common = _values(job)
    with bound(connection) as cursor:
        for start in range(0, len(calls), BATCH):
            args, kwargs = zip(*calls[start : start + BATCH], strict=True)
            cursor.execute(ENQUEUE_MANY, common | {"args": list(args), "kwargs": list(kwargs)})
            stored += [Enqueued(*row[:3]) for row in cursor.fetchall()]
    return stored


def _values(job: NewJob) -> dict[str, object]:
    delayed = isinstance(job.run_after, timedelta)
    return {
        "backend": job.backend,
        "queue": job.queue,
        "task": job.task,
        "priority": job.priority,
        "run_in": job.run_after if delayed else None,
        "run_at": None if delayed else job.run_after,
        "start_before": job.start_before,
        "max_attempts": job.max_attempts,
        "timeout": job.timeout,
        "metadata": job.metadata,
        "notify": job.notify,
    }
