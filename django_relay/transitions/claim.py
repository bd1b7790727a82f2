"""Take ready jobs: lock them, give each a lease with a fresh token, commit before any handler.

The pick is a Django queryset, so the lock is Django's own ``select_for_update``; its SQL is
embedded in one statement, so a claim is one round trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from django.db import connections
from django.db.models import BooleanField, Func
from django.db.models.expressions import F, RawSQL

from .session import Session


@dataclass(frozen=True, slots=True)
class Claimed:
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
    """The answer to a claim: the jobs, whether it ended before one that must run alone, and whether
    anything else was ready: of lower priority than the head, or locked for a moment."""

    jobs: tuple[Claimed, ...]
    before_alone: bool
    left: bool


# The names of the worker's queues as given, or of all queues that have something ready: one index
# probe a queue, however many jobs each holds.
NAMED = "SELECT unnest(%(queues)s::text[]) AS name"
ANY = """
  (SELECT queue AS name FROM django_relay_job WHERE state = 'ready' ORDER BY queue LIMIT 1)
  UNION ALL
  SELECT (
    SELECT j.queue FROM django_relay_job AS j
    WHERE j.state = 'ready' AND j.queue > q.name ORDER BY j.queue LIMIT 1
  )
  FROM queue AS q WHERE q.name IS NOT NULL
"""

# Locks: the picked job rows, SKIP LOCKED, so no claim waits for another or for a promotion.
# `head` reads, without a lock, the first job of each queue; `picked` goes through the queues by
# their heads, highest priority first and then oldest, so that no queue starves another. `bounded`
# keeps it to rows as good as the head; without, a second claim takes what is `remaining`, because
# it was worth less or its head was locked. The outer LIMIT stops the loop: exactly the rows picked
# are locked. The lock returns the newest version of a row, so `claims` is counted from there and
# not from the snapshot.
# `before` cuts the list in front of the first job that has cost a process: it runs alone.
# The lease goes in first, and only jobs whose lease went in are moved: an orphan lease or a full
# limit holds up one job, never the claim. Two claimers can never get one job: the second finds its
# row locked or no longer ready.
CLAIM = """
WITH RECURSIVE queue AS ({queues}), head AS MATERIALIZED (
  SELECT q.name, h.priority FROM queue AS q CROSS JOIN LATERAL (
    SELECT priority, id FROM django_relay_job
    WHERE state = 'ready' AND queue = q.name
    ORDER BY (-priority), id LIMIT 1
  ) AS h
  ORDER BY (-h.priority), h.id
), picked AS MATERIALIZED (
  SELECT p.* FROM head CROSS JOIN LATERAL ({pick}) AS p LIMIT {limit}
), placed AS MATERIALIZED (
  SELECT picked.*, row_number() OVER () AS place FROM picked
), remaining AS MATERIALIZED (
  SELECT EXISTS (
    SELECT 1 FROM head CROSS JOIN LATERAL (
      SELECT 1 FROM django_relay_job
      WHERE state = 'ready' AND queue = head.name AND id <> ALL (ARRAY(SELECT id FROM picked))
      ORDER BY (-priority), id LIMIT 1
    ) AS r
  ) AS any
), before AS MATERIALIZED (
  SELECT min(place) AS place FROM placed WHERE losses > 0 AND NOT %(alone)s
), lease AS (
  INSERT INTO django_relay_lease (
    job_id, token, worker, claim, acquired_at, expires_at, renewals
  )
  SELECT
    p.id, gen_random_uuid(), %(worker)s, LEAST(p.claims + 1, 1000000000),
    clock_timestamp(), clock_timestamp() + %(lease)s::interval, 0
  FROM placed AS p, before
  WHERE before.place IS NULL OR p.place < before.place
  ORDER BY p.id
  ON CONFLICT DO NOTHING
  RETURNING job_id, token, claim, acquired_at
), job AS (
  UPDATE django_relay_job SET
    state = 'running',
    claims = LEAST(claims + 1, 1000000000),
    unique_key = CASE WHEN unique_scope = 'waiting' THEN NULL ELSE unique_key END
  WHERE id = ANY (ARRAY(SELECT job_id FROM lease)) AND state = 'ready'
  RETURNING
    id, queue, task, args::text, kwargs::text, priority, failures, losses, interruptions,
    max_attempts, EXTRACT(EPOCH FROM timeout)::float8 AS timeout, metadata::text,
    enqueued_at, run_after, started_at
), event AS (
  INSERT INTO django_relay_event (job_id, kind, at, claim, token, worker)
  SELECT l.job_id, 'claimed', clock_timestamp(), l.claim, l.token, %(worker)s
  FROM lease AS l JOIN job AS j ON j.id = l.job_id
)
SELECT
  before.place IS NOT NULL, remaining.any, j.id, l.token::text, l.claim, j.queue, j.task, j.args,
  j.kwargs, j.priority, j.failures, j.losses, j.interruptions, j.max_attempts, j.timeout,
  j.metadata, l.acquired_at, j.enqueued_at, j.run_after, j.started_at
