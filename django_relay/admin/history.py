"""Events for the list, by their keys, and the tracebacks of one job's newest errors.

What happened to one job is read by ``django_relay.recording``. Nothing here puts it into words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connections

from .columns import CLIPPED
from .places import Place

#: Of a job's last events so many are searched for errors, and so many tracebacks are read.
LAST, TRACEBACKS = 60, 20

# Locks nothing: the events of a page of the list, by key.
BY_KEY = f"""
SELECT
  e.id, e.job_id, e.kind, {CLIPPED.format("e.at")} AS at, e.claim, e.worker, e.actor,
  CASE jsonb_typeof(e.data) WHEN 'object'
    THEN left((e.data #- '{{error,traceback}}')::text, 20000)
  END AS data,
  left(e.data->'error'->>'traceback', 20000)
FROM django_relay_event AS e
WHERE e.id = ANY (%(ids)s::bigint[])
ORDER BY e.id DESC
"""

# Locks nothing: by claim, the newest tracebacks among a job's last events, through (job_id, id).
# They are most of an event's bulk, so that only these are read.
ERRORS = f"""
SELECT e.claim, left(e.data->'error'->>'traceback', 20000)
FROM (
  SELECT id, claim, kind, data FROM django_relay_event
  WHERE job_id = %(job)s ORDER BY id DESC LIMIT {LAST}
) AS e
WHERE e.claim IS NOT NULL AND e.kind <> 'refused' AND e.data->'error'->>'traceback' <> ''
ORDER BY e.id DESC LIMIT {TRACEBACKS}
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


def by_key(place: Place, ids: list[int]) -> list[Event]:
    """Read events by their keys, newest first."""
    if not ids:
        return []
    with connections[place.database].cursor() as cursor:
        cursor.execute(BY_KEY, {"ids": ids})
        return [_event(row) for row in cursor.fetchall()]


def tracebacks(place: Place, job_id: int) -> dict[int, str]:
    """Read the newest tracebacks of a job, each by the claim that it ended."""
    with connections[place.database].cursor() as cursor:
        cursor.execute(ERRORS, {"job": job_id})
        return dict(reversed(cursor.fetchall()))


def _event(row: tuple[Any, ...]) -> Event:
    key, job_id, kind, at, claim, worker, actor, data, traceback = row
    return Event(key, job_id, kind, at, claim, worker, actor, _object(data), traceback)


def _object(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):  # cut off, or numbers that Python does not read
        return {}
    return found if isinstance(found, dict) else {}
