"""Make scheduled jobs ready when they are due, and fail waiting jobs that came too late."""

from __future__ import annotations

from .quarantine import Batch, Quarantine
from .session import Session

# Locks: the due job rows, SKIP LOCKED, in the order of their time. Two promoters share the work;
# neither waits. statement_timestamp() is stable and so an index bound; clock_timestamp() would read
# the whole index. Writes no event: the job's run_after is its time, and `claimed` implies it.
PROMOTE = Batch(
    """
chosen AS MATERIALIZED (
  SELECT id FROM django_relay_job
  WHERE state = 'scheduled' AND run_after <= statement_timestamp() AND id {among}
  ORDER BY run_after
  LIMIT 1000
  FOR NO KEY UPDATE SKIP LOCKED
)
""",
    """
, moved AS (
  UPDATE django_relay_job SET state = 'ready'
  WHERE id = ANY (ARRAY(SELECT id FROM chosen))
  RETURNING id, queue
)
""",
)

# Locks: the job rows, SKIP LOCKED; a claim that has the row first starts the job in time.
EXPIRE = Batch(
    """
chosen AS MATERIALIZED (
  SELECT id FROM django_relay_job
  WHERE start_before IS NOT NULL AND state IN ('blocked', 'scheduled', 'ready')
    AND start_before <= statement_timestamp() AND id {among}
  ORDER BY start_before
  LIMIT 500
  FOR NO KEY UPDATE SKIP LOCKED
)
""",
    """
, moved AS (
  UPDATE django_relay_job SET
    state = 'failed', finished_at = clock_timestamp(), unique_key = NULL
  WHERE id = ANY (ARRAY(SELECT id FROM chosen))
  RETURNING id
), event AS (
  INSERT INTO django_relay_event (job_id, kind, at, data)
  SELECT id, 'failed', clock_timestamp(), jsonb_build_object(
    'state', 'failed', 'error', jsonb_build_object(
      'class', 'django_relay.exceptions.JobExpired',
      'message', 'The job was still waiting at the time it had to start before.',
      'traceback', ''
    )
  )
  FROM moved
)
""",
)


def promote(connection: Session, quarantine: Quarantine | None = None) -> list[str]:
    """Make up to 1,000 due jobs ready; return the queue of each."""
    return [queue for _, queue in PROMOTE.move(connection, {}, quarantine or Quarantine())]


def expire(connection: Session, quarantine: Quarantine | None = None) -> list[int]:
    """Fail up to 500 waiting jobs that are past their ``start_before``; return their ids."""
    return [job_id for (job_id,) in EXPIRE.move(connection, {}, quarantine or Quarantine())]
