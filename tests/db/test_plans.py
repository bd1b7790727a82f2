"""The plans of the hot statements on 100,000 jobs: each finds its rows by the index named for it.

Statistics are stale on purpose: gathered on empty tables, when everything had finished, when
nothing had, or when each job had cost a process. Every statement is explained as its session in the
worker plans it, with its values bound by the server; and statements prepared on empty tables are
watched when the jobs have come.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from django_relay import outcomes, results, transitions, wakeup
from django_relay.connection import PLANNED_EACH_TIME, PLANNED_ONCE, Bookkeeping
from django_relay.outcomes import Ending
from django_relay.transitions import Frontier, Held, NewJob, Quarantine

from .stage import ACTOR, WORKER, Session, Stage

#: Leases are as few as the jobs that run.
LARGE = ("django_relay_job", "django_relay_event")
TABLES = (*LARGE, "django_relay_lease")

Scans = set[tuple[str, str]]


class Explained:
    """A session that explains each statement before it runs it, and keeps what it scans."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.scans: list[Scans] = []

    @contextmanager
    def cursor(self, *, numbered: bool = False) -> Iterator[Any]:
        session: Any = self._session
        with psycopg.RawCursor(session) if numbered else session.cursor() as cursor:
            yield _Explaining(cursor, self.scans)


class _Explaining:
    def __init__(self, cursor: Any, scans: list[Scans]) -> None:
        self._cursor, self._scans = cursor, scans
        self.fetchone, self.fetchall = cursor.fetchone, cursor.fetchall

    def execute(self, statement: str, values: Any = None) -> None:
        ((plan,),) = self._cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}", values)
        self._scans.append(set(_scans(plan[0]["Plan"])))
        self._cursor.execute(statement, values)


