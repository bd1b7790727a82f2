"""Take ready jobs: lock them, give each a lease with a fresh token, commit before any handler.

One statement, so one round trip: which jobs it takes is told in ``pick``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from .frontier import Frontier
from .pick import ANY, BEHIND, NAMED, picking
from .quarantine import Quarantine
from .session import Session


class Claimed(NamedTuple):
    """One job under a lease of ours. Durations are in seconds, ``args``, ``kwargs`` and
    ``metadata`` JSON texts.

    ``token`` is the proof of ownership; ``claim`` counts the job's claims and is never reset.
    """

    job_id: int
    token: str
    claim: int
    queue: str
    task: str
    args: str
    kwargs: str
    priority: int
    failures: int
    losses: int
    interruptions: int
    max_attempts: int | None
    timeout: float | None
    metadata: str | None
    acquired_at: datetime
    enqueued_at: datetime
    run_after: datetime
    started_at: datetime | None


@dataclass(frozen=True, slots=True)
class Claim:
    """The answer to a claim: the jobs; and of one that came back short, whether anything else was
    ``left``, of lower priority than the head or locked for a moment; whether ``suspects`` are
    ready, jobs that have cost a process and run alone; and whether it began behind a frontier, with
    all before that ``unseen``."""

    jobs: tuple[Claimed, ...]
    left: bool
    suspects: bool
    unseen: bool = False


# Locks: the rows `picked`, which are locked already; see there. The lease goes in first, and only
# jobs whose lease went in are moved. Two claimers can never get one job: the second finds its row
# locked or no longer ready. What was picked and not moved, because an orphan lease was in its way
# or a trigger skipped it, is told, so that it holds up no other claim.
# `job` finds its rows by key, one by one, which is what `= ANY (ARRAY[...])` leaves a planner no
# way around: by a plain join, or a condition on the state, a plan made before the table was
# analyzed may read every job instead.
TAKING = """
, lease AS (
  INSERT INTO django_relay_lease (
    job_id, token, worker, claim, acquired_at, expires_at, renewals
  )
  SELECT
    p.id, gen_random_uuid(), %(worker)s, LEAST(p.claims + 1, 1000000000),
    clock_timestamp(), clock_timestamp() + %(lease)s::interval, 0
  FROM picked AS p
  ORDER BY p.id
  ON CONFLICT DO NOTHING
  RETURNING job_id, token, claim, acquired_at
), job AS (
  UPDATE django_relay_job AS j SET
    state = 'running',
    claims = l.claim,
    unique_key = CASE WHEN j.unique_scope = 'waiting' THEN NULL ELSE j.unique_key END
  FROM lease AS l
  WHERE j.id = ANY (ARRAY[l.job_id])
  RETURNING
    j.id, l.token, l.claim, j.queue, j.task, j.args::text, j.kwargs::text, j.priority, j.failures,
    j.losses, j.interruptions, j.max_attempts, EXTRACT(EPOCH FROM j.timeout)::float8 AS timeout,
    j.metadata::text, l.acquired_at, j.enqueued_at, j.run_after, j.started_at
), event AS (
  INSERT INTO django_relay_event (job_id, kind, at, claim, token, worker)
  SELECT id, 'claimed', clock_timestamp(), claim, token, %(worker)s FROM job
)
"""
CLAIMED = """
SELECT
  rest.left, rest.suspects,
  EXTRACT(EPOCH FROM j.acquired_at - (SELECT at FROM head LIMIT 1))::float8
    / (1 + (SELECT count(*) FROM head) / 40.0) AS picking,
  CASE WHEN (SELECT count(*) FROM picked) > (SELECT count(*) FROM job) THEN ARRAY(
    SELECT id FROM picked WHERE id NOT IN (SELECT id FROM job)
  ) END AS skipped,
  j.id, j.token::text, j.claim, j.queue, j.task, j.args, j.kwargs,
  j.priority, j.failures, j.losses, j.interruptions, j.max_attempts, j.timeout, j.metadata,
  j.acquired_at, j.enqueued_at, j.run_after, j.started_at
