"""A worker says that it is there, that it sleeps, that it has stopped. No lease hangs on it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from .session import Session

# Locks: the worker's own row, SKIP LOCKED: who has it keeps nobody's jobs from being taken back or
# becoming ready, which comes next. `waiting` asks enqueues for a notification. The insert
# waits only for somebody who is inserting the same worker.
ATTEND = """
WITH own AS MATERIALIZED (
  SELECT id FROM django_relay_worker WHERE id = %(id)s FOR NO KEY UPDATE SKIP LOCKED
), seen AS (
  UPDATE django_relay_worker AS w SET
    seen_at = clock_timestamp(), waiting = %(waiting)s, stopped_at = NULL
  FROM own WHERE w.id = own.id
)
INSERT INTO django_relay_worker (
  id, queues, processes, slots, version, started_at, seen_at, waiting
)
SELECT
  %(id)s, %(queues)s::jsonb, %(processes)s, %(slots)s, %(version)s,
  clock_timestamp(), clock_timestamp(), %(waiting)s
WHERE NOT EXISTS (SELECT 1 FROM django_relay_worker WHERE id = %(id)s)
ON CONFLICT (id) DO NOTHING
"""

# Locks: the worker's own row, and waits for it: there is nothing that would come after.
LEAVE = """
UPDATE django_relay_worker SET
  seen_at = clock_timestamp(), waiting = false, stopped_at = clock_timestamp()
WHERE id = %(id)s
"""

# Locks: rows of workers not seen for a day, SKIP LOCKED. A dead worker cannot say that it stopped;
# its `waiting` would have every enqueue notify nobody, so that goes after a minute.
FORGET = """
WITH silent AS MATERIALIZED (
  SELECT id, seen_at FROM django_relay_worker
  WHERE seen_at < clock_timestamp() - interval '1 day'
     OR (waiting AND seen_at < clock_timestamp() - interval '1 minute')
  FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM django_relay_worker AS w USING silent AS s
  WHERE w.id = s.id AND s.seen_at < clock_timestamp() - interval '1 day'
)
UPDATE django_relay_worker AS w SET waiting = false
FROM silent AS s
WHERE w.id = s.id AND s.seen_at >= clock_timestamp() - interval '1 day'
"""

# Locks nothing. One notification per queue, and only if somebody sleeps.
NOTIFY = """
SELECT pg_notify('django_relay', queue) FROM unnest(%(queues)s::text[]) AS queue
WHERE EXISTS (SELECT 1 FROM django_relay_worker WHERE waiting)
"""


def attend(
    connection: Session,
    worker: str,
    *,
    queues: Sequence[str] | None,
    processes: int,
    slots: int,
    version: str,
    waiting: bool,
) -> None:
    """Write that ``worker`` is alive, and whether it sleeps and wants to be notified."""
    values = {
        "id": worker,
        "queues": None if queues is None else json.dumps(list(queues)),
        "processes": processes,
        "slots": slots,
        "version": version,
        "waiting": waiting,
    }
    with connection.cursor() as cursor:
        cursor.execute(ATTEND, values)


def leave(connection: Session, worker: str) -> None:
    """Write that ``worker`` has stopped."""
    with connection.cursor() as cursor:
        cursor.execute(LEAVE, {"id": worker})


def forget_silent(connection: Session) -> None:
    """Drop workers not seen for a day; stop notifying those not seen for a minute."""
    with connection.cursor() as cursor:
        cursor.execute(FORGET)


def notify(connection: Session, queues: Iterable[str]) -> None:
    """Wake workers that sleep because ``queues`` have something ready again."""
    names = sorted(set(queues))
    if names:
        with connection.cursor() as cursor:
            cursor.execute(NOTIFY, {"queues": names})