FROM before CROSS JOIN remaining
LEFT JOIN (job AS j JOIN lease AS l ON l.job_id = j.id JOIN placed AS p ON p.id = j.id) ON true
ORDER BY p.place
"""


#: Stands for the limit in the compiled pick; replaced by the integer that a claim asks for.
_LIMIT = 987_654_321


@cache
def _pick(database: str) -> str:
    """Compile the pick once."""
    from django_relay.models import Job

    def literally(condition: str) -> RawSQL:
        # The state is a literal: a plan cannot prove a partial index from a parameter.
        return RawSQL(condition, (), BooleanField())  # noqa: S611 - constants

    pick = (
        Job.objects.using(database)
        .filter(
            literally("state = 'ready'"),
            literally("queue = head.name"),
            literally("(-priority) <= CASE WHEN %(bounded)s THEN -head.priority ELSE 100 END"),
            literally("(start_before IS NULL OR start_before > statement_timestamp())"),
        )
        .order_by(Func(F("priority"), template="(-%(expressions)s)"), "id")
        .select_for_update(skip_locked=True, no_key=True)
        .values_list("id", "claims", "losses")[:_LIMIT]
    )
    # Django compiles a lock only where one could be held, and would connect to find out. This copy
    # never connects: it says that it is in a transaction.
    compiling = connections[database].copy()
    compiling.get_autocommit = lambda: False  # type: ignore[method-assign]
    sql: str
    sql, params = pick.query.get_compiler(connection=compiling).as_sql()
    if params:
        raise AssertionError(f"the pick has no parameters of its own, found {params!r}")
    return sql


@cache
def _statement(database: str, limit: int, any_queue: bool) -> str:
    pick = _pick(database).replace(str(_LIMIT), str(int(limit)))
    return CLAIM.format(queues=ANY if any_queue else NAMED, pick=pick, limit=int(limit))


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
) -> Claim:
    """Take up to ``limit`` ready jobs of ``queues`` (None: any), each for ``lease`` seconds.

    The connection is in autocommit: the claim has committed when this returns. With ``alone`` the
    first job is taken although it has cost a process before, and no other. ``bounded`` is the first
    try; an unbounded second one finds jobs behind heads that others have locked.
    """
    statement = _statement(database, 1 if alone else limit, queues is None)
    values = {
        "queues": None if queues is None else list(queues),
        "worker": worker,
        "lease": f"{lease} seconds",
        "alone": alone,
        "bounded": bounded,
    }
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        rows = cursor.fetchall()
    return Claim(
        jobs=tuple(Claimed(*row[2:]) for row in rows if row[2] is not None),
        before_alone=rows[0][0],
        left=rows[0][1],
    )
