"""Where experiments take place: a backend of the user's own TASKS and a queue of the lab's own.

Nobody else's jobs are touched. An experiment is refused while a worker runs that would take the
lab's jobs; jobs that an interrupted experiment left are ended first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from django.conf import settings
from django.core.management.base import CommandError
from django.db import InterfaceError, OperationalError, ProgrammingError, connections

from django_relay import transitions

QUEUE = "relay_lab"
BACKLOG = "relay_lab_backlog"
ALIAS = "relay_lab"
ACTOR = "relay_lab"

T = TypeVar("T")

# Locks nothing. A worker says every five seconds that it is there.
WORKERS = """
SELECT id FROM django_relay_worker
WHERE stopped_at IS NULL AND seen_at > clock_timestamp() - interval '15 seconds'
  AND (queues IS NULL OR jsonb_typeof(queues) = 'null' OR queues ?| %(queues)s::text[])
ORDER BY id
"""
JOBS = "SELECT id FROM django_relay_job WHERE queue = ANY (%(queues)s) AND id > %(after)s {more}"
UNFINISHED = JOBS.format(more="AND finished_at IS NULL ORDER BY id LIMIT 5000")
LAST = "SELECT COALESCE(max(id), 0) FROM django_relay_job"

ADVICE = f"""Give the lab a queue of its own, at the end of your settings:

    INSTALLED_APPS += ["django_relay.lab"]
    TASKS["{ALIAS}"] = {{**TASKS["default"], "QUEUES": ["{QUEUE}"]}}"""


@dataclass(frozen=True, slots=True)
class Place:
    """A backend's alias in TASKS, the alias of its database, and its OPTIONS' lease in seconds."""

    alias: str
    database: str
    lease: float

    @property
    def connection(self) -> Any:
        """This thread's connection to the database."""
        return connections[self.database]

    def rows(self, query: str, **values: Any) -> list[Any]:
        """Read rows."""
        with self.connection.cursor() as cursor:
            cursor.execute(query, values)
            found: list[Any] = cursor.fetchall()
            return found

    def patiently(self, ask: Callable[[], T], otherwise: T) -> T:
        """Ask the database something that can wait: where it is away, the answer is ``otherwise``.

        The next call opens a new connection.
        """
        try:
            return ask()
        except (OperationalError, InterfaceError):
            self.connection.close()
            return otherwise

    def last(self) -> int:
        """Return the highest id of a job so far: what comes is higher."""
        return int(self.rows(LAST)[0][0])


def alias() -> str:
    """Return the alias in TASKS whose backend the lab uses: ``relay_lab``, or else ``default``."""
    return ALIAS if ALIAS in getattr(settings, "TASKS", {}) else "default"


def find() -> Place:
    """Return the place for experiments; raise CommandError with what to add to the settings."""
    name = alias()
    entry = getattr(settings, "TASKS", {}).get(name, {})
    if QUEUE not in (entry.get("QUEUES", ["default"]) or [QUEUE]):
        raise CommandError(f"TASKS[{name!r}] takes no jobs of the queue {QUEUE!r}.\n{ADVICE}")
    from .tasks import hold

    backend: Any = hold.get_backend()
    if not hasattr(backend, "relay_options"):
        raise CommandError(f"TASKS[{name!r}] is no RelayBackend.\n{ADVICE}")
    return Place(name, backend.database, backend.relay_options.lease.total_seconds())


def clear(place: Place) -> None:
    """See that nobody else takes the lab's jobs, and end and delete what is left of earlier ones.

    Raises CommandError while somebody's worker would take part.
    """
    try:
        workers = [row[0] for row in place.rows(WORKERS, queues=[QUEUE, BACKLOG])]
    except ProgrammingError:
        raise CommandError("The tables of django_relay are not there: run migrate first.") from None
    except OperationalError as error:
        raise CommandError(f"The database does not answer: {error}") from None
    if workers:
        raise CommandError(
            f"A worker that takes jobs of the queue {QUEUE!r} is running: {', '.join(workers)}. "
            "Stop it, or start it with --queues naming its own queues. One that was killed counts "
            "as running for 15 seconds."
        )
    tidy(place)


def tidy(place: Place) -> None:
    """End what is unfinished in the lab's queues and delete all of their jobs."""
    end_waiting(place, [QUEUE, BACKLOG])
    for queue in (QUEUE, BACKLOG):
        while transitions.prune(place.connection, older_than=timedelta(0), queue=queue):
            pass


def end_waiting(place: Place, queues: Sequence[str], *, after: int = 0) -> int:
    """Cancel the unfinished jobs of ``queues`` with an id above ``after``; return how many."""
    count = 0
    while ids := [row[0] for row in place.rows(UNFINISHED, queues=list(queues), after=after)]:
        transitions.cancel(place.connection, ids, actor=ACTOR, force=True)
        count += len(ids)
    return count
