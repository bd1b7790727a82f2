"""The ready jobs through the claim's own index: it leads from queue to queue and from priority to
priority, however many jobs wait in each, so a backlog of a million costs what one of ten does.
"""

from __future__ import annotations

from django.db import connections

from .places import Place
from .windows import Cursor

# The first job of each queue and priority that has something ready, one index probe for each.
# `head` leaps from the first job of one pair to the first of the next; no more than 500 of them.
HEADS = """
RECURSIVE head AS (
  (
    SELECT queue, priority, id, GREATEST(run_after, enqueued_at) AS due FROM django_relay_job
    WHERE state = 'ready' ORDER BY queue, (-priority), id LIMIT 1
  )
  UNION ALL
  SELECT n.* FROM head AS h CROSS JOIN LATERAL (
    SELECT queue, priority, id, GREATEST(run_after, enqueued_at) AS due FROM django_relay_job
    WHERE state = 'ready' AND (queue, (-priority)) > (h.queue, (-h.priority))
    ORDER BY queue, (-priority), id LIMIT 1
  ) AS n
), heads AS MATERIALIZED (
  SELECT * FROM head LIMIT 500
)
"""

# Locks nothing. Of each queue and priority the jobs on one side of a key, and of all these the ones
# nearest to it. Both bounds are comparisons of rows, and none an equality: with the queue known to
# be one, the planner would take the table's key for the same order and walk it.
_NEAREST = """
WITH {heads}
SELECT j.id FROM heads AS h CROSS JOIN LATERAL (
  SELECT id FROM django_relay_job
  WHERE state = 'ready'
    AND (queue, (-priority), id) {beyond} (h.queue, (-h.priority), %(key)s)
    AND (queue, (-priority)) {within} (h.queue, (-h.priority))
  ORDER BY queue {way}, (-priority) {way}, id {way}
  LIMIT %(limit)s
) AS j
WHERE %(queue)s = '' OR h.queue = %(queue)s
ORDER BY j.id {way}
LIMIT %(limit)s
"""
OLDER = _NEAREST.format(heads=HEADS, beyond="<", within=">=", way="DESC")
NEWER = _NEAREST.format(heads=HEADS, beyond=">", within="<=", way="ASC")

_LAST_KEY = 2**63 - 1


def ready_keys(place: Place, queue: str, cursor: Cursor, *, limit: int) -> list[int]:
    """Return the keys of the ready jobs next to ``cursor``, nearest first; "" is any queue."""
    upward = cursor.after is not None
    key = cursor.after if upward else cursor.before
    values: dict[str, int | str | None] = {
        "queue": queue,
        "key": _LAST_KEY if key is None else key,
        "limit": limit,
    }
    with connections[place.database].cursor() as sql:
        sql.execute(NEWER if upward else OLDER, values)
        return [found for (found,) in sql.fetchall()]
