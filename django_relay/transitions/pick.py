"""Which of the ready jobs a claim takes, and in what order; and whether it left any.

The rows it locks are a Django queryset, so the lock is Django's own ``select_for_update``; its SQL
is embedded in the claim's.
"""

from __future__ import annotations

from functools import cache

from django.db import connections
from django.db.models import BooleanField, Func
from django.db.models.expressions import F, RawSQL

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
# was worth less or its head was locked. `at` is when all that began: OFFSET 0 has it taken before
# the first look into an index. Behind a frontier both see only what follows it: an index condition,
# so nothing before it is touched. The outer
# LIMIT stops the loop: exactly the rows picked are locked. The lock returns the newest version of
# a row, so `claims` is counted from there and not from the snapshot, and nobody can move the job
# before `job` does.
PICKING = """
queue AS ({queues}), head AS MATERIALIZED (
  SELECT q.*, h.priority
  FROM (SELECT clock_timestamp() AS at OFFSET 0) AS start
  CROSS JOIN LATERAL (SELECT queue.*, start.at FROM queue OFFSET 0) AS q
  CROSS JOIN LATERAL (
    SELECT priority, id FROM django_relay_job
    WHERE {ready} AND queue = q.name AND {behind_q} AND id {among}
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
        WHERE {ready} AND queue = head.name AND {behind_head} AND id {among}
          AND id <> ALL (ARRAY(SELECT id FROM picked))
        ORDER BY (-priority), id LIMIT 1
      ) AS r
    ) AS left,
    short.is AND EXISTS (
      SELECT 1 FROM django_relay_job
      WHERE state = 'ready' AND losses > 0 AND id {among}
        AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
    ) AS suspects
  FROM (SELECT count(*) < %(limit)s AS is FROM picked) AS short
)
"""


#: Stands for the limit in the compiled pick, which has no parameter of its own.
_LIMIT = 987_654_321


@cache
def _locked(database: str, ready: str, behind: str, among: str) -> str:
    """Compile the query of the rows that are locked once."""
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
            literally(f"id {among}"),
            literally("(-priority) <= CASE WHEN %(bounded)s THEN -head.priority ELSE 32767 END"),
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
def picking(database: str, queues: str, *, alone: bool, among: str) -> str:
    """Return the CTEs ``picked``, the rows that are now locked, and ``rest``.

    ``queues`` is NAMED, ANY or BEHIND; ``alone`` takes a job that has cost a process; ``among`` is
    the quarantine's condition.
    """
    ready = ALONE if alone else BESIDE
    behind = "((-priority), id) > ({of}.worth, {of}.last)" if queues is BEHIND else "true"
    return PICKING.format(
        queues=queues.format(ready=ready),
        ready=ready,
        behind_q=behind.format(of="q"),
        behind_head=behind.format(of="head"),
        among=among,
        pick=_locked(database, ready, behind, among).replace(str(_LIMIT), "%(limit)s"),
    )
