"""Give a finished job another life, or a waiting one another time, queue or priority."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from .session import Session

# Locks: the finished job rows, SKIP LOCKED: only a prune or another requeue wants them, and either
# settles the matter. Counters of failed tries start afresh; `claims` does not, so that a fence is
# never used twice.
REQUEUE = """
WITH chosen AS MATERIALIZED (
  SELECT id FROM django_relay_job
  WHERE id = ANY (%(ids)s::bigint[]) AND state IN ('successful', 'failed', 'cancelled')
  ORDER BY id
  FOR NO KEY UPDATE SKIP LOCKED
), job AS (
  UPDATE django_relay_job AS j SET
    state = 'ready', run_after = clock_timestamp(), start_before = NULL, finished_at = NULL,
    result = NULL, failures = 0, losses = 0, interruptions = 0, unique_key = j.unique_name
  WHERE j.id = ANY (ARRAY(SELECT id FROM chosen))
    AND j.state IN ('successful', 'failed', 'cancelled')
    AND NOT EXISTS (SELECT 1 FROM django_relay_job AS h WHERE h.unique_key = j.unique_name)
  RETURNING j.id, j.queue
), event AS (
  INSERT INTO django_relay_event (job_id, kind, at, actor, data)
  SELECT id, 'requeued', clock_timestamp(), %(actor)s, '{"state": "ready"}' FROM job
)
SELECT id, queue FROM job
"""

# Locks: the waiting job rows, SKIP LOCKED: a row that a claim has is about to run.
RESCHEDULE = """
WITH chosen AS MATERIALIZED (
  SELECT id FROM django_relay_job
  WHERE id = ANY (%(ids)s::bigint[]) AND state IN ('blocked', 'scheduled', 'ready')
  ORDER BY id
  FOR NO KEY UPDATE SKIP LOCKED
), due AS (
  SELECT COALESCE(
    %(run_at)s::timestamptz, statement_timestamp() + %(run_in)s::interval
  ) AS at
), job AS (
  UPDATE django_relay_job AS j SET
    run_after = due.at,
    state = CASE
      WHEN j.state = 'blocked' THEN j.state
      WHEN due.at > statement_timestamp() THEN 'scheduled'
      ELSE 'ready'
    END
  FROM due
  WHERE j.id = ANY (ARRAY(SELECT id FROM chosen)) AND j.state IN ('blocked', 'scheduled', 'ready')
  RETURNING j.id, j.state, j.run_after, j.queue
), event AS (
  INSERT INTO django_relay_event (job_id, kind, at, actor, data)
  SELECT
    id, 'rescheduled', clock_timestamp(), %(actor)s,
    jsonb_build_object('state', state, 'run_after', run_after)
  FROM job
)
SELECT id, queue FROM job
"""

# Locks: as RESCHEDULE.
MOVE = """
WITH chosen AS MATERIALIZED (
  SELECT id FROM django_relay_job
  WHERE id = ANY (%(ids)s::bigint[]) AND state IN ('blocked', 'scheduled', 'ready')
  ORDER BY id
  FOR NO KEY UPDATE SKIP LOCKED
), job AS (
  UPDATE django_relay_job AS j SET
    queue = COALESCE(%(queue)s, j.queue), priority = COALESCE(%(priority)s::smallint, j.priority)
  WHERE j.id = ANY (ARRAY(SELECT id FROM chosen)) AND j.state IN ('blocked', 'scheduled', 'ready')
  RETURNING j.id, j.state, j.queue, j.priority
), event AS (
  INSERT INTO django_relay_event (job_id, kind, at, actor, data)
  SELECT
    id, 'moved', clock_timestamp(), %(actor)s,
    jsonb_build_object('state', state, 'queue', queue, 'priority', priority)
  FROM job
)
SELECT id, queue FROM job
"""


def requeue(connection: Session, ids: Sequence[int], *, actor: str) -> list[int]:
    """Make finished jobs ready again; return the ids of those that were. Result is cleared.

    A job whose unique name another job holds stays as it is.
    """
    return _write(connection, REQUEUE, {"ids": list(ids), "actor": actor[:150]})


def reschedule(
    connection: Session, ids: Sequence[int], *, run_after: datetime | timedelta, actor: str
) -> list[int]:
    """Give waiting jobs another time; ``timedelta(0)`` from the database's now is "run now"."""
    delayed = isinstance(run_after, timedelta)
    values: dict[str, object] = {
        "ids": list(ids),
        "actor": actor[:150],
        "run_in": run_after if delayed else None,
        "run_at": None if delayed else run_after,
    }
    return _write(connection, RESCHEDULE, values)


def move(
    connection: Session,
    ids: Sequence[int],
    *,
    actor: str,
    queue: str | None = None,
    priority: int | None = None,
) -> list[int]:
    """Give waiting jobs another queue or priority; return the ids of those that were waiting."""
    values: dict[str, object] = {"ids": list(ids), "actor": actor[:150]}
    values |= {"queue": queue, "priority": priority}
    return _write(connection, MOVE, values)


def _write(connection: Session, statement: str, values: dict[str, object]) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return [row[0] for row in cursor.fetchall()]
