"""One job as a line of the list: what stands there in words, from one row and its last events.

Arguments and results are not read here: a list shows none, and they may be large.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connections
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_relay.models import Lease
from django_relay.replay import wording
from django_relay.states import FINAL, EventKind, State

from . import words
from .columns import Clipped
from .places import Place
from .words import Moment


class Row(NamedTuple):
    """A job's columns that every page needs, in the order in which they are read."""

    id: int
    backend: str
    queue: str
    task: str
    state: str
    priority: int
    claims: int
    failures: int
    losses: int
    interruptions: int
    max_attempts: int | None
    run_after: datetime
    enqueued_at: datetime
    started_at: datetime | None
    last_attempted_at: datetime | None
    finished_at: datetime | None


COLUMNS = Row._fields


class Holder(NamedTuple):
    """The lease of a running job, as the list needs it."""

    worker: str
    claim: int
    since: datetime
    cancel_requested: bool


class Last(NamedTuple):
    """What the last events of a job tell: its last move, and its last error."""

    move: str | None
    error: str | None
    message: str | None


# Locks nothing. The last twenty events of each job are read backwards through (job_id, id). What
# moved nothing is passed over for the move.
LAST = """
SELECT j.id, m.kind, e.class, e.message
FROM unnest(%(ids)s::bigint[]) AS j(id)
LEFT JOIN LATERAL (
  SELECT v.kind FROM (
    SELECT id, kind FROM django_relay_event WHERE job_id = j.id ORDER BY id DESC LIMIT 20
  ) AS v
  WHERE v.kind NOT IN ('refused', 'cancel_requested')
  ORDER BY v.id DESC
  LIMIT 1
) AS m ON true
LEFT JOIN LATERAL (
  SELECT
    left(v.data->'error'->>'class', 255) AS class,
    left(v.data->'error'->>'message', 1000) AS message
  FROM (
    SELECT id, data FROM django_relay_event WHERE job_id = j.id ORDER BY id DESC LIMIT 20
  ) AS v
  WHERE v.data->'error' IS NOT NULL
  ORDER BY v.id DESC
  LIMIT 1
) AS e ON true
"""

_AFTER: dict[str, Promise] = {
    EventKind.SNOOZED: gettext_lazy("put aside by the task"),
    EventKind.RESCHEDULED: gettext_lazy("rescheduled"),
    EventKind.ENQUEUED: gettext_lazy("as asked for"),
    EventKind.REQUEUED: gettext_lazy("requeued"),
}


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job for the eye. Every attribute is plain text; templates escape it."""

    row: Row
    url: str
    label: str
    module: str
    function: str
    attempt: str
    trouble: str
    when: Moment | None
    when_note: str
    took: str
    took_note: str
    error: str
    message: str
    holder: Holder | None

    @property
    def state(self) -> str:
        """The state's name, as the style sheet and the icons know it."""
        return self.row.state

    @property
    def error_name(self) -> str:
        """The error's class without its module."""
        return self.error.rpartition(".")[2]


def describe(rows: Sequence[Row], place: Place, now: datetime) -> list[JobRow]:
    """Describe rows, with one query for the leases and one for the last events where needed."""
    held = _holders(place, (row.id for row in rows if row.state == State.RUNNING))
    telling = [row.id for row in rows if _has_history(row)]
    last = _last(place, telling)
    nothing = Last(None, None, None)
    return [_describe(row, held.get(row.id), last.get(row.id, nothing), place, now) for row in rows]


def _has_history(row: Row) -> bool:
    waits_again = row.state in (State.SCHEDULED, State.READY) and row.claims > 0
    troubled = row.failures > 0 or row.losses > 0
    return waits_again or troubled or row.state in (State.SCHEDULED, State.FAILED, State.CANCELLED)


def _holders(place: Place, ids: Iterable[int]) -> dict[int, Holder]:
    running = list(ids)
    if not running:
        return {}
    leases = Lease.objects.using(place.database).filter(pk__in=running)
    names = (
        "pk",
        "worker",
        "claim",
        "begun_at",
        "acquired_at",
        Clipped("cancel_requested_at"),
    )
    return {
        key: Holder(worker, claim, begun or acquired, asked is not None)
        for key, worker, claim, begun, acquired, asked in leases.values_list(*names)
    }


