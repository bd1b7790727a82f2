"""What the database tests share: sessions, jobs in any state, rows made older, waits.

No time is mocked and nothing sleeps. A lease ends early because its row is aged; a test that needs
another session to be somewhere waits for the server to say so, with a deadline.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import psycopg
from django.db import connections
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from django_relay import outcomes, states, transitions
from django_relay.outcomes import Ending, Outcome
from django_relay.states import State
from django_relay.transitions import Claim, Claimed, NewJob, Settled

WORKER = "host-1-abc/1"
ACTOR = "1 somebody"
ERROR = {"class": "builtins.ValueError", "message": "no", "traceback": ""}

#: As the worker's own sessions, and bounded so that a test cannot hang.
SESSION = (
    "-c plan_cache_mode=force_custom_plan -c statement_timeout=30s "
    "-c idle_in_transaction_session_timeout=60s"
)

Session = psycopg.Connection[Any]


@dataclass(frozen=True)
class Subject:
    """A job under test. ``token``: its live lease's, or one that it had and lost."""

    job_id: int
    token: str
    state: State


class Event(NamedTuple):
    kind: str
    claim: int | None
    token: str | None
    worker: str | None
    actor: str | None
    data: dict[str, Any]


def ending(of: Subject | Claimed, outcome: Outcome, *, ran: float | None = 1.0) -> Ending:
    return Ending(of.job_id, of.token, outcome, ran)


def success(of: Subject | Claimed, result: str = '"done"') -> Ending:
    return ending(of, outcomes.succeeded(result))


def told(*answers: Settled) -> list[str]:
    """What became of endings: the event of an accepted one, the reason of a refused one."""
    return [str(a.kind) if a.accepted else f"refused: {a.reason}" for a in answers]


def wait_for(condition: Callable[[], Any], what: str, *, seconds: float = 20.0) -> Any:
    """Return what ``condition`` returns once that is true, or fail after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain for {what}"
        time.sleep(0.002)
    return answer


class Stage:
    """The package's tables, empty at first, and sessions on them; ``db`` is the one to look with.

    Every method that writes does so through a transition, but for those that age rows.
    """

    def __init__(self) -> None:
        params = connections["default"].get_connection_params()
        wanted = ("dbname", "user", "password", "host", "port", "sslmode", "service")
        self._params = {name: params[name] for name in wanted if params.get(name)}
        self._opened: list[Session] = []
        self._threads = ThreadPoolExecutor(max_workers=16)
        self._started: list[Future[Any]] = []
        self._many = False
        self.db = self.connect()

    def close(self) -> None:
        if not all(future.done() for future in self._started):  # a test has failed
            pids = [s.info.backend_pid for s in self._opened[1:] if not s.closed]
            self.db.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s) AS pid", [pids])
        self._threads.shutdown()
        for session in self._opened[1:]:
            session.close()
        if self.db.info.transaction_status != TransactionStatus.IDLE:  # interrupted while waiting
            self.db = self.connect()
        self.empty()
        for session in (self._opened[0], self.db):
            session.close()

    def empty(self) -> None:
        """Empty the tables."""
        for table in ("event", "lease", "job", "worker"):
            # TRUNCATE is slow on small tables, and DELETE would leave the next test dead rows.
            empty = "TRUNCATE" if self._many else "DELETE FROM"
            self.db.execute(f"{empty} django_relay_{table}")

    # ------------------------------------------------------------------ sessions and threads

    def connect(self, *, autocommit: bool = True) -> Session:
        session = psycopg.connect(**self._params, autocommit=autocommit, options=SESSION)
        self._opened.append(session)
        return session

    def start(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Call ``function`` in a thread; the future's ``result`` is bounded by the statement's."""
        self._started.append(self._threads.submit(function, *args, **kwargs))
        return self._started[-1]

    def wait_blocked(self, session: Session, *, by: Session) -> None:
        """Wait until ``session`` waits for a lock that ``by`` holds."""
        question = "SELECT %s = ANY (pg_blocking_pids(%s))"
        pids = [by.info.backend_pid, session.info.backend_pid]
        wait_for(lambda: self.value(question, pids), "a lock wait")

    def wait_pausing(self, session: Session) -> None:
        """Wait until ``session`` has found rows locked and pauses before it tries again."""
        question = "SELECT query LIKE '%%pg_sleep%%' FROM pg_stat_activity WHERE pid = %s"
        wait_for(lambda: self.value(question, [session.info.backend_pid]), "a pause")

    def unlocked(self, table: str, column: str) -> list[int]:
        """The rows of ``table`` that nobody has locked, by ``column``."""
        query = f"SELECT {column} FROM django_relay_{table} ORDER BY 1 FOR UPDATE SKIP LOCKED"
        return [found for (found,) in self.all(query)]

    # ------------------------------------------------------------------ looking

    def all(self, query: str, values: Any = None) -> list[tuple[Any, ...]]:
        return self.db.execute(query, values).fetchall()

    def value(self, query: str, values: Any = None) -> Any:
        row = self.db.execute(query, values).fetchone()
        return row[0] if row else None

    def _row(self, table: str, column: str, job_id: int) -> dict[str, Any] | None:
        query = f"SELECT * FROM django_relay_{table} WHERE {column} = %s"
        with self.db.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query, [job_id]).fetchone()

    def job(self, job_id: int) -> dict[str, Any] | None:
        return self._row("job", "id", job_id)

    def lease(self, job_id: int) -> dict[str, Any] | None:
        return self._row("lease", "job_id", job_id)

    def state(self, job_id: int) -> str | None:
        return self.value("SELECT state FROM django_relay_job WHERE id = %s", [job_id])

    def events(self, job_id: int) -> list[Event]:
        query = """
            SELECT kind, claim, token::text, worker, actor, COALESCE(data, '{}')
            FROM django_relay_event WHERE job_id = %s ORDER BY id
        """
        return [Event(*row) for row in self.all(query, [job_id])]

    def kinds(self, job_id: int) -> list[str]:
        return [event.kind for event in self.events(job_id)]

    def check_history(self, job_id: int) -> None:
        """Replay the job's events and hold its row against the state that they lead to."""
        reached = states.replay((e.kind, e.data.get("state")) for e in self.events(job_id))
        if State.SCHEDULED in reached:
            reached |= {State.READY}  # promoted, which writes no event
        assert self.state(job_id) in reached, self.kinds(job_id)

    def orphans(self) -> list[tuple[Any, ...]]:
        """Leases without a running job, and running jobs without a lease."""
        return self.all("""
            SELECT COALESCE(l.job_id, j.id), j.state, l.token FROM django_relay_lease AS l
            FULL JOIN (SELECT * FROM django_relay_job WHERE state = 'running') AS j
              ON j.id = l.job_id
            WHERE l.job_id IS NULL OR j.id IS NULL
        """)

    # ------------------------------------------------------------------ making

    def enqueue(self, session: Session | None = None, **changes: Any) -> int:
        values = {"backend": "default", "queue": "default", "task": "shop.tasks.pack"}
        values |= {"args": "[1]", "kwargs": "{}", "max_attempts": 5}
        return transitions.enqueue(session or self.db, NewJob(**(values | changes))).id

    def fill(self, count: int, *, queue: str = "default", state: str = "ready") -> list[int]:
        """Insert many jobs with their first events at once, quicker than enqueue does."""
        query = """
            WITH given AS (SELECT %(queue)s::text AS queue, %(state)s::text AS state), job AS (
              INSERT INTO django_relay_job (
                backend, queue, task, args, kwargs, state, priority, run_after, claims, failures,
                losses, interruptions, max_attempts, enqueued_at, finished_at
              )
              SELECT 'default', queue, 'shop.tasks.pack', '[]', '{}', state, 0,
                clock_timestamp() + make_interval(hours => (state = 'scheduled')::integer),
                0, 0, 0, 0, 5, clock_timestamp(),
                CASE WHEN state = 'successful' THEN clock_timestamp() END
              FROM given, generate_series(1, %(count)s) RETURNING id, state
            ), event AS (
              INSERT INTO django_relay_event (job_id, kind, at, data)
              SELECT id, 'enqueued', clock_timestamp(), jsonb_build_object('state', state) FROM job
            )
            SELECT id FROM job ORDER BY id
        """
        self._many |= count > 500
        values = {"queue": queue, "state": state, "count": count}
        return [job_id for (job_id,) in self.all(query, values)]

    def claim_up_to(self, limit: int, session: Session | None = None, **changes: Any) -> Claim:
        options = {"database": "default", "queues": None, "worker": WORKER, "lease": 600.0}
        return transitions.claim(session or self.db, limit, **(options | changes))

    def compile_claims(self, *limits: int) -> None:
        """Have the statements of claims ready for threads.

        Compiling one opens Django's connection in the thread that does it, to stay open there.
        """
        for limit in limits:
            for queues in (None, ["none"]):
                with self.db.transaction(force_rollback=True):
                    self.claim_up_to(limit, queues=queues)
                    self.claim_up_to(limit, queues=queues, alone=True)

    def claim(self, session: Session | None = None, **changes: Any) -> Claimed:
        """Claim the one job that is next, which must be there."""
        (claimed,) = self.claim_up_to(1, session, **changes).jobs
        return claimed

    def settle(self, *endings: Ending, session: Session | None = None) -> list[Settled]:
        """Settle a batch and return the answers in its order."""
        answers = transitions.settle(session or self.db, endings)
        return [answers[given.token] for given in endings]

    def make(self, state: State, **changes: Any) -> Subject:
        """Bring a job to ``state`` through transitions, with one loss on the way."""
        job_id = self.enqueue(**changes)
        if state == State.BLOCKED:  # nothing blocks a job yet
            data = '{"state": "blocked"}'
            self.db.execute("UPDATE django_relay_job SET state = 'blocked' WHERE id = %s", [job_id])
            self.db.execute(
                "UPDATE django_relay_event SET data = %s WHERE job_id = %s", [data, job_id]
            )
            return Subject(job_id, str(uuid.uuid4()), state)
        lost = self.claim()
        self.age_lease(job_id, 3600)
        assert [rescued.job_id for rescued in transitions.rescue_expired(self.db)] == [job_id]
        if state == State.SCHEDULED:
            delay = timedelta(hours=1)
            transitions.reschedule(self.db, [job_id], run_after=delay, actor=ACTOR)
        elif state == State.CANCELLED:
            transitions.cancel(self.db, [job_id], actor=ACTOR)
        elif state != State.READY:
            held = self.claim(alone=True)
            if state == State.RUNNING:
                return Subject(job_id, held.token, state)
            good = state == State.SUCCESSFUL
            self.settle(success(held) if good else ending(held, outcomes.failed(ERROR)))
        assert self.state(job_id) == state
        return Subject(job_id, lost.token, state)

    # ------------------------------------------------------------------ ageing

    def age_lease(self, job_id: int, seconds: float) -> None:
        """Move a lease's times back, as if it had been made so much earlier."""
        self.db.execute(
            """
            UPDATE django_relay_lease SET
              acquired_at = acquired_at - %(by)s, begun_at = begun_at - %(by)s,
              expires_at = expires_at - %(by)s, deadline = deadline - %(by)s
            WHERE job_id = %(id)s
            """,
            {"by": timedelta(seconds=seconds), "id": job_id},
        )

    def end_lease(self, job_id: int) -> None:
        """Let a lease run out at this very moment."""
        self.db.execute(
            "UPDATE django_relay_lease SET expires_at = clock_timestamp() WHERE job_id = %s",
            [job_id],
        )

    def wait_expired(self, job_id: int) -> None:
        """Wait until the lease that a statement under way has locked runs out by itself."""
        question = """
            SELECT expires_at < clock_timestamp() FROM django_relay_lease WHERE job_id = %s
        """
        wait_for(lambda: self.value(question, [job_id]), "the end of a lease")

    def set(self, job_id: int, **columns: Any) -> None:
        """Write columns of a job as they would be after a longer life than a test's."""
        assigned = ", ".join(f"{name} = %({name})s" for name in columns)
        query = f"UPDATE django_relay_job SET {assigned} WHERE id = %(job_id)s"
        self.db.execute(query, columns | {"job_id": job_id})
