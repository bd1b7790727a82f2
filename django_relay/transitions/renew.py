"""Keep leases: extend those still live, and learn which are gone or asked to stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from .halves import in_halves, said
from .session import Session


@dataclass(frozen=True, slots=True)
class Held:
    """A lease that a child reported. ``ran`` is the time since the handler began, in seconds;
    ``budget`` is the time it may take in all (time-out and its grace), or None."""

    job_id: int
    token: str
    ran: float
    budget: float | None = None


@dataclass(frozen=True, slots=True)
class Renewal:
    """The answer, as tokens: still ours, ours but asked to stop, and gone.

    A token in none of the three was locked by its own ending for a moment, or the database would
    not have it renewed, as ``rejection`` says: ask again.
    """

    kept: frozenset[str]
    stop: frozenset[str]
    gone: frozenset[str]
    rejection: str | None = None


# Locks: the reported leases that are still there, SKIP LOCKED: a renewal never waits, since the
# holder of the lock is the lease's own ending, as a rule. The end is compared with the clock
# after the lock is held, or a lease that ran out meanwhile would be revived. A lease is never
# renewed beyond its deadline and one lease more, so that the supervisor's time-out still settles
# under a live lease. The first renewal writes when the handler began.
# The job's state is looked up by its key. Where a state is a condition of a join, a plan made
# before the table was analyzed may read all the jobs in that state: no statement here joins by one.
RENEW = """
WITH report AS MATERIALIZED (
  SELECT * FROM unnest(
    %(job_ids)s::bigint[], %(tokens)s::uuid[], %(ran)s::float8[], %(budgets)s::float8[]
  ) AS r(job_id, token, ran, budget)
), held AS MATERIALIZED (
  SELECT l.job_id, l.token, l.expires_at, r.ran, r.budget
  FROM django_relay_lease AS l
  JOIN report AS r ON r.job_id = l.job_id AND r.token = l.token
  WHERE (SELECT state FROM django_relay_job AS j WHERE j.id = l.job_id) = 'running'
  ORDER BY l.job_id
  FOR NO KEY UPDATE OF l SKIP LOCKED
)
UPDATE django_relay_lease AS l SET
  begun_at = COALESCE(l.begun_at, clock_timestamp() - make_interval(secs => h.ran)),
  deadline = COALESCE(l.deadline, clock_timestamp() + make_interval(secs => h.budget - h.ran)),
  expires_at = LEAST(
    clock_timestamp() + %(lease)s::interval,
    COALESCE(l.deadline, clock_timestamp() + make_interval(secs => h.budget - h.ran))
      + %(lease)s::interval
  ),
  renewals = LEAST(l.renewals + 1, 1000000000)
FROM held AS h
WHERE l.job_id = h.job_id AND h.expires_at > clock_timestamp()
RETURNING l.token::text, l.cancel_requested_at IS NOT NULL
"""

# Locks: the lease, SKIP LOCKED. Its job's handler may have run, which only the end of the lease
# tells whoever rescues it.
FORFEIT = """
WITH own AS MATERIALIZED (
  SELECT job_id FROM django_relay_lease
  WHERE job_id = %(job)s AND token = %(token)s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE django_relay_lease AS l SET expires_at = LEAST(l.expires_at, clock_timestamp())
FROM own WHERE l.job_id = own.job_id
RETURNING l.job_id
"""

# Locks nothing: tells a lease that is gone from one that its ending had locked for a moment.
STILL_THERE = """
SELECT l.token::text FROM django_relay_lease AS l
JOIN unnest(%(job_ids)s::bigint[], %(tokens)s::uuid[]) AS r(job_id, token)
  ON r.job_id = l.job_id AND r.token = l.token
WHERE l.expires_at > clock_timestamp()
  AND (SELECT state FROM django_relay_job AS j WHERE j.id = l.job_id) = 'running'
"""


def renew(connection: Session, reported: Sequence[Held], *, lease: float) -> Renewal:
    """Extend the ``reported`` leases to ``lease`` seconds from the database's now."""
    rejections: list[str] = []

    def rejected(_: Held, error: Exception) -> list[tuple[str, bool]]:
        rejections.append(said(error))
        return []

    parts = in_halves(reported, partial(_renew, connection, f"{lease} seconds"), rejected)
    rows = [row for part in parts for row in part]
    kept = {token for token, _ in rows}
    missing = [(held.job_id, held.token) for held in reported if held.token not in kept]
    busy = still_held(connection, missing) if missing else set()
    return Renewal(
        kept=frozenset(kept),
        stop=frozenset(token for token, stop in rows if stop),
        gone=frozenset(token for _, token in missing if token not in busy),
        rejection=rejections[0] if rejections else None,
    )


def _renew(connection: Session, lease: str, reported: Sequence[Held]) -> list[tuple[str, bool]]:
    values = {
        "job_ids": [held.job_id for held in reported],
        "tokens": [held.token for held in reported],
        "ran": [held.ran for held in reported],
        "budgets": [held.budget for held in reported],
        "lease": lease,
    }
    with connection.cursor() as cursor:
        cursor.execute(RENEW, values)
        rows: list[tuple[str, bool]] = cursor.fetchall()
        return rows


def forfeit(connection: Session, job_id: int, token: str) -> bool:
    """End a lease now, whose job cannot be moved to an end; tell whether it was there and free."""
    with connection.cursor() as cursor:
        cursor.execute(FORFEIT, {"job": job_id, "token": token})
        return bool(cursor.fetchall())


def still_held(connection: Session, leases: Sequence[tuple[int, str]]) -> set[str]:
    """Return which of these (job id, token) are live leases of running jobs at this moment."""
    values = {"job_ids": [job_id for job_id, _ in leases], "tokens": [t for _, t in leases]}
    with connection.cursor() as cursor:
        cursor.execute(STILL_THERE, values)
        return {token for (token,) in cursor.fetchall()}
