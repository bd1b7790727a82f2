"""Bring the values of unfinished jobs and of leases back inside their bounds.

No transition writes others. Somebody's own SQL can, and a check that was added as NOT VALID lets
them stand; then every update of such a row is refused, with the whole batch that it is in. So
whoever has a batch refused straightens its jobs and tries again.
"""

from __future__ import annotations

from collections.abc import Sequence

from .halves import in_halves
from .session import Session

# Locks: those of the job rows that are outside the bounds, in the order of their ids, SKIP LOCKED:
# a row that somebody has is looked at again when it is refused again. Moves nothing and writes no
# event. GREATEST and LEAST pass over nulls, and would make something of a column that holds none.
JOBS = """
WITH outside AS MATERIALIZED (
  SELECT id FROM django_relay_job
  WHERE id = ANY (%(ids)s::bigint[]) AND state IN ('blocked', 'scheduled', 'ready', 'running') AND (
    priority NOT BETWEEN -100 AND 100
    OR max_attempts NOT BETWEEN 1 AND 1000000000
    OR LEAST(claims, failures, losses, interruptions) < 0
    OR GREATEST(claims, failures, losses, interruptions) > 1000000000
    OR LEAST(run_after, start_before, enqueued_at, started_at, last_attempted_at)
      < '1900-01-01 UTC'::timestamptz
    OR GREATEST(run_after, start_before, enqueued_at, started_at, last_attempted_at)
      > '9999-12-30 UTC'::timestamptz
    OR finished_at IS NOT NULL
  )
  ORDER BY id
  FOR NO KEY UPDATE SKIP LOCKED
), bound AS (
  SELECT '1900-01-01 UTC'::timestamptz AS first, '9999-12-30 UTC'::timestamptz AS last
)
UPDATE django_relay_job AS j SET
  priority = GREATEST(-100, LEAST(100, j.priority)),
  max_attempts = CASE
    WHEN j.max_attempts IS NOT NULL THEN GREATEST(1, LEAST(1000000000, j.max_attempts))
  END,
  claims = GREATEST(0, LEAST(1000000000, j.claims)),
  failures = GREATEST(0, LEAST(1000000000, j.failures)),
  losses = GREATEST(0, LEAST(1000000000, j.losses)),
  interruptions = GREATEST(0, LEAST(1000000000, j.interruptions)),
  run_after = GREATEST(first, LEAST(last, j.run_after)),
  enqueued_at = GREATEST(first, LEAST(last, j.enqueued_at)),
  start_before = CASE
    WHEN j.start_before IS NOT NULL THEN GREATEST(first, LEAST(last, j.start_before))
  END,
  started_at = CASE
    WHEN j.started_at IS NOT NULL THEN GREATEST(first, LEAST(last, j.started_at))
  END,
  last_attempted_at = CASE
    WHEN j.last_attempted_at IS NOT NULL THEN GREATEST(first, LEAST(last, j.last_attempted_at))
  END,
  finished_at = NULL
FROM bound
WHERE j.id = ANY (ARRAY(SELECT id FROM outside))
RETURNING j.id
"""

# Locks: the leases outside the calendar, in job id order, SKIP LOCKED. A lease without an end would
# hold its job for ever, so it is over. Leases are few: this is cheap enough to be done by and by.
LEASES = """
WITH bound AS (
  SELECT '1900-01-01 UTC'::timestamptz AS first, '9999-12-30 UTC'::timestamptz AS last
), outside AS MATERIALIZED (
  SELECT l.job_id FROM django_relay_lease AS l, bound
  WHERE LEAST(acquired_at, begun_at, expires_at, deadline) < first
     OR GREATEST(acquired_at, begun_at, expires_at, deadline) > last
  ORDER BY l.job_id
  LIMIT 500
  FOR UPDATE OF l SKIP LOCKED
)
UPDATE django_relay_lease AS l SET
  acquired_at = CASE
    WHEN l.acquired_at BETWEEN first AND last THEN l.acquired_at ELSE clock_timestamp()
  END,
  begun_at = CASE WHEN l.begun_at BETWEEN first AND last THEN l.begun_at END,
  deadline = CASE WHEN l.deadline BETWEEN first AND last THEN l.deadline END,
  expires_at = CASE
    WHEN l.expires_at BETWEEN first AND last THEN l.expires_at ELSE clock_timestamp()
  END
FROM bound
WHERE l.job_id = ANY (ARRAY(SELECT job_id FROM outside))
RETURNING l.job_id
"""


def straighten_jobs(connection: Session, ids: Sequence[int]) -> list[int]:
    """Bring these jobs, where they are unfinished, inside the bounds of their columns; return the
    ids of those that were outside. One that the database will not have written stays as it is."""

    def write(some: Sequence[int]) -> list[int]:
        return _write(connection, JOBS, {"ids": list(some)})

    parts = in_halves(ids, write, lambda _id, _error: []) if ids else []
    return [job_id for part in parts for job_id in part]


def straighten_leases(connection: Session) -> list[int]:
    """Bring leases inside the calendar, and end those that have no end; return their jobs' ids."""
    return _write(connection, LEASES)


def _write(
    connection: Session, statement: str, values: dict[str, object] | None = None
) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return [job_id for (job_id,) in cursor.fetchall()]
