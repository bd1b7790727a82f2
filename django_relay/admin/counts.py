"""How many jobs there are, without counting them all, and the names that filters offer.

Few are counted through partial indexes and up to a limit; the whole table is PostgreSQL's own
estimate. Names are those in the settings, of the workers and of the newest jobs; any other can be
typed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db import connections
from django.utils.translation import gettext as _

from django_relay.states import State

from .places import Place, backends

#: How far a count goes.
ENOUGH = 10_000

# Locks nothing. Each count stops at the limit; those by state read a partial index.
COUNTS = """
SELECT
  statement_timestamp(),
  (SELECT reltuples::bigint FROM pg_class WHERE oid = 'django_relay_job'::regclass),
  (SELECT count(*) FROM (SELECT 1 FROM django_relay_job LIMIT %(limit)s) AS s),
  (SELECT count(*) FROM (
    SELECT 1 FROM django_relay_job WHERE state = 'scheduled' LIMIT %(limit)s) AS s),
  (SELECT count(*) FROM (
    SELECT 1 FROM django_relay_job WHERE state = 'ready' LIMIT %(limit)s) AS s),
  (SELECT count(*) FROM (
    SELECT 1 FROM django_relay_job WHERE state = 'running' LIMIT %(limit)s) AS s),
  (SELECT count(*) FROM (
    SELECT 1 FROM django_relay_job WHERE state = 'failed' LIMIT %(limit)s) AS s),
  (SELECT count(*) FROM (
    SELECT 1 FROM django_relay_job WHERE state = 'cancelled' LIMIT %(limit)s) AS s)
"""

_COUNTED = (State.SCHEDULED, State.READY, State.RUNNING, State.FAILED, State.CANCELLED)

# Locks nothing: the names among the newest jobs, and how often each occurs there.
NEWEST = """
SELECT 'task' AS what, task AS name
FROM (SELECT task FROM django_relay_job ORDER BY id DESC LIMIT 2000) AS j GROUP BY task
UNION ALL
SELECT 'queue', queue
FROM (SELECT queue FROM django_relay_job ORDER BY id DESC LIMIT 2000) AS j GROUP BY queue
UNION ALL
SELECT 'queue', q.name
FROM django_relay_worker AS w CROSS JOIN LATERAL jsonb_array_elements_text(
  CASE jsonb_typeof(w.queues) WHEN 'array' THEN w.queues ELSE '[]' END
) AS q(name)
"""


@dataclass(frozen=True, slots=True)
class Counts:
    """The database's time, and how many jobs there are, as text: "12", "more than 10,000"."""

    now: datetime
    total: str
    by_state: dict[str, str]


def read(place: Place) -> Counts:
    """Read the time and the counts in one query."""
    with connections[place.database].cursor() as cursor:
        cursor.execute(COUNTS, {"limit": ENOUGH + 1})
        now, estimate, total, *counted = cursor.fetchone()
    by_state = {str(state): up_to(n) for state, n in zip(_COUNTED, counted, strict=True)}
    return Counts(now, about(estimate) if total > ENOUGH else up_to(total), by_state)


def up_to(count: int, enough: int = ENOUGH) -> str:
    """Write a count that went no further than ``enough`` and one."""
    return _("more than %(n)s") % {"n": f"{enough:,}"} if count > enough else f"{count:,}"


def about(rows: int) -> str:
    """Write PostgreSQL's estimate of rows, or the limit where it has none as large."""
    if rows <= ENOUGH:
        return up_to(ENOUGH + 1)
    digits = max(len(str(rows)) - 3, 0)
    return _("about %(n)s") % {"n": f"{round(rows, -digits):,}"}


def names(place: Place) -> tuple[list[str], list[str]]:
    """Return the known queues and the known tasks."""
    queues = {str(name) for backend in backends() for name in backend.queues}
    tasks: set[str] = set()
    with connections[place.database].cursor() as cursor:
        cursor.execute(NEWEST)
        for what, name in cursor.fetchall():
            (tasks if what == "task" else queues).add(name)
    return sorted(queues), sorted(tasks)