def _last(place: Place, ids: list[int]) -> dict[int, Last]:
    if not ids:
        return {}
    with connections[place.database].cursor() as cursor:
        cursor.execute(LAST, {"ids": ids})
        return {row[0]: Last(*row[1:]) for row in cursor.fetchall()}


def _describe(row: Row, holder: Holder | None, last: Last, place: Place, now: datetime) -> JobRow:
    module, _dot, function = row.task.rpartition(".")
    when, note = _when(row, holder, last, now)
    took, took_note = _took(row, holder, now)
    return JobRow(
        row=row,
        url=place.job(row.id),
        label=state_label(row.state),
        module=module,
        function=function or row.task,
        attempt=attempt(row),
        trouble=trouble(row),
        when=words.moment(when, now),
        when_note=note,
        took=took,
        took_note=took_note,
        error=last.error or "",
        message=wording.first_line(last.message),
        holder=holder,
    )


def state_label(state: str) -> str:
    """Return a state's name for people; an unknown one as it is."""
    return str(State(state).label) if state in State.values else state


def attempt(row: Row) -> str:
    """Say which attempt this is of how many: failures and the one under way; none before one.

    A failed job's last failure was its last attempt.
    """
    if not row.claims:
        return ""
    n = max(row.failures + (row.state != State.FAILED), 1)
    if row.max_attempts is None:
        return _("%(n)s, no limit") % {"n": n}
    return _("%(n)s of %(m)s") % {"n": min(n, row.max_attempts), "m": row.max_attempts}


def trouble(row: Row) -> str:
    """Say how often the job lost its worker or was interrupted by a stop."""
    said = []
    if row.losses:
        said.append(ngettext("lost once", "lost %(n)s times", row.losses) % {"n": row.losses})
    if row.interruptions:
        words_ = ngettext("interrupted once", "interrupted %(n)s times", row.interruptions)
        said.append(words_ % {"n": row.interruptions})
    return ", ".join(said)


def next_run(row: Row, last: Last, now: datetime) -> str:
    """Say when a scheduled job runs next and why then: "in 4 s, after failure 2"."""
    at = words.relative(row.run_after, now) if row.run_after > now else _("due")
    if last.move == EventKind.RETRIED:
        why = _("after failure %(n)s") % {"n": row.failures}
    elif last.move == EventKind.RESCUED:
        why = _("after loss %(n)s") % {"n": row.losses}
    else:
        why = str(_AFTER.get(last.move, "")) if last.move else ""
    return _("%(at)s, %(why)s") % {"at": at, "why": why} if why else at


def _when(
    row: Row, holder: Holder | None, last: Last, now: datetime
) -> tuple[datetime | None, str]:
    if row.state in FINAL:
        at = row.finished_at
        return at, words.relative(at, now) if at else ""
    if row.state == State.RUNNING:
        at = holder.since if holder else row.last_attempted_at
        return at, _("began %(ago)s") % {"ago": words.relative(at, now)} if at else ""
    if row.state == State.SCHEDULED:
        return row.run_after, next_run(row, last, now)
    at = max(row.run_after, row.enqueued_at)
    return at, _("due %(ago)s") % {"ago": words.relative(at, now)}


def _took(row: Row, holder: Holder | None, now: datetime) -> tuple[str, str]:
    """Say how long: a finished job's last attempt and first wait, or what is going on by now."""
    if row.state == State.RUNNING:
        asked = holder is not None and holder.cancel_requested
        return words.span(holder.since if holder else None, now), _(
            "asked to stop"
        ) if asked else ""
    if row.state in FINAL:
        ran = (
            ""
            if row.state == State.CANCELLED
            else words.span(row.last_attempted_at, row.finished_at)
        )
        return ran, waited(row) or _("never started")
    if row.state == State.SCHEDULED:
        return "", ""
    return words.span(max(row.run_after, row.enqueued_at), now), _("waiting")


def waited(row: Row, started_at: datetime | None = None) -> str:
    """Say how long the first attempt was due before it started; nothing where it has not."""
    seconds = words.between(due_at(row), row.started_at or started_at)
    if seconds is None:
        return ""
    if seconds < 0.001:
        return _("without waiting")
    return _("after waiting %(time)s") % {"time": words.duration(seconds)}


def due_at(row: Row) -> datetime:
    """Return when the first attempt was due; a later attempt's time says nothing of it."""
    started: Any = row.started_at
    if started is not None and row.run_after <= started:
        return max(row.run_after, row.enqueued_at)
    return row.enqueued_at