def _scans(node: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The scans of a plan, as (table, index); a sequential scan has no index to name."""
    if node["Node Type"] == "Bitmap Heap Scan":
        for index in _bitmaps(node):
            yield node["Relation Name"], index
    elif "Scan" in node["Node Type"] and "Relation Name" in node:
        yield node["Relation Name"], node.get("Index Name", node["Node Type"])
    for child in node.get("Plans", []):
        yield from _scans(child)


def _bitmaps(node: dict[str, Any]) -> Iterator[str]:
    for child in node.get("Plans", []):
        if "Index Name" in child:
            yield child["Index Name"]
        yield from _bitmaps(child)


#: Most of a backlog is finished since it was analyzed.
DRAIN = """
UPDATE django_relay_job SET state = 'successful', finished_at = clock_timestamp()
WHERE id IN (SELECT id FROM django_relay_job WHERE state = 'ready' ORDER BY id LIMIT 60000)
"""


def _load(stage: Stage, statistics: str) -> None:
    """Fill the tables with 100,000 jobs, 300 of them running, and analyze them too early."""
    names = ", ".join(TABLES)
    stage.db.execute(f"TRUNCATE {names}")
    if statistics == "of empty tables":
        stage.db.execute(f"VACUUM ANALYZE {names}")
    if statistics == "of suspects":
        stage.fill(1_000)
        stage.db.execute("UPDATE django_relay_job SET losses = 1")
        stage.db.execute(f"ANALYZE {names}")
        stage.db.execute(f"TRUNCATE {names}")
        stage.db.execute(f"VACUUM {names}")
    if statistics == "of a backlog":
        stage.fill(60_000)
        stage.db.execute(f"ANALYZE {names}")
        stage.db.execute(DRAIN)
    else:
        stage.fill(60_000, state="successful")
    if statistics == "of finished jobs":
        stage.db.execute(f"ANALYZE {names}")
    _load_waiting(stage)
    if statistics == "fresh":
        stage.db.execute(f"ANALYZE {names}")


def _load_waiting(stage: Stage) -> None:
    """Add what is ready, scheduled and running."""
    for number in range(4):
        stage.fill(5_000, queue=f"queue {number}")
    stage.fill(20_000, state="scheduled")
    assert len(stage.claim_up_to(300).jobs) == 300


@pytest.fixture
def unattended(stage: Stage) -> Iterator[Stage]:
    """Tables whose statistics autovacuum leaves as they are."""
    for table in TABLES:
        stage.db.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
    yield stage
    stage.db.execute(f"TRUNCATE {', '.join(TABLES)}")
    for table in TABLES:
        stage.db.execute(f"ALTER TABLE {table} RESET (autovacuum_enabled)")


@pytest.fixture(
    params=["of empty tables", "of finished jobs", "of a backlog", "of suspects", "fresh"]
)
def loaded(unattended: Stage, request: pytest.FixtureRequest) -> Stage:
    """A hundred thousand jobs with statistics as they may be."""
    _load(unattended, request.param)
    return unattended


@dataclass(frozen=True)
class Hot:
    """A call of a transition, and the indexes that each of its statements must use."""

    call: Callable[[Any, list[Any]], Any]
    indexes: list[set[str]]


READY, DUE, EVENTS = {"relay_job_ready"}, {"relay_job_due"}, {"relay_event_job"}
CLAIM = {"database": "default", "worker": "host-2/1", "lease": 30.0}
TWO = ["queue 1", "queue 3"]
SUSPECT = {"relay_job_suspect"}
PROBED = READY | DUE | SUSPECT | {"relay_job_expiring"}
JOB = NewJob(backend="default", queue="queue 1", task="shop.tasks.pack", args="[1]", kwargs="{}")

#: Where a statement comes to its jobs by their ids, the primary key alone will do.
BY_ID: set[str] = set()

HOT = {
    "enqueue": Hot(lambda session, _: transitions.enqueue(session, JOB), [set()]),
    "probe of any queue": Hot(lambda session, _: wakeup.probe(session, None), [PROBED]),
    "probe of two queues": Hot(lambda session, _: wakeup.probe(session, TWO), [PROBED]),
    "claim from any queue": Hot(
        lambda session, _: transitions.claim(session, 10, queues=None, **CLAIM), [READY | SUSPECT]
    ),
    "claim from two queues": Hot(
        lambda session, _: transitions.claim(session, 10, queues=TWO, **CLAIM), [READY | SUSPECT]
    ),
    "claim behind locked heads": Hot(
        lambda session, _: transitions.claim(session, 10, queues=None, bounded=False, **CLAIM),
        [READY | SUSPECT],
    ),
    "claim behind a frontier": Hot(
        lambda session, held: transitions.claim(
            session, 10, queues=None, frontier=_come_so_far(held), **CLAIM
        ),
        [READY | SUSPECT],
    ),
    "claim past a quarantine": Hot(
        lambda session, held: transitions.claim(
            session, 10, queues=None, quarantine=_refused(held), **CLAIM
        ),
        [READY | SUSPECT],
    ),
    "claim alone": Hot(
        lambda session, _: transitions.claim(session, 10, queues=None, alone=True, **CLAIM),
        [SUSPECT],
    ),
    "past of jobs claimed again": Hot(
        lambda session, held: results.pasts(session, [job_id for job_id, _ in held]), [EVENTS]
    ),
    "probe past a quarantine": Hot(
        lambda session, held: wakeup.probe(session, None, _refused(held)), [PROBED]
    ),
    "promote": Hot(lambda session, _: transitions.promote(session), [DUE]),
    "expire": Hot(lambda session, _: transitions.expire(session), [{"relay_job_expiring"}]),
    "renew": Hot(
        lambda session, held: transitions.renew(
            session, [Held(job_id, token, 1.0) for job_id, token in held], lease=30
        ),
        [BY_ID],
    ),
    "settle, look-up and refusal": Hot(
        lambda session, held: transitions.settle(session, _endings(held)),
        [BY_ID, BY_ID, EVENTS, EVENTS],
    ),
    "turn": Hot(
        lambda session, held: transitions.turn(session, _endings(held), 10, queues=None, **CLAIM),
        [READY | SUSPECT],
    ),
    "turn behind a frontier": Hot(
        lambda session, held: transitions.turn(
            session, _endings(held), 10, queues=None, frontier=_come_so_far(held), **CLAIM
        ),
        [READY | SUSPECT],
    ),
    "rescue of expired leases": Hot(
        lambda session, _: transitions.rescue_expired(session), [BY_ID, BY_ID]
    ),
    "rescue of a dead child": Hot(
        lambda session, _: transitions.rescue_child(session, WORKER, begun=[]), [BY_ID]
    ),
    "mend": Hot(lambda session, _: transitions.mend(session), [BY_ID, {"relay_job_running"}]),
    "cancel": Hot(
        lambda session, held: transitions.cancel(session, [held[0][0]], actor=ACTOR), [BY_ID, BY_ID]
    ),
    "cancel by force": Hot(
        lambda session, held: transitions.cancel(session, [held[0][0]], actor=ACTOR, force=True),
        [BY_ID, BY_ID],
    ),
}

#: What a child sends, on a session whose statements are planned once.
OF_A_CHILD = [
    "claim from any queue",
    "claim from two queues",
    "claim behind locked heads",
    "claim behind a frontier",
    "claim past a quarantine",
    "claim alone",
    "past of jobs claimed again",
    "settle, look-up and refusal",
    "turn",
    "turn behind a frontier",
]


def _come_so_far(held: list[Any]) -> Frontier:
    frontier = Frontier()
    job: Any = SimpleNamespace(queue="queue 1", priority=0, job_id=held[0][0])
    frontier.reached([job], picking=60.0, full=True)
    return frontier


def _refused(held: list[Any]) -> Quarantine:
    refused = Quarantine()
    refused._until = {job_id: math.inf for job_id, _ in held}
    return refused


def _endings(held: list[Any]) -> list[Ending]:
    """Half of them under a live lease, half under tokens that never were."""
    half = len(held) // 2
    tokens = [token for _, token in held[:half]] + [str(uuid.uuid4()) for _ in held[half:]]
    outcome = outcomes.succeeded("1")
    jobs = [job_id for job_id, _ in held]
    return [Ending(job, token, outcome, 1.0) for job, token in zip(jobs, tokens, strict=True)]


def test_hot_statements_use_their_indexes(loaded: Stage) -> None:
    held = loaded.all("SELECT job_id, token::text FROM django_relay_lease ORDER BY 1 LIMIT 40")
    for name, hot in HOT.items():
        explained = Explained(loaded.db)
        with loaded.db.transaction(force_rollback=True):
            planned = PLANNED_ONCE if name in OF_A_CHILD else PLANNED_EACH_TIME
            for setting, value in planned.items():
                loaded.db.execute("SELECT set_config(%s, %s, true)", [setting, value])
            hot.call(explained, held)
        assert len(explained.scans) == len(hot.indexes), name
        for scans, indexes in zip(explained.scans, hot.indexes, strict=True):
            used = {index for table, index in scans if table in LARGE}
            assert used >= indexes, name
            assert used <= indexes | {"django_relay_job_pkey"}, name


#: The rows that the session has looked at in this transaction, of both large tables.
READ = """
SELECT sum(seq_tup_read + COALESCE(idx_tup_fetch, 0))::integer FROM pg_stat_xact_user_tables
WHERE relname IN ('django_relay_job', 'django_relay_event')
"""
PREPARED = "SELECT sum(generic_plans), sum(custom_plans) FROM pg_prepared_statements"


@pytest.mark.parametrize("statistics", ["of empty tables", "none"])
@pytest.mark.parametrize("hot", [True, False], ids=["planned once", "planned each time"])
def test_statements_prepared_on_empty_tables_look_at_few_rows_when_jobs_have_come(
    unattended: Stage, statistics: str, hot: bool
) -> None:
    unattended.db.execute(f"TRUNCATE {', '.join(TABLES)}")
    if statistics != "none":
        unattended.db.execute(f"VACUUM ANALYZE {', '.join(TABLES)}")
    worker = Bookkeeping("default", pooled=False, patience=30.0, name="test", hot=hot)
    nothing = [(number, str(uuid.uuid4())) for number in range(1, 41)]
    names = OF_A_CHILD if hot else list(HOT)
    for name in names:
        for _ in range(12):
            HOT[name].call(worker, nothing)
    unattended.fill(60_000, state="successful")
    _load_waiting(unattended)
    held = unattended.all("SELECT job_id, token::text FROM django_relay_lease ORDER BY 1 LIMIT 40")
    session = worker.session()
    for name in names:
        with session.transaction():
            (before,) = session.execute(READ, prepare=False).fetchone() or (0,)
            HOT[name].call(worker, held)
            (after,) = session.execute(READ, prepare=False).fetchone() or (0,)
        # Of 40 leases, or a thousand due jobs, several look-ups each; of 100,000 jobs, never.
        assert after - before <= 6_000, name
    generic, custom = session.execute(PREPARED, prepare=False).fetchone() or (0, 0)
    assert (custom == 0 < generic) if hot else (generic == 0 < custom)
    worker.close()
