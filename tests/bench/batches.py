"""What claims and endings cost by the size of their batch: time, and processor on both sides.

The floor under a worker: whatever it does, each of its jobs takes part in one claim and one ending.
The enqueue is measured too, as a call and a commit a job, and as a call for a thousand jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django.db import connection

from django_relay.transitions import Claimed, Session

from . import crew, ground, tasks
from .cost import enqueue_many

SIZES = (1, 4, 8, 16, 50, 100)
BACKEND = "SELECT pg_backend_pid()"


def run(*, jobs: int = 4000) -> dict[str, Any]:
    """Enqueue, claim and settle jobs in batches of 1 to 100; microseconds per job.

    ``server_us`` is processor time of the session's own process on the server, which must be on
    this machine; ``client_us`` that of this process; ``wall_us`` the time that passed.
    """
    found: dict[str, Any] = {}
    with ground.databases("default"), ground.session(hot=True) as session:
        _drain(session, jobs // 10, 8)  # prepares the statements
        for size in SIZES:
            ground.fill(session, jobs)
            found[str(size)] = _drain(session, jobs, size)
        with connection.cursor() as cursor:
            cursor.execute(BACKEND)
            backend = cursor.fetchone()[0]
        found["enqueue, a commit each"] = _measure(backend, jobs, _each(jobs))
        found["enqueue, a thousand at once"] = _measure(backend, jobs, _thousands(jobs))
    return {"per_job": found}


def _drain(session: Session, jobs: int, size: int) -> dict[str, Any]:
    backend = ground.rows(session, BACKEND)[0][0]
    claimed: list[Sequence[Claimed]] = []

    def claims() -> Iterable[None]:
        for _ in range(0, jobs, size):
            claimed.append(ground.claim(session, size, "default"))
            yield

    def endings() -> Iterable[None]:
        for batch in claimed:
            ground.settle(session, batch)
            yield

    return {
        "claim": _measure(backend, jobs, claims),
        "settle": _measure(backend, jobs, endings),
    }


def _each(jobs: int) -> Callable[[], Iterable[None]]:
    def calls() -> Iterable[None]:
        for _ in range(jobs):
            tasks.noop.enqueue()
            yield

    return calls


def _thousands(jobs: int) -> Callable[[], Iterable[None]]:
    def calls() -> Iterable[None]:
        enqueue_many(jobs)
        yield

    return calls


def _measure(backend: int, jobs: int, work: Callable[[], Iterable[None]]) -> dict[str, float]:
    served, spent, start = _server(backend), time.process_time(), time.perf_counter()
    for _ in work():
        pass
    readings = {
        "wall_us": time.perf_counter() - start,
        "client_us": time.process_time() - spent,
        "server_us": _server(backend) - served,
    }
    return {name: round(seconds / jobs * 1e6, 1) for name, seconds in readings.items()}


def _server(backend: int) -> float:
    return crew.processor_seconds([backend])
