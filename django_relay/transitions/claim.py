"""Take ready jobs: lock them, give each a lease with a fresh token, commit before any handler.

The pick is a Django queryset, so the lock is Django's own ``select_for_update``; its SQL is
embedded in one statement, so a claim is one round trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from django.db import connections
from django.db.models import BooleanField, Func
from django.db.models.expressions import F, RawSQL

from .frontier import Frontier
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
    """The answer to a claim: the jobs; and of one that came back short, whether anything else was
    ``left``, of lower priority than the head or locked for a moment; whether ``suspects`` are
    ready, jobs that have cost a process and run alone; and whether it began behind a frontier, with
    all before that ``unseen``."""

    jobs: tuple[Claimed, ...]
    left: bool
    suspects: bool
    unseen: bool = False


# The names of the worker's queues as given, or of all queues that have something ready: one index
# probe a queue, however many jobs each holds.
NAMED = "SELECT unnest(%(queues)s::text[]) AS name"
ANY = """
  (SELECT queue AS name FROM django_relay_job WHERE {ready} ORDER BY queue LIMIT 1)
  UNION ALL
  SELECT (
    SELECT queue FROM django_relay_job WHERE {ready} AND queue > q.name ORDER BY queue LIMIT 1
  )
  FROM queue AS q WHERE q.name IS NOT NULL
"""
# The queues behind whose frontier a claim starts, and the last job that was taken from each.
BEHIND = """
SELECT * FROM unnest(%(names)s::text[], %(worths)s::integer[], %(ids)s::bigint[])
  AS q(name, worth, last)
