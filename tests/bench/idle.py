"""What a worker costs that has nothing to do: its processor time, and statements to the server."""

from __future__ import annotations

import time
from typing import Any

from django.db import connection

from . import crew, ground

BACKENDS = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'django\\_relay %%'
  AND pid <> pg_backend_pid()
"""
#: A server tells its counts late: a session that idles reports after ten seconds.
LAG = 12.0


def run(*, seconds: float = 60.0, processes: int = 3) -> dict[str, Any]:
    """Leave a worker of default settings alone and count what it does meanwhile.

    Shares are percents of one core; the server's needs a server on this machine. Commits stand for
    statements: those of an idle worker commit by themselves.
    """
    with ground.databases("default"), crew.worker("--processes", str(processes)) as worker:
        time.sleep(LAG)
        with connection.cursor() as cursor:
            cursor.execute(BACKENDS)
            backends = [pid for (pid,) in cursor.fetchall()]
        connection.close()
        before = _reading(worker.group, backends)
        time.sleep(seconds)
        after = _reading(worker.group, backends)
    spent, served, commits, clock = (b - a for a, b in zip(before, after, strict=True))
    return {
        "worker_core_percent": round(100 * spent / clock, 3),
        "server_core_percent": round(100 * served / clock, 3),
        "statements_per_second": round(commits / clock, 3),
        "sessions": len(backends),
    }


def _reading(pids: list[int], backends: list[int]) -> tuple[float, float, int, float]:
    """Processor seconds of the worker and of the sessions that serve it, commits, and the time."""
    return (
        crew.processor_seconds(pids),
        crew.processor_seconds(backends),
        ground.commits("default"),
        time.monotonic(),
    )
