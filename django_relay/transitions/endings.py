"""A batch of endings, as it is sent to the database and answered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django_relay.outcomes import Ending
from django_relay.states import MAX_INTERRUPTIONS


class Settled(NamedTuple):
    """What became of one ending.

    Accepted: ``state``, and ``kind`` and ``at`` of its event, are set. Refused: ``reason`` is
    ``expired``, ``superseded``, ``cancelled``, ``gone`` where the job itself has, or ``unstorable``
    where no word of it can be stored (its lease, if it has one, ends at once); ``late_ms`` tells
    how long after the lease's end it came, where that is known.
    """

    accepted: bool
    state: str | None = None
    kind: str | None = None
    at: datetime | None = None
    reason: str | None = None
    late_ms: float | None = None


UNSTORABLE = Settled(False, reason="unstorable")


# The endings of a batch, as one JSON text: seven arrays take a driver in Python ten times as long.
ENDINGS = """json_to_recordset(%(endings)s::json) AS e(
    job_id bigint, token uuid, verb text, result text, delay float8, data text, ran float8,
    took float8
  )"""

_INTERRUPTED = (
    '{"class": "django_relay.exceptions.WorkerLost", "message": "The worker was stopped while this '
    'job ran, and the job may not be started again.", "traceback": ""}'
)


def presented(endings: Sequence[Ending]) -> dict[str, object]:
    """Make the values of the statements about ``endings``."""
    rows = [
        {
            "job_id": e.job_id,
            "token": e.token,
            "verb": e.outcome.verb.value,
            "result": e.outcome.result,
            "delay": float(e.outcome.delay),
            "data": e.outcome.data,
            "ran": e.ran,
            "took": e.took,
        }
        for e in endings
    ]
    return {
        "endings": _encode(rows),
        "max_interruptions": MAX_INTERRUPTIONS,
        "interrupted": _INTERRUPTED,
    }


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def accepted(rows: Iterable[tuple[Any, ...]]) -> dict[str, Settled]:
    """Read which of the presented endings were accepted, by token; ``others`` asks about those that
    are not among them."""
    return {row[0]: Settled(True, *row[1:]) for row in rows}
