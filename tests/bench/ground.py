"""Databases to measure on: made afresh, filled by SQL, looked at through PostgreSQL's counters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.db import connections
from psycopg import sql

from django_relay import outcomes, transitions
from django_relay.connection import Bookkeeping
from django_relay.outcomes import Ending
from django_relay.transitions import Claimed, Frontier, Session

#: Jobs of these queues in turn, with the events of their lives so far. ``scheduled`` ones are due
#: within a year from tomorrow on, ``successful`` ones have been claimed once.
FILL = """
WITH job AS (
  INSERT INTO django_relay_job (
    backend, queue, task, args, kwargs, state, priority, run_after, claims, failures, losses,
    interruptions, max_attempts, result, enqueued_at, started_at, last_attempted_at, finished_at
  )
  SELECT
    'default', s.queues[1 + n %% cardinality(s.queues)], 'tests.bench.tasks.noop', '[]', '{}',
    s.state, 0,
    clock_timestamp() + CASE WHEN s.state = 'scheduled'
      THEN make_interval(days => 1, mins => n %% 500000) ELSE interval '0' END,
    s.ran::integer, 0, 0, 0, 3, CASE WHEN s.ran THEN 'null'::json END, clock_timestamp(),
    CASE WHEN s.ran THEN clock_timestamp() END, CASE WHEN s.ran THEN clock_timestamp() END,
    CASE WHEN s.ran THEN clock_timestamp() END
  FROM generate_series(1, %(count)s) AS n, (
    SELECT %(queues)s::text[] AS queues, %(state)s::text AS state,
      %(state)s::text = 'successful' AS ran
  ) AS s
  RETURNING id, state
)
INSERT INTO django_relay_event (job_id, kind, at, claim, token, worker, data)
SELECT job.id, e.kind, clock_timestamp(), e.claim, e.token, e.worker, e.data
FROM job CROSS JOIN LATERAL (
  SELECT 'enqueued', NULL::integer, NULL::uuid, NULL,
    jsonb_build_object('state', CASE job.state WHEN 'scheduled' THEN 'scheduled' ELSE 'ready' END)
  UNION ALL
  SELECT kind, 1, gen_random_uuid(), 'host-1-0123456789ab/1', data FROM (VALUES
    ('claimed', NULL::jsonb),
    ('succeeded', '{"state": "successful", "verb": "succeed", "began": true, "ran_ms": 0.1}')
  ) AS ran (kind, data)
  WHERE job.state = 'successful'
) AS e (kind, claim, token, worker, data)
"""

CHUNK = 100_000


@contextmanager
def databases(*aliases: str) -> Iterator[None]:
    """Make the databases of these aliases with the package's tables, and drop them afterwards."""
    for alias in aliases:
        _server("DROP DATABASE IF EXISTS {} WITH (FORCE)", alias)
        _server("CREATE DATABASE {}", alias)
        call_command("migrate", database=alias, verbosity=0)
        connections[alias].close()
    try:
        yield
    finally:
        connections.close_all()
        for alias in aliases:
            _server("DROP DATABASE IF EXISTS {} WITH (FORCE)", alias)


def connect(alias: str, **instead: str) -> psycopg.Connection[Any]:
    """Open a plain session on the database of an alias, or with ``dbname`` on another one."""
    params = connections[alias].get_connection_params() | instead
    names = ("dbname", "user", "password", "host", "port")
    return psycopg.connect(autocommit=True, **{n: params[n] for n in names if n in params})


def _server(statement: str, alias: str) -> None:
    name = sql.Identifier(settings.DATABASES[alias]["NAME"])
    with connect(alias, dbname="postgres") as server:
        server.execute(sql.SQL(statement).format(name))


def commits(alias: str) -> int:
    """Return the commits of a database so far, read from another one so as not to add to them."""
    query = "SELECT xact_commit FROM pg_stat_database WHERE datname = %s"
    with connect(alias, dbname="postgres") as server:
        row = server.execute(query, [settings.DATABASES[alias]["NAME"]]).fetchone()
        return 0 if row is None else int(row[0])


@contextmanager
def session(alias: str = "default", *, hot: bool = False) -> Iterator[Bookkeeping]:
    """Open a session as the supervisor's own, or with ``hot`` as a child's."""
    made = Bookkeeping(alias, pooled=False, patience=600.0, name="bench", hot=hot)
    try:
        yield made
    finally:
        made.close()


def rows(connection: Session, query: str, **values: Any) -> list[Any]:
    """Read rows."""
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        found: list[Any] = cursor.fetchall()
        return found


def fill(
    connection: Session, count: int, *, state: str = "ready", queues: Sequence[str] = ("default",)
) -> None:
    """Insert jobs in a state, with the events that led there, evenly over some queues."""
    for start in range(0, count, CHUNK):
        with connection.cursor() as cursor:
            values = {"count": min(CHUNK, count - start), "state": state, "queues": list(queues)}
            cursor.execute(FILL, values)


def run(connection: Session, statement: str) -> None:
    """Execute a statement that answers nothing."""
    with connection.cursor() as cursor:
        cursor.execute(statement)


def claim(
    connection: Session,
    limit: int,
    alias: str,
    queues: Sequence[str] | None = None,
    frontier: Frontier | None = None,
) -> Sequence[Claimed]:
    """Claim as a child does: in front once more, where it came back short behind its frontier."""
    jobs: list[Claimed] = []
    while True:
        claim = transitions.claim(
            connection,
            limit - len(jobs),
            database=alias,
            queues=queues,
            worker="bench-1/1",
            lease=600.0,
            frontier=frontier,
        )
        jobs += claim.jobs
        if not claim.unseen:
            return jobs


def settle(connection: Session, jobs: Sequence[Claimed]) -> None:
    """End claimed jobs with success."""
    outcome = outcomes.succeeded("null")
    transitions.settle(connection, [Ending(job.job_id, job.token, outcome, 0.001) for job in jobs])


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return how many milliseconds a call took, and its answer."""
    start = time.perf_counter()
    answer = call()
    return (time.perf_counter() - start) * 1000, answer


def rank(values: Sequence[float], *percents: int) -> dict[str, float]:
    """Return percentiles by name."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return {f"p{p}": round(ordered[min(last, len(ordered) * p // 100)], 3) for p in percents}


def wal(connection: Session) -> int:
    """Return how many bytes the server has written ahead so far."""
    return int(rows(connection, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")[0][0])


def version(connection: Session) -> str:
    """Return the server's version."""
    return str(rows(connection, "SELECT current_setting('server_version')")[0][0])
