"""The queues: what is ready in each, how long its oldest job has been due, and who serves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connections

from . import counts, words
from .backlog import HEADS
from .columns import CLIPPED
from .fleet import WorkerRow
from .places import Place, backends

#: How far the ready jobs of one queue are counted.
ENOUGH = 1_000

# Locks nothing. The oldest of a queue and priority is its first by key, and a queue's the oldest of
# these. Counts stop at the limit. They go through an array, of which the planner expects ten
# elements: of the queues themselves it would expect so many that it compiled the statement first
# (JIT), which takes a hundred times as long as running it.
READY = f"""
WITH {HEADS}, oldest AS (
  SELECT queue, min(due) AS due FROM heads GROUP BY queue
), counted AS (
  SELECT q.name, (SELECT count(*) FROM (
    SELECT 1 FROM django_relay_job WHERE state = 'ready' AND queue = q.name
    LIMIT {ENOUGH + 1}) AS j) AS n
  FROM unnest(ARRAY(SELECT queue FROM oldest)) AS q(name)
)
SELECT o.queue, {CLIPPED.format("o.due")}, statement_timestamp(), c.n
FROM oldest AS o JOIN counted AS c ON c.name = o.queue
"""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue for the eye. ``alone``: something is due and no live worker serves it."""

    name: str
    url: str
    ready: str
    waited: str
    workers: int
    alone: bool


def read(place: Place, workers: Sequence[WorkerRow]) -> list[QueueRow]:
    """Describe the queues of the settings, of the workers, and all that have something ready."""
    with connections[place.database].cursor() as cursor:
        cursor.execute(READY)
        ready = {name: (due, now, n) for name, due, now, n in cursor.fetchall()}
    known = {str(name) for backend in backends() for name in backend.queues}
    known.update(name for worker in workers if worker.alive for name in worker.queues or ())
    rows = []
    for name in sorted(known | set(ready)):
        due, now, n = ready.get(name, (None, None, 0))
        serving = sum(worker.serves(name) for worker in workers)
        rows.append(
            QueueRow(
                name=name,
                url=place.listed("job", state="ready", queue=name),
                ready=counts.up_to(n, ENOUGH),
                waited=words.span(due, now),
                workers=serving,
                alone=bool(n) and not serving,
            )
        )
    return rows
