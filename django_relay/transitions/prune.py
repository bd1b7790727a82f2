"""Delete finished jobs that are older than their retention, with their events and leases."""

from __future__ import annotations

from datetime import timedelta

from .session import Session

# Locks: the finished job rows, SKIP LOCKED, so that two pruners share the work and neither waits
# for a requeue. Events and leases go in the same statement, or they would outlive their job.
PRUNE = """
WITH old AS MATERIALIZED (
  SELECT id FROM django_relay_job
  WHERE state IN ('successful', 'failed', 'cancelled')
    AND finished_at < statement_timestamp() - %(age)s::interval
    AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
  ORDER BY id
  LIMIT %(limit)s
  FOR UPDATE SKIP LOCKED
), event AS (
  DELETE FROM django_relay_event WHERE job_id = ANY (ARRAY(SELECT id FROM old))
), lease AS (
  DELETE FROM django_relay_lease WHERE job_id = ANY (ARRAY(SELECT id FROM old))
), job AS (
  DELETE FROM django_relay_job
  WHERE id = ANY (ARRAY(SELECT id FROM old)) AND state IN ('successful', 'failed', 'cancelled')
  RETURNING id
)
SELECT id FROM job
"""

# Locks the event rows, which nobody else wants. A refusal that was written after PRUNE's snapshot
# and before its lock outlived it.
SWEEP = "DELETE FROM django_relay_event WHERE job_id = ANY (%(ids)s::bigint[])"


def prune(
    connection: Session, *, older_than: timedelta, queue: str | None = None, limit: int = 1000
) -> int:
    """Delete up to ``limit`` jobs that finished more than ``older_than`` ago; return how many.

    Of one queue, where that is named.
    """
    with connection.cursor() as cursor:
        cursor.execute(PRUNE, {"age": older_than, "queue": queue, "limit": limit})
        ids = [job_id for (job_id,) in cursor.fetchall()]
    if ids:
        with connection.cursor() as cursor:
            cursor.execute(SWEEP, {"ids": ids})
    return len(ids)
