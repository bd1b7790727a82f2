"""The events of one job, read in bounded number: the first few, the last few, and how many lie
between. Tracebacks come with the newest errors only. Nothing here puts them into words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connections

from .columns import CLIPPED
from .counts import ENOUGH
from .places import Place

#: Events shown from a job's beginning and from its end, and errors shown with their traceback.
HEAD, TAIL, TRACEBACKS = 10, 50, 20

_FIELDS = f"""
  e.id, e.job_id, e.kind, {CLIPPED.format("e.at")} AS at, e.claim, e.worker, e.actor,
  CASE jsonb_typeof(e.data) WHEN 'object'
    THEN left((e.data #- '{{error,traceback}}')::text, 20000)
  END AS data
"""

# Locks nothing. Both ends of the job's events through (job_id, id); of what lies between nothing is
# read. Only the newest errors bring their traceback, which is most of an event's bulk.
EVENTS = f"""
WITH chosen AS MATERIALIZED (
  (SELECT id FROM django_relay_event WHERE job_id = %(job)s ORDER BY id LIMIT {HEAD})
  UNION
  (SELECT id FROM django_relay_event WHERE job_id = %(job)s ORDER BY id DESC LIMIT {TAIL})
), numbered AS (
  SELECT id, row_number() OVER (ORDER BY id DESC) AS place
  FROM django_relay_event
  WHERE id = ANY (ARRAY(SELECT id FROM chosen)) AND data->'error' IS NOT NULL
)
SELECT {_FIELDS},
  CASE WHEN n.place <= {TRACEBACKS} THEN left(e.data->'error'->>'traceback', 20000) END
FROM django_relay_event AS e
LEFT JOIN numbered AS n ON n.id = e.id
WHERE e.id = ANY (ARRAY(SELECT id FROM chosen))
ORDER BY e.id
"""

# Locks nothing. How many events a job has, up to a limit.
HOW_MANY = f"""
SELECT count(*) FROM (
  SELECT 1 FROM django_relay_event WHERE job_id = %(job)s LIMIT {ENOUGH + 1}
) AS e
"""

# Locks nothing: the events of a page of the list, by key.
BY_KEY = f"""
SELECT {_FIELDS}, left(e.data->'error'->>'traceback', 20000)
FROM django_relay_event AS e
WHERE e.id = ANY (%(ids)s::bigint[])
ORDER BY e.id DESC
"""


@dataclass(frozen=True, slots=True)
class Event:
    """One event. ``data`` is empty where it is no object, or too large to be one of ours."""

    id: int
    job_id: int
    kind: str
    at: datetime
    claim: int | None
    worker: str | None
    actor: str | None
    data: Mapping[str, Any] = field(default_factory=dict)
    traceback: str | None = None

    @property
    def error(self) -> Mapping[str, Any]:
        """The error that the event brought; empty where it brought none."""
        error = self.data.get("error")
        return error if isinstance(error, dict) else {}

    @property
    def state(self) -> str | None:
        """The state that the event says it led to."""
        state = self.data.get("state")
        return state if isinstance(state, str) else None

    @property
    def failed(self) -> bool:
        """Whether it used up one of the job's attempts."""
        ended = self.kind == "failed" and self.data.get("verb") in ("retry", "fail")
        return self.kind == "retried" or ended

    def number(self, name: str) -> float | None:
        """Return a number of the data, or None where there is none."""
        value = self.data.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value) if abs(value) < 1e15 else None


@dataclass(frozen=True, slots=True)
class History:
    """A job's first and last events, oldest first, and how many lie between ("" for none)."""

    head: list[Event]
    tail: list[Event]
    between: int = 0

    @property
    def events(self) -> list[Event]:
        return self.head + self.tail


def read(place: Place, job_id: int) -> History:
    """Read a job's history: one query, and a second where it is long."""
    with connections[place.database].cursor() as cursor:
        cursor.execute(EVENTS, {"job": job_id})
        events = [_event(row) for row in cursor.fetchall()]
        if len(events) < HEAD + TAIL:
            return History([], events)
        cursor.execute(HOW_MANY, {"job": job_id})
        between = cursor.fetchone()[0] - len(events)
    if between <= 0:
        return History([], events)
    return History(events[:HEAD], events[HEAD:], between)


def by_key(place: Place, ids: list[int]) -> list[Event]:
    """Read events by their keys, newest first."""
    if not ids:
        return []
    with connections[place.database].cursor() as cursor:
        cursor.execute(BY_KEY, {"ids": ids})
        return [_event(row) for row in cursor.fetchall()]


def _event(row: tuple[Any, ...]) -> Event:
    key, job_id, kind, at, claim, worker, actor, data, traceback = row
    return Event(key, job_id, kind, at, claim, worker, actor, _object(data), traceback)


def _object(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):  # cut off, or numbers that Python does not read
        return {}
    return found if isinstance(found, dict) else {}
