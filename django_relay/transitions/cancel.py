"""Cancel waiting jobs, ask running ones to stop, or take a running job's lease away."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from .session import Session


class Cancelled(StrEnum):
    """What became of one job that was to be cancelled."""

    CANCELLED = "cancelled"
    ASKED = "asked"
    FINISHED = "finished"
    MISSING = "missing"


# Locks: waiting job rows, SKIP LOCKED. Waiting for them could deadlock with an ending that holds
# one of the batch and wants another; a skipped row is looked at again.
WAITING = """
WITH chosen AS MATERIALIZED (
  SELECT id FROM django_relay_job
  WHERE id = ANY (%(ids)s::bigint[]) AND state IN ('blocked', 'scheduled', 'ready')
  ORDER BY id
  FOR NO KEY UPDATE SKIP LOCKED
), job AS (
  UPDATE django_relay_job SET
    state = 'cancelled', finished_at = clock_timestamp(), unique_key = NULL
  WHERE id = ANY (ARRAY(SELECT id FROM chosen))
  RETURNING id
), event AS (
  INSERT INTO django_relay_event (job_id, kind, at, actor, data)
  SELECT id, 'cancelled', clock_timestamp(), %(actor)s, '{"state": "cancelled"}' FROM job
)
SELECT id FROM job
"""

# Locks: the leases, in job id order, as every ending does. The job row is not touched: the mark is
# on the lease, and the worker learns of it with its next renewal. The lease found is fixed by its
# lock, so a job claimed after the snapshot is looked at again. A lease whose job does not run (left
# behind by somebody's own SQL) has nobody to ask.
ASK = """
WITH held AS MATERIALIZED (
  SELECT l.job_id, l.token, l.claim, l.worker, l.cancel_requested_at
  FROM django_relay_lease AS l
  WHERE l.job_id = ANY (%(ids)s::bigint[])
    AND (SELECT state FROM django_relay_job AS j WHERE j.id = l.job_id) = 'running'
  ORDER BY l.job_id
  FOR NO KEY UPDATE OF l
), asked AS (
  UPDATE django_relay_lease AS l SET cancel_requested_at = clock_timestamp()
  FROM held AS h
  WHERE l.job_id = h.job_id AND h.cancel_requested_at IS NULL
  RETURNING l.job_id, l.token, l.claim, l.worker
), event AS (
  INSERT INTO django_relay_event (job_id, kind, at, claim, token, worker, actor, data)
  SELECT
    job_id, 'cancel_requested', clock_timestamp(), claim, token, worker, %(actor)s,
    '{"state": "running"}'
  FROM asked
)
SELECT job_id FROM held
"""

# Locks: the leases in job id order, then their jobs. `held` is what the lock returned: a job that
# became running after the snapshot is not among them, or it would be cancelled under its new owner
# (the form that names the three states in one WHERE finished jobs twice).
FORCE = """
WITH held AS MATERIALIZED (
  SELECT l.job_id, l.token, l.claim, l.worker, l.begun_at, j.state AS was
  FROM django_relay_lease AS l
  JOIN django_relay_job AS j ON j.id = l.job_id
  WHERE l.job_id = ANY (%(ids)s::bigint[])
  ORDER BY l.job_id
  FOR UPDATE OF l
  FOR NO KEY UPDATE OF j
), freed AS (
  DELETE FROM django_relay_lease AS l USING held AS h WHERE l.job_id = h.job_id
), job AS (
  UPDATE django_relay_job AS j SET
    state = 'cancelled', finished_at = clock_timestamp(), unique_key = NULL,
    started_at = COALESCE(j.started_at, h.begun_at),
    last_attempted_at = COALESCE(h.begun_at, j.last_attempted_at)
  FROM held AS h
  WHERE j.id = h.job_id AND h.was = 'running'
  RETURNING j.id, h.token, h.claim, h.worker
), event AS (
  INSERT INTO django_relay_event (job_id, kind, at, claim, token, worker, actor, data)
  SELECT
    id, 'cancelled', clock_timestamp(), claim, token, worker, %(actor)s,
    '{"state": "cancelled", "forced": true}'
  FROM job
)
SELECT id FROM job
"""

# Locks nothing: which of the rest have finished, and which exist at all.
LEFT = "SELECT id, state FROM django_relay_job WHERE id = ANY (%(ids)s::bigint[])"

_TRIES = 200


def cancel(
    connection: Session, ids: Sequence[int], *, actor: str, force: bool = False
) -> dict[int, Cancelled]:
    """Cancel jobs and tell by id what became of each.

    Waiting jobs are cancelled. A running job is asked to stop: its success still counts, any other
    ending cancels it. With ``force`` its lease is taken away at once; the handler may go on for a
    while, and its outcome will be refused. ``actor`` (at most 150 characters) goes into the events.
    Raises TimeoutError naming the jobs that others kept locked for several seconds.
    """
    outcome: dict[int, Cancelled] = {}
    left = sorted(set(ids))
    values = {"actor": actor[:150]}
    running, became = (FORCE, Cancelled.CANCELLED) if force else (ASK, Cancelled.ASKED)
    for attempt in range(_TRIES):
        for statement, word in ((WAITING, Cancelled.CANCELLED), (running, became)):
            outcome |= dict.fromkeys(_run(connection, statement, {"ids": left, **values}), word)
            left = [job_id for job_id in left if job_id not in outcome]
        outcome |= _finished_or_missing(connection, left)
        left = [job_id for job_id in left if job_id not in outcome]
        if not left:
            return outcome
        _pause(connection, attempt)
    raise TimeoutError(f"jobs {left} stayed locked by other transactions; try again")


def _run(connection: Session, statement: str, values: dict[str, object]) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return [row[0] for row in cursor.fetchall()]


def _finished_or_missing(connection: Session, ids: list[int]) -> dict[int, Cancelled]:
    if not ids:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(LEFT, {"ids": ids})
        states = dict(cursor.fetchall())
    found: dict[int, Cancelled] = {}
    for job_id in ids:
        if job_id not in states:
            found[job_id] = Cancelled.MISSING
        elif states[job_id] in ("successful", "failed", "cancelled"):
            found[job_id] = Cancelled.FINISHED
    return found


def _pause(connection: Session, attempt: int) -> None:
    """Let the holder of the lock commit. On the server, so that no clock of ours counts."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(%s)", [min(0.001 * 2**attempt, 0.05)])
