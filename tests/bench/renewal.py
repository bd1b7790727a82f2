"""What it costs to renew 1,000 leases at once: time, statements, WAL, and which indexes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from django_relay import transitions
from django_relay.transitions import Held, Session

from . import ground

COUNTERS = """
SELECT relname, n_tup_ins, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
WHERE relname LIKE 'django\\_relay\\_%%'
"""


class Counting:
    """A session that counts the statements sent through it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.statements = 0

    @contextmanager
    def cursor(self) -> Iterator[Any]:
        """Open a cursor that counts."""
        with self._session.cursor() as cursor:
            yield _Cursor(cursor, self)


class _Cursor:
    def __init__(self, cursor: Any, counting: Counting) -> None:
        self._cursor, self._counting = cursor, counting
        self.fetchone, self.fetchall = cursor.fetchone, cursor.fetchall

    def execute(self, *args: Any) -> None:
        self._counting.statements += 1
        self._cursor.execute(*args)


def run(*, leases: int = 1000, rounds: int = 50, finished: int = 100_000) -> dict[str, Any]:
    """Renew many leases again and again, beside finished jobs.

    ``job_table`` counts what happened to rows of the job table, and so to its indexes, meanwhile:
    nothing. ``lease_hot_share`` is the share of renewals that touched no index of the lease table.
    """
    with ground.databases("default"):
        with ground.session() as session:
            ground.fill(session, finished, state="successful")
            ground.fill(session, leases)
            claimed = ground.claim(session, leases, "default")
            ground.run(session, "VACUUM ANALYZE")
        before = _counters()
        with ground.session() as session:
            held = [Held(job.job_id, job.token, 1.0) for job in claimed]
            times, statements, written = _renew(session, held, rounds)
        after = _counters()  # the session has ended, so that its counts have arrived
    moved = {
        name: [b - a for a, b in zip(before[name], after[name], strict=True)] for name in after
    }
    inserted, updated, hot = moved["django_relay_lease"]
    return {
        "renewal_ms": {**ground.rank(times, 50, 95, 100), "mean": round(sum(times) / rounds, 3)},
        "statements": statements / rounds,
        "wal_bytes_per_lease": round(median(written) / leases, 1),
        "lease_hot_share": round(hot / updated, 4),
        "lease_inserts": inserted,
        "job_table": dict(zip(("inserts", "updates"), moved["django_relay_job"], strict=False)),
        "event_table": dict(zip(("inserts", "updates"), moved["django_relay_event"], strict=False)),
    }


def _renew(session: Session, held: list[Held], rounds: int) -> tuple[list[float], int, list[int]]:
    counting = Counting(session)
    times, written = [], []
    for _ in range(rounds):
        start = ground.wal(session)
        spent, answer = ground.timed(lambda: transitions.renew(counting, held, lease=600.0))
        written.append(ground.wal(session) - start)
        times.append(spent)
        if len(answer.kept) != len(held):
            raise SystemExit(f"{len(answer.kept)} of {len(held)} leases were renewed")
    return times, counting.statements, written


def _counters() -> dict[str, list[int]]:
    with ground.session() as session:
        return {name: list(counts) for name, *counts in ground.rows(session, COUNTERS)}