FROM rest LEFT JOIN job AS j ON true
ORDER BY (-j.priority), j.id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A claim as it is sent, and how its answer is read; see ``claim``."""

    limit: int
    database: str
    queues: Sequence[str] | None
    worker: str
    lease: float
    alone: bool = False
    bounded: bool = True
    frontier: Frontier | None = None
    quarantine: Quarantine = field(default_factory=Quarantine)

    @property
    def _frontier(self) -> Frontier | None:
        """Claims of other kinds look at other rows, or at all."""
        return self.frontier if self.bounded and not self.alone else None

    def asked(self, only: Sequence[int] | None = None) -> tuple[str, dict[str, object]]:
        """Return the CTEs of the claim, which ``CLAIMED`` reads, and their values.

        ``only`` are the ids of the jobs that may be taken, where not any.
        """
        picks, values = self.picks(only)
        return picks + TAKING, values

    def picks(self, only: Sequence[int] | None = None) -> tuple[str, dict[str, object]]:
        """Return the CTEs that lock the jobs, and what there is to know of others."""
        starts = self._frontier.starts() if self._frontier else []
        names, worths, ids = zip(*starts, strict=True) if starts else ((), (), ())
        condition, among = self.quarantine.among(only)
        values: dict[str, object] = {
            "limit": 1 if self.alone else self.limit,
            "queues": None if self.queues is None else list(self.queues),
            "worker": self.worker,
            "lease": f"{self.lease} seconds",
            "bounded": self.bounded,
            "names": list(names),
            "worths": list(worths),
            "ids": list(ids),
        }
        queues = BEHIND if starts else ANY if self.queues is None else NAMED
        return picking(self.database, queues, alone=self.alone, among=condition), values | among

    def read(self, rows: Sequence[tuple[Any, ...]]) -> Claim:
        """Read the answer."""
        left, suspects, picking, skipped = rows[0][:4]
        jobs = tuple(Claimed._make(row[4:]) for row in rows if row[4] is not None)
        frontier, full = self._frontier, len(jobs) >= self.limit
        unseen = bool(frontier and frontier.behind and not full)
        if frontier:
            frontier.reached(jobs, picking=picking or 0.0, full=full)
        for job_id in skipped or ():
            self.quarantine.skip(job_id)
        return Claim(
            jobs, left=left and not unseen, suspects=suspects, unseen=unseen or bool(skipped)
        )


def claim(
    connection: Session,
    limit: int,
    *,
    database: str,
    queues: Sequence[str] | None,
    worker: str,
    lease: float,
    alone: bool = False,
    bounded: bool = True,
    frontier: Frontier | None = None,
    quarantine: Quarantine | None = None,
) -> Claim:
    """Take up to ``limit`` ready jobs of ``queues`` (None: any), each for ``lease`` seconds.

    The connection is in autocommit: the claim has committed when this returns. Jobs that have cost
    a process are passed over; with ``alone`` one of them is taken, and no other. ``bounded`` is the
    first try; an unbounded second one finds jobs behind heads that others have locked. The
    ``frontier`` is the session's own, if it claims again and again, and so is the ``quarantine``: a
    job that cannot be taken keeps none behind it from being taken.
    """
    request = Request(
        limit=limit,
        database=database,
        queues=queues,
        worker=worker,
        lease=lease,
        alone=alone,
        bounded=bounded,
        frontier=frontier,
        quarantine=quarantine or Quarantine(),
    )
    take, pick = partial(_take, connection, request), partial(_pick, connection, request)
    claims = request.quarantine.move(connection, take, pick)
    if len(claims) == 1:
        return claims[0]
    return _partly(tuple(job for claim in claims for job in claim.jobs))


def _take(connection: Session, request: Request, only: Sequence[int] | None) -> Claim:
    claiming, values = request.asked(only)
    claim = request.read(_rows(connection, f"{claiming} {CLAIMED}", values))
    return claim if only is None else _partly(claim.jobs)


def _pick(connection: Session, request: Request) -> list[int]:
    """Lock the jobs that would be taken, for no longer than the statement, and return their ids."""
    picks, values = request.picks()
    return [row[0] for row in _rows(connection, f"{picks} SELECT id FROM picked", values)]


def _partly(jobs: tuple[Claimed, ...]) -> Claim:
    """What is left, and whether any runs alone, is to be seen without what was rejected."""
    return Claim(jobs, left=False, suspects=False, unseen=True)


def _rows(connection: Session, statement: str, values: dict[str, object]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(f"WITH RECURSIVE {statement}", values)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows
