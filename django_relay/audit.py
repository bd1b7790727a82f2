"""Hold the history of every job in a database against the state machine.

Reads jobs, leases and events side by side in the order of their ids, from one snapshot and with
constant memory, so that a live queue of any size can be audited. Finds and tells; mends nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row

from .connection import Bookkeeping
from .states import COUNTER_LIMIT, FINAL, EventKind, IllegalHistory, State, replay

#: Seconds by which a server's clock may be corrected, or differ from its successor's.
CORRECTION = 1.0

# Locks nothing. Of the events only what the audit compares, without errors and tracebacks.
JOBS = """
SELECT
  id, state, claims, failures, losses, interruptions, finished_at::text AS finished_at,
  result IS NOT NULL AS kept,
  array_remove(ARRAY[
    CASE WHEN priority NOT BETWEEN -100 AND 100 THEN 'priority' END,
    CASE WHEN max_attempts NOT BETWEEN 1 AND 1000000000 THEN 'max_attempts' END,
    CASE WHEN LEAST(
      run_after, start_before, enqueued_at, started_at, last_attempted_at, finished_at
    ) < '1900-01-01 UTC'::timestamptz OR GREATEST(
      run_after, start_before, enqueued_at, started_at, last_attempted_at, finished_at
    ) > '9999-12-30 UTC'::timestamptz THEN 'times' END
  ], NULL) AS outside,
  json_typeof(args) <> 'array' OR json_typeof(kwargs) <> 'object' AS uncallable
FROM django_relay_job AS j
WHERE (%(since)s::timestamptz IS NULL OR enqueued_at >= %(since)s::timestamptz)
  AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
ORDER BY id
"""
EVENTS = """
SELECT
  v.job_id, v.kind, v.claim, v.token::text AS token, v.actor IS NOT NULL AS wished,
  v.data->>'state' AS state, v.data->>'verb' AS verb, v.data ? 'lost' AS lost,
  v.data->>'began' = 'true' AS began, EXTRACT(EPOCH FROM v.at)::float8 AS at
FROM django_relay_event AS v
LEFT JOIN django_relay_job AS j ON j.id = v.job_id
WHERE (%(since)s::timestamptz IS NULL OR j.enqueued_at >= %(since)s::timestamptz)
  AND (%(queue)s::text IS NULL OR j.queue = %(queue)s::text)
ORDER BY v.job_id, v.id
"""
LEASES = """
SELECT
  l.job_id, l.token::text AS token, l.claim,
  LEAST(l.acquired_at, l.begun_at, l.expires_at, l.deadline) < '1900-01-01 UTC'::timestamptz
    OR GREATEST(l.acquired_at, l.begun_at, l.expires_at, l.deadline)
      > '9999-12-30 UTC'::timestamptz AS outside
FROM django_relay_lease AS l
LEFT JOIN django_relay_job AS j ON j.id = l.job_id
WHERE (%(since)s::timestamptz IS NULL OR j.enqueued_at >= %(since)s::timestamptz)
  AND (%(queue)s::text IS NULL OR j.queue = %(queue)s::text)
ORDER BY l.job_id
"""
COUNT = "SELECT count(*) FROM (" + JOBS + ") AS jobs"


Rows = Generator[Any, None, None]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that cannot be: the job, and what is wrong with it in one line."""

    job_id: int
    problem: str


@dataclass(slots=True)
class Audit:
    """One run over a database. Iterate over it; ``jobs`` and ``events`` count what was read.

    ``progress`` is called now and then with the number of jobs read and of all jobs to read.
    """

    connection: Bookkeeping
    since: datetime | None = None
    queue: str | None = None
    progress: Callable[[int, int], None] | None = None
    jobs: int = 0
    events: int = 0
    total: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[Finding]:
        """Yield what is wrong, in the order of job ids. Raises psycopg.Error."""
        session = self.connection.session()
        # One snapshot for all three, or a job moving on meanwhile would look torn.
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            session.execute("SET LOCAL statement_timeout = 0")
            row = session.execute(COUNT, self._filter).fetchone()
            self.total = row[0] if row else 0
            yield from self._compare(session)
        finally:
            if not session.closed:
                session.execute("ROLLBACK")

    @property
    def _filter(self) -> dict[str, Any]:
        return {"since": self.since, "queue": self.queue}

    def _rows(self, session: psycopg.Connection[Any], name: str, query: str) -> Rows:
        with session.cursor(f"relay_audit_{name}", row_factory=namedtuple_row) as cursor:
            cursor.itersize = 5000
            yield from cursor.execute(query, self._filter)

    def _compare(self, session: psycopg.Connection[Any]) -> Iterator[Finding]:
        with (
            closing(self._rows(session, "events", EVENTS)) as all_events,
            closing(self._rows(session, "leases", LEASES)) as all_leases,
            closing(self._rows(session, "jobs", JOBS)) as jobs,
        ):
            events, leases = _Side(all_events), _Side(all_leases)
            for job in jobs:
                self.jobs += 1
                if self.progress is not None and self.jobs % 1000 == 0:
                    self.progress(self.jobs, self.total)
                yield from _ownerless(events.before(job.id), leases.before(job.id))
                history, held = events.of(job.id), leases.of(job.id)
                self.events += len(history)
                for problem in examine(job, history, held[0] if held else None):
                    yield Finding(job.id, problem)
            yield from _ownerless(events.before(None), leases.before(None))


