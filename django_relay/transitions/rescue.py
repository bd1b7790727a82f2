"""Take jobs back from owners that are gone, and mend rows that no owner can.

A lease that ran out is rescued by any worker's maintenance. A dead child's leases are rescued at
once by the supervisor that saw it die; it knows which handlers had begun.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from .quarantine import Batch, Quarantine
from .session import Session


@dataclass(frozen=True, slots=True)
class Rescued:
    """A job taken back: where it went, and the worker that had it."""

    job_id: int
    state: str
    kind: str
    worker: str
    queue: str
    task: str
    losses: int


# Locks: the chosen leases in job id order, each with its job, SKIP LOCKED both. A rescue never
# waits: a locked lease is being ended or renewed right now, a locked job is in somebody's
# transaction, and the next pass sees what became of it. So an ending and a rescue can never both
# have the lease: the second finds it locked or gone. A lease whose job does not run is left to the
# sweep.
# `lost`: the handler may have begun. With the lease run out nobody can tell, so it counts; of a
# dead child's other leases those count that it had reported. From the second loss on a job waits
# before its next claim, doubling from four seconds to five minutes, so that a job that kills its
# worker does not grind through the fleet.
CHOSEN = """
chosen AS MATERIALIZED (
  SELECT
    l.job_id, l.token, l.worker, l.claim, l.acquired_at, l.begun_at, l.expires_at, l.renewals,
    l.cancel_requested_at, j.state AS was, j.losses, j.max_attempts
  FROM django_relay_lease AS l
  JOIN django_relay_job AS j ON j.id = l.job_id
  WHERE {which} AND l.job_id {{among}}
  ORDER BY l.job_id
  LIMIT {limit}
  FOR UPDATE OF l SKIP LOCKED
  FOR NO KEY UPDATE OF j SKIP LOCKED
)
"""
RESCUE = """
, decided AS MATERIALIZED (
  SELECT c.*, clock_timestamp() AS at,
    CASE
      WHEN c.cancel_requested_at IS NOT NULL THEN 'cancelled'
      WHEN NOT c.lost THEN 'ready'
      WHEN c.losses + 1 >= c.max_attempts THEN 'failed'
      WHEN c.losses >= 1 THEN 'scheduled'
      ELSE 'ready'
    END AS state,
    make_interval(secs => LEAST(power(2, LEAST(c.losses + 1, 20)), 300)) AS spacing
  FROM (
    SELECT chosen.*, {lost} AS lost FROM chosen WHERE was = 'running'
  ) AS c
), freed AS (
  DELETE FROM django_relay_lease AS l USING decided AS d WHERE l.job_id = d.job_id
), job AS (
  UPDATE django_relay_job AS j SET
    state = d.state,
    losses = LEAST(j.losses + d.lost::integer, 1000000000),
    run_after = CASE WHEN d.state = 'scheduled' THEN d.at + d.spacing ELSE j.run_after END,
    started_at = COALESCE(j.started_at, d.begun_at, CASE WHEN d.lost THEN d.acquired_at END),
    last_attempted_at = COALESCE(
      d.begun_at, CASE WHEN d.lost THEN d.acquired_at END, j.last_attempted_at
    ),
    finished_at = CASE WHEN d.state IN ('failed', 'cancelled') THEN d.at END,
    unique_key = CASE WHEN d.state IN ('scheduled', 'ready') THEN j.unique_key END
  FROM decided AS d
  WHERE j.id = d.job_id
  RETURNING j.id, j.queue, j.task, j.losses, d.token, d.state, d.worker, d.claim, d.at, d.lost,
    d.expires_at, d.renewals, d.spacing,
    CASE
      WHEN d.state IN ('failed', 'cancelled') THEN d.state
      WHEN d.lost THEN 'rescued'
      ELSE 'released'
    END AS kind
), event AS (
  INSERT INTO django_relay_event (job_id, kind, at, claim, token, worker, data)
  SELECT
    id, kind, at, claim, token, worker,
    jsonb_strip_nulls(jsonb_build_object(
      'state', state,
      'lost', CASE WHEN lost OR kind <> 'released' THEN true END,
      'began', CASE WHEN kind = 'released' THEN false END,
      'why', %(why)s::text,
      'expired_at', CASE WHEN lost THEN LEAST(expires_at, at) END,
      'renewals', NULLIF(renewals, 0),
      'run_after', CASE WHEN state = 'scheduled' THEN at + spacing END,
      'error', CASE WHEN kind = 'failed' THEN %(error)s::jsonb END
    ))
  FROM job
), moved AS (
  SELECT id, state, kind, worker, queue, task, losses FROM job
)
"""

EXPIRED = Batch(
    CHOSEN.format(which="l.expires_at <= clock_timestamp()", limit=500),
    RESCUE.format(lost="true"),
    tried="decided",
    job="job_id",
)
OF_CHILD = Batch(
    CHOSEN.format(which="l.worker = %(worker)s", limit=10_000),
    RESCUE.format(
        lost="(chosen.begun_at IS NOT NULL OR chosen.token = ANY (%(begun)s::uuid[])"
        " OR chosen.expires_at <= clock_timestamp())"
    ),
    tried="decided",
    job="job_id",
)

# Locks: the job rows, SKIP LOCKED. No transition leaves a running job without a lease; somebody's
# own SQL can. Its owner's ending will be refused, as any that finds no lease.
LEASELESS = Batch(
    """
chosen AS MATERIALIZED (
  SELECT j.id FROM django_relay_job AS j
  WHERE j.state = 'running' AND j.id {among}
    AND NOT EXISTS (SELECT 1 FROM django_relay_lease AS l WHERE l.job_id = j.id)
  ORDER BY j.id
  LIMIT 500
  FOR NO KEY UPDATE OF j SKIP LOCKED
)
""",
    """
, job AS (
  UPDATE django_relay_job AS j SET
    state = CASE WHEN j.losses + 1 >= j.max_attempts THEN 'failed' ELSE 'ready' END,
    losses = LEAST(j.losses + 1, 1000000000),
    finished_at = CASE WHEN j.losses + 1 >= j.max_attempts THEN clock_timestamp() END,
    unique_key = CASE WHEN j.losses + 1 >= j.max_attempts THEN NULL ELSE j.unique_key END
  FROM chosen
  WHERE j.id = chosen.id
  RETURNING j.id, j.state, j.queue, j.task, j.losses, j.claims
), event AS (
  INSERT INTO django_relay_event (job_id, kind, at, claim, data)
  SELECT
    id, CASE state WHEN 'failed' THEN 'failed' ELSE 'rescued' END, clock_timestamp(), claims,
    jsonb_strip_nulls(jsonb_build_object(
      'state', state, 'lost', true, 'why', 'its lease row was missing',
      'error', CASE WHEN state = 'failed' THEN %(error)s::jsonb END
    ))
  FROM job
), moved AS (
  SELECT
    id, state, CASE state WHEN 'failed' THEN 'failed' ELSE 'rescued' END, '', queue, task, losses
  FROM job
)
""",
)

# Locks: the leases in job id order, SKIP LOCKED. A lease whose job does not run protects nothing
# and would hold up the job's next claim. The lock returns the newest lease, so a lease made after
# the snapshot is not among them.
ORPHANED = Batch(
    """
chosen AS MATERIALIZED (
  SELECT l.job_id AS id, l.token FROM django_relay_lease AS l
  WHERE (SELECT state FROM django_relay_job AS j WHERE j.id = l.job_id)
    IS DISTINCT FROM 'running'
    AND l.job_id {among}
  ORDER BY l.job_id
  LIMIT 500
  FOR UPDATE OF l SKIP LOCKED
)
""",
    """
, moved AS (
  DELETE FROM django_relay_lease AS l USING chosen AS c
  WHERE l.job_id = c.id AND l.token = c.token
  RETURNING l.job_id AS id
)
""",
)

_LOST = (
    '{"class": "django_relay.exceptions.WorkerLost", "message": "The worker process was lost while '
    'this job ran, as often as max_attempts allows.", "traceback": ""}'
)


def rescue_expired(connection: Session, quarantine: Quarantine | None = None) -> list[Rescued]:
    """Take back up to 500 jobs whose lease has run out by the database's clock."""
    quarantine = quarantine or Quarantine()
    jobs = _rescue(connection, EXPIRED, {"why": "its lease ran out"}, quarantine)
    if not jobs:
        # What is over and was not rescued is locked, or no running job has it.
        _sweep(connection, quarantine)
    return jobs


def rescue_child(
    connection: Session,
    worker: str,
    *,
    begun: Collection[str],
    quarantine: Quarantine | None = None,
) -> list[Rescued]:
    """Take back what a dead child held. ``begun`` are the tokens whose handlers it had reported.

    ``worker`` is unique per boot and child. Call it for a while: the child's last statement may
    still be under way on the server.
    """
    why: dict[str, object] = {"why": "its process died", "worker": worker, "begun": list(begun)}
    return _rescue(connection, OF_CHILD, why, quarantine or Quarantine())


def mend(
    connection: Session, quarantine: Quarantine | None = None
) -> tuple[list[Rescued], list[int]]:
    """Rescue running jobs that have no lease, and delete leases that no running job has."""
    quarantine = quarantine or Quarantine()
    orphans = _sweep(connection, quarantine)
    return _rescue(connection, LEASELESS, {}, quarantine), orphans


def _sweep(connection: Session, quarantine: Quarantine) -> list[int]:
    return [job_id for (job_id,) in ORPHANED.move(connection, {}, quarantine)]


def _rescue(
    connection: Session, batch: Batch, values: dict[str, object], quarantine: Quarantine
) -> list[Rescued]:
    rows = batch.move(connection, {**values, "error": _LOST}, quarantine)
    return [Rescued(*row) for row in rows]