"""

#: What a claim looks at: jobs that may run beside others, or those that have cost a process. Each
#: is literally the condition of an index, or implies it.
BESIDE = "state = 'ready' AND losses <= 0"
ALONE = "state = 'ready' AND losses > 0"

# Locks: the picked job rows, SKIP LOCKED, so no claim waits for another or for a promotion.
# `head` reads, without a lock, the first job of each queue; `picked` goes through the queues by
# their heads, highest priority first and then oldest, so that no queue starves another. `bounded`
# keeps it to rows as good as the head; without, a second claim takes what is `left`, because it
# was worth less or its head was locked. `picking` is how long that took. Behind a frontier
# both see only what follows it: an index condition, so nothing before it is touched. The outer
# LIMIT stops the loop: exactly the rows picked are locked. The lock returns the newest version of
# a row, so `claims` is counted from there and not from the snapshot, and nobody can move the job
# before `job` does.
# The lease goes in first, and only jobs whose lease went in are moved: an orphan lease or a full
# limit holds up one job, never the claim. Two claimers can never get one job: the second finds
# its row locked or no longer ready.
# `job` finds its rows by key, one by one, which is what `= ANY (ARRAY[...])` leaves a planner no
# way around: by a plain join, or a condition on the state, a plan made before the table was
# analyzed may read every job instead.
CLAIMING = """
queue AS ({queues}), head AS MATERIALIZED (
  SELECT q.*, h.priority, clock_timestamp() AS at FROM queue AS q CROSS JOIN LATERAL (
    SELECT priority, id FROM django_relay_job
    WHERE {ready} AND queue = q.name AND {behind_q}
    ORDER BY (-priority), id LIMIT 1
  ) AS h
  ORDER BY (-h.priority), h.id
), picked AS MATERIALIZED (
  SELECT p.* FROM head CROSS JOIN LATERAL ({pick}) AS p LIMIT %(limit)s
), rest AS MATERIALIZED (
  SELECT
    short.is AND EXISTS (
      SELECT 1 FROM head CROSS JOIN LATERAL (
        SELECT 1 FROM django_relay_job
        WHERE {ready} AND queue = head.name AND {behind_head}
          AND id <> ALL (ARRAY(SELECT id FROM picked))
        ORDER BY (-priority), id LIMIT 1
      ) AS r
    ) AS left,
    short.is AND EXISTS (
      SELECT 1 FROM django_relay_job
      WHERE state = 'ready' AND losses > 0
        AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
    ) AS suspects
  FROM (SELECT count(*) < %(limit)s AS is FROM picked) AS short
), lease AS (
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
  EXTRACT(EPOCH FROM j.acquired_at - (SELECT at FROM head LIMIT 1))::float8 AS picking,
  j.id, j.token::text, j.claim, j.queue, j.task, j.args, j.kwargs,
  j.priority, j.failures, j.losses, j.interruptions, j.max_attempts, j.timeout, j.metadata,
  j.acquired_at, j.enqueued_at, j.run_after, j.started_at
FROM rest LEFT JOIN job AS j ON true
ORDER BY (-j.priority), j.id
"""


#: Stands for the limit in the compiled pick, which has no parameter of its own.
_LIMIT = 987_654_321


@cache
def _pick(database: str, ready: str, behind: str) -> str:
    """Compile the pick once."""
    from django_relay.models import Job

    def literally(condition: str) -> RawSQL:
        # The state is a literal: a plan cannot prove a partial index from a parameter.
        return RawSQL(condition, (), BooleanField())  # noqa: S611 - constants

    pick = (
        Job.objects.using(database)
        .filter(
            literally(ready),
            literally("queue = head.name"),
            literally(behind.format(of="head")),
            literally("(-priority) <= CASE WHEN %(bounded)s THEN -head.priority ELSE 100 END"),
            literally("(start_before IS NULL OR start_before > statement_timestamp())"),
        )
        .order_by(Func(F("priority"), template="(-%(expressions)s)"), "id")
        .select_for_update(skip_locked=True, no_key=True)
        .values_list("id", "claims")[:_LIMIT]
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
def _claiming(database: str, queues: str, alone: bool) -> str:
    ready = ALONE if alone else BESIDE
    behind = "((-priority), id) > ({of}.worth, {of}.last)" if queues is BEHIND else "true"
    return CLAIMING.format(
        queues=queues.format(ready=ready),
        ready=ready,
        behind_q=behind.format(of="q"),
        behind_head=behind.format(of="head"),
        pick=_pick(database, ready, behind).replace(str(_LIMIT), "%(limit)s"),
    )


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

    @property
    def _frontier(self) -> Frontier | None:
        """Claims of other kinds look at other rows, or at all."""
        return self.frontier if self.bounded and not self.alone else None

    def asked(self) -> tuple[str, dict[str, object]]:
        """Return the CTEs of the claim, which ``CLAIMED`` reads, and their values."""
        starts = self._frontier.starts() if self._frontier else []
        names, worths, ids = zip(*starts, strict=True) if starts else ((), (), ())
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
        return _claiming(self.database, queues, self.alone), values

    def read(self, rows: Sequence[tuple[Any, ...]]) -> Claim:
        """Read the answer."""
        left, suspects, picking = rows[0][:3]
        jobs = tuple(Claimed(*row[3:]) for row in rows if row[3] is not None)
        frontier, full = self._frontier, len(jobs) >= self.limit
        unseen = bool(frontier and frontier.behind and not full)
        if frontier:
            frontier.reached(jobs, picking=picking or 0.0, full=full)
        return Claim(jobs, left=left and not unseen, suspects=suspects, unseen=unseen)


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
) -> Claim:
    """Take up to ``limit`` ready jobs of ``queues`` (None: any), each for ``lease`` seconds.

    The connection is in autocommit: the claim has committed when this returns. Jobs that have cost
    a process are passed over; with ``alone`` one of them is taken, and no other. ``bounded`` is the
    first try; an unbounded second one finds jobs behind heads that others have locked. The
    ``frontier`` is the session's own, if it claims again and again.
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
    )
    claiming, values = request.asked()
    with connection.cursor() as cursor:
        cursor.execute(f"WITH RECURSIVE {claiming} {CLAIMED}", values)
        return request.read(cursor.fetchall())
