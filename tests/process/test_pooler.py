"""Behind PgBouncer in transaction mode: nothing outlives a transaction, and all work is done."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest
from django.db import connection, connections
from psycopg import sql

from django_relay import transitions

from . import tasks
from .aftercheck import after_check
from .places import Server, led_to
from .pooler import PROGRAM, Pooler, pooled
from .scene import Scene, enqueue, enqueue_many
from .waiting import wait_until
from .workers import send

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(PROGRAM is None, reason="no pgbouncer is installed"),
]

SIZE = 4

#: What lasts beyond a transaction; with log_statement each statement of the role is in the log.
LASTING = re.compile(
    r"(?:statement|execute [^:]+):\s+(?:LISTEN|SET|RESET|PREPARE|DISCARD|CREATE TEMP)\b"
    r"|execute (?!<unnamed>)|set_config|pg_advisory_lock",
    re.IGNORECASE,
)


@pytest.fixture
def pooler(harmed: Scene, server: Server) -> Iterator[Pooler]:
    """A PgBouncer that the workers and this test go through, and a server that logs everything."""
    role = sql.Identifier(connection.settings_dict["USER"])
    with (
        psycopg.connect(harmed.place.admin, autocommit=True) as owner,
        pooled(harmed.place, size=SIZE) as pooler,
        led_to(pooler.url),
    ):
        owner.execute(sql.SQL("ALTER ROLE {} SET log_statement = 'all'").format(role))
        yield pooler
        for worker in harmed.workers:
            worker.end()
        owner.execute(sql.SQL("ALTER ROLE {} RESET ALL").format(role))


def submit(number: int) -> list[int]:
    """Enqueue some jobs from a thread of its own."""
    try:
        return enqueue_many(tasks.find_nothing, [[]] * number)
    finally:
        connections.close_all()


def test_behind_a_transaction_pooler_all_jobs_are_done_and_no_session_is_changed(
    harmed: Scene, server: Server, pooler: Pooler
) -> None:
    logged = len(server.said)
    env = {"DATABASE_URL": pooler.url, "RELAY_TEST_POOLED": "1"}
    flags = ["--lease", "3", "--poll", "0.2"]
    doomed, worker = (harmed.start(n, slots=4, env=env, flags=flags) for n in ("doomed", "a"))
    lost = enqueue(tasks.linger, 60, 0, queue=doomed.own)
    harmed.begun(lost)
    with ThreadPoolExecutor(2) as threads:
        jobs = [job for found in threads.map(submit, [60, 60]) for job in found]
    retried = enqueue(tasks.succeed_or_raise, False)
    send(doomed.group, signal.SIGKILL)
    harmed.succeeds(*jobs, retried, within=60)
    harmed.reaches("ready", lost, within=20)
    assert transitions.prune(connection, older_than=timedelta(0), limit=50) == 50
    with psycopg.connect(harmed.place.admin, autocommit=True) as owner:
        count = "SELECT count(*) FROM pg_stat_activity WHERE usename = %s"
        row = owner.execute(count, [connection.settings_dict["USER"]]).fetchone()
        assert row is not None
        assert row[0] <= SIZE
    wait_until(lambda: pooler.waiting() == 0, 10, what="no client waits for a session")
    after_check(harmed, worker)
    assert not [line for line in server.said[logged:].splitlines() if LASTING.search(line)]
    assert "prepared statement" not in worker.said
