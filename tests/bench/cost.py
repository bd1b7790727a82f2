"""What a job that does nothing costs the server: bytes written ahead, commits, statements.

In two parts: what the enqueues cost while no worker runs, and what a worker costs that drains them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import psycopg
from django.db import connection

from . import crew, ground, tasks

#: Empty where the extension is not loaded into the server.
STATEMENTS = """
SELECT regexp_replace(left(s.query, 60), '\\s+', ' ', 'g'), sum(s.calls)::bigint
FROM pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid
WHERE d.datname = current_database() GROUP BY 1 ORDER BY 2 DESC LIMIT 12
"""


def run(
    *, jobs: int = 20_000, processes: int = 3, slots: int = 4, submit: str = "bulk"
) -> dict[str, Any]:
    """Enqueue no-op jobs (``--submit bulk`` or ``one``), drain them, and count per job.

    ``statements`` are counted where the server has pg_stat_statements loaded; else the commits
    stand for them, since a worker's statements commit by themselves.
    """
    with ground.databases("default"):
        counted = _count_statements()
        start = _reading()
        _enqueue(jobs, submit)
        middle = _reading()
        flags = ["--processes", str(processes), "--slots", str(slots), "--drain"]
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "django", "relay_worker", "--verbosity", "0", *flags],
            cwd=crew.ROOT,
            check=True,
        )
        seconds = time.monotonic() - began
        end = _reading()
        statements = _statements(jobs) if counted else None
    return {
        "enqueue": _difference(start, middle, jobs),
        "drain": {**_difference(middle, end, jobs), "seconds_with_start": round(seconds, 2)},
        "whole": _difference(start, end, jobs),
        "statements_per_job": statements,
    }


def _enqueue(jobs: int, submit: str) -> None:
    if submit == "one":
        for _ in range(jobs):
            tasks.noop.enqueue()
        return
    enqueue_many(jobs)


def enqueue_many(count: int) -> None:
    """Enqueue no-op jobs, a thousand a call."""
    for start in range(0, count, 1000):
        tasks.noop.enqueue_many([()] * min(1000, count - start))


def _reading() -> tuple[int, int]:
    """Bytes written ahead and commits so far; a session's counts arrive when it ends."""
    connection.close()
    time.sleep(0.5)
    commits = ground.commits("default")
    with ground.session() as session:
        return ground.wal(session), commits


def _difference(before: tuple[int, int], after: tuple[int, int], jobs: int) -> dict[str, float]:
    return {
        "wal_bytes_per_job": round((after[0] - before[0]) / jobs, 1),
        "commits_per_job": round((after[1] - before[1]) / jobs, 4),
    }


def _count_statements() -> bool:
    try:
        with ground.session() as session:
            ground.run(session, "CREATE EXTENSION pg_stat_statements")
            ground.rows(session, "SELECT count(*) FROM pg_stat_statements")
    except psycopg.Error:
        return False
    return True


def _statements(jobs: int) -> dict[str, float]:
    with ground.session() as session:
        return {query: round(calls / jobs, 4) for query, calls in ground.rows(session, STATEMENTS)}