class _Side:
    """Rows in the order of their job_id, taken as the jobs come by."""

    def __init__(self, rows: Iterator[Any]) -> None:
        self._rows = rows
        self._next = next(rows, None)

    def before(self, job_id: int | None) -> set[int]:
        """Skip rows of jobs that are not there; return those jobs' ids. None: all that is left."""
        skipped = set()
        while self._next is not None and (job_id is None or self._next.job_id < job_id):
            skipped.add(self._next.job_id)
            self._next = next(self._rows, None)
        return skipped

    def of(self, job_id: int) -> list[Any]:
        """Return the rows of one job."""
        rows = []
        while self._next is not None and self._next.job_id == job_id:
            rows.append(self._next)
            self._next = next(self._rows, None)
        return rows


def _ownerless(events: set[int], leases: set[int]) -> Iterator[Finding]:
    for job_id in sorted(events):
        yield Finding(job_id, "has events, but there is no such job")
    for job_id in sorted(leases):
        yield Finding(job_id, "has a lease, but there is no such job")


def examine(job: Any, history: list[Any], lease: Any | None) -> Iterator[str]:
    """Tell what is wrong with one job, in plain words."""
    yield from _legal(job, history)
    yield from _claims(job, history)
    yield from _counters(job, history)
    yield from _times(history)
    yield from _values(job, lease)
    if (job.state in FINAL) != (job.finished_at is not None):
        yield f"is {job.state}, which does not go with finished_at {job.finished_at}"
    if job.kept and job.state != State.SUCCESSFUL:
        yield f"is {job.state}, but has a result"
    if job.state == State.RUNNING and lease is None:
        yield "is running without a lease"
    if job.state != State.RUNNING and lease is not None:
        yield f"is {job.state}, but has a lease"
    claimed = [event for event in history if event.kind == EventKind.CLAIMED]
    if lease is not None and claimed and lease.token != claimed[-1].token:
        yield "has a lease whose token is not that of its last claim"
    if lease is not None and lease.claim != job.claims:
        yield f"has a lease of claim {lease.claim}, but was claimed {job.claims} times"


def _values(job: Any, lease: Any | None) -> Iterator[str]:
    for name in job.outside:
        yield f"has {name} outside the bounds"
    if job.uncallable:
        yield "has arguments that are not a list and an object"
    if lease is not None and lease.outside:
        yield "has a lease with times outside the bounds"


def _legal(job: Any, history: list[Any]) -> Iterator[str]:
    if not history:
        yield "has no events"
        return
    try:
        states = replay((event.kind, event.state) for event in history)
    except IllegalHistory as illegal:
        yield f"has an impossible history: {illegal}"
        return
    # A promotion writes no event.
    promoted = {State.READY} if State.SCHEDULED in states else set()
    if job.state not in states | promoted:
        yield f"is {job.state}, but its events lead to {'/'.join(sorted(states))}"


def _claims(job: Any, history: list[Any]) -> Iterator[str]:
    expected, token, seen = 0, None, set()
    for event in history:
        if event.kind == EventKind.CLAIMED:
            expected = min(expected + 1, COUNTER_LIMIT)
            if event.claim != expected:
                yield f"has claim {event.claim} where claim {expected} was due"
            if event.token is None or event.token in seen:
                yield f"has no fresh token in claim {event.claim}"
            seen.add(event.token)
            token = event.token
        elif event.kind == EventKind.REFUSED:
            continue
        elif event.token is not None and event.token != token:
            yield f"was {event.kind} under a token that was not its owner's"
    if job.claims != expected:
        yield f"counts {job.claims} claims, but its events tell of {expected}"


def _counters(job: Any, history: list[Any]) -> Iterator[str]:
    failures = losses = interruptions = 0
    for event in history:
        if event.kind == EventKind.REQUEUED:
            failures = losses = interruptions = 0
        elif event.verb in ("retry", "fail"):
            failures += 1
        elif event.verb == "release" and event.began:
            interruptions += 1
        elif (
            event.kind in (EventKind.RESCUED, EventKind.FAILED, EventKind.CANCELLED) and event.lost
        ):
            losses += 1
    told = {"failures": failures, "losses": losses, "interruptions": interruptions}
    for name, number in told.items():
        if getattr(job, name) != number:
            yield f"counts {getattr(job, name)} {name}, but its events tell of {number}"


def _times(history: list[Any]) -> Iterator[str]:
    """Tell where time runs backwards from event to event, in the order of their ids.

    An event's time is the database's clock, which its statement reads after it has locked the job
    or its lease; whoever wrote the event before had that lock until its commit. So no event is
    earlier than the one before it, but for corrections of the clock. A refusal alone locks neither:
    a statement that has read the clock may write its event after it, so none is held against one.
    """
    latest: Any = None
    place = 0
    for number, event in enumerate(history, start=1):
        if not math.isfinite(event.at):
            yield f"has event {number}, {event.kind}, at a time without end"
            continue
        backwards = latest is not None and event.at < latest.at - CORRECTION
        if backwards:
            early = f"{latest.at - event.at:,.1f} s before event {place}, {latest.kind}"
            yield f"has event {number}, {event.kind}, {early}"
        if event.kind != EventKind.REFUSED and (
            latest is None or backwards or event.at > latest.at
        ):
            latest, place = event, number
