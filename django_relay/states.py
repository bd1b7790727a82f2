"""The state machine of a job, as data.

``TRANSITIONS`` is the one statement of what may happen to a job. The SQL in ``transitions`` makes
these moves, the tests hold every state against every row, and the audit replays the events of a
live database through ``replay``. Nothing here touches a database.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import TextChoices


class State(TextChoices):
    """Where a job stands. Django's word where Django has one."""

    BLOCKED = "blocked"
    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    SUCCESSFUL = "successful"
    FAILED = "failed"
    CANCELLED = "cancelled"


class EventKind(TextChoices):
    """What happened to a job, in the past tense. A final event bears its state's meaning."""

    ENQUEUED = "enqueued"
    UNBLOCKED = "unblocked"
    CLAIMED = "claimed"
    SUCCEEDED = "succeeded"
    RETRIED = "retried"
    FAILED = "failed"
    SNOOZED = "snoozed"
    RELEASED = "released"
    RESCUED = "rescued"
    CANCEL_REQUESTED = "cancel_requested"
    CANCELLED = "cancelled"
    RESCHEDULED = "rescheduled"
    MOVED = "moved"
    REQUEUED = "requeued"
    REFUSED = "refused"


WAITING = frozenset({State.BLOCKED, State.SCHEDULED, State.READY})
FINAL = frozenset({State.SUCCESSFUL, State.FAILED, State.CANCELLED})

#: A job is failed when a stopping worker has interrupted it this many times.
MAX_INTERRUPTIONS = 50

#: Counters saturate here instead of overflowing their column.
COUNTER_LIMIT = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the machine: a verb, the states it leads from and to, and the event it writes.

    ``source`` of an enqueue holds None, the state of a job that is not there yet; ``target`` of a
    prune holds None, the state of a job that is gone. A transition whose ``kinds`` is empty writes
    no event; several kinds mean that the target decides which.
    """

    verb: str
    source: frozenset[State | None]
    target: frozenset[State | None]
    kinds: frozenset[EventKind]
    by: str


def _row(
    verb: str,
    source: Iterable[State | None],
    target: Iterable[State | None],
    kinds: Iterable[EventKind],
    by: str,
) -> Transition:
    return Transition(verb, frozenset(source), frozenset(target), frozenset(kinds), by)


_S, _E = State, EventKind

TRANSITIONS: tuple[Transition, ...] = (
    _row("enqueue", [None], WAITING, [_E.ENQUEUED], "the backend or a schedule"),
    _row("promote", [_S.SCHEDULED], [_S.READY], [], "maintenance, when due"),
    _row("unblock", [_S.BLOCKED], [_S.READY], [_E.UNBLOCKED], "the ending that frees it"),
    _row("claim", [_S.READY], [_S.RUNNING], [_E.CLAIMED], "a worker's child"),
    _row("succeed", [_S.RUNNING], [_S.SUCCESSFUL], [_E.SUCCEEDED], "the lease's owner"),
    _row("retry", [_S.RUNNING], [_S.SCHEDULED], [_E.RETRIED], "the lease's owner"),
    _row("fail", [_S.RUNNING], [_S.FAILED], [_E.FAILED], "the lease's owner"),
    _row("snooze", [_S.RUNNING], [_S.SCHEDULED], [_E.SNOOZED], "the task, by raising Snooze"),
    _row(
        "release",
        [_S.RUNNING],
        [_S.READY, _S.FAILED],
        [_E.RELEASED, _E.FAILED],
        "a stopping worker",
    ),
    _row(
        "time out",
        [_S.RUNNING],
        [_S.SCHEDULED, _S.FAILED],
        [_E.RETRIED, _E.FAILED],
        "the lease's owner, or its supervisor",
    ),
    _row(
        "rescue",
        [_S.RUNNING],
        [_S.READY, _S.SCHEDULED, _S.FAILED, _S.CANCELLED],
        [_E.RESCUED, _E.FAILED, _E.CANCELLED],
        "maintenance when the lease ran out, the supervisor when its child died",
    ),
    _row("cancel", WAITING, [_S.CANCELLED], [_E.CANCELLED], "a person or code"),
    _row("ask to stop", [_S.RUNNING], [_S.RUNNING], [_E.CANCEL_REQUESTED], "a person or code"),
    _row("stop", [_S.RUNNING], [_S.CANCELLED], [_E.CANCELLED], "the lease's owner, when asked"),
    _row("cancel by force", [_S.RUNNING], [_S.CANCELLED], [_E.CANCELLED], "a person or code"),
    _row(
        "reschedule",
        WAITING,
        WAITING,
        [_E.RESCHEDULED],
        "a person or code",
    ),
    _row("move", WAITING, WAITING, [_E.MOVED], "a person or code"),
    _row("expire", WAITING, [_S.FAILED], [_E.FAILED], "maintenance, past start_before"),
    _row("requeue", FINAL, [_S.READY], [_E.REQUEUED], "a person or code"),
    _row("refuse", State, State, [_E.REFUSED], "an ending that found no live lease"),
    _row("prune", FINAL, [None], [], "maintenance, past retention"),
)

# Where each event may stand and what it leads to. ``claimed`` after ``scheduled`` implies the
# promotion, which writes no event; ``refused`` may follow anything and moves nothing.
_MOVES: dict[EventKind, tuple[frozenset[State | None], frozenset[State]]] = {
    _E.ENQUEUED: (frozenset({None}), WAITING),
    _E.UNBLOCKED: (frozenset({_S.BLOCKED}), frozenset({_S.READY})),
    _E.CLAIMED: (frozenset({_S.READY, _S.SCHEDULED}), frozenset({_S.RUNNING})),
    _E.SUCCEEDED: (frozenset({_S.RUNNING}), frozenset({_S.SUCCESSFUL})),
    _E.RETRIED: (frozenset({_S.RUNNING}), frozenset({_S.SCHEDULED})),
    _E.SNOOZED: (frozenset({_S.RUNNING}), frozenset({_S.SCHEDULED})),
    _E.RELEASED: (frozenset({_S.RUNNING}), frozenset({_S.READY})),
    _E.RESCUED: (frozenset({_S.RUNNING}), frozenset({_S.READY, _S.SCHEDULED})),
    _E.FAILED: (frozenset({_S.RUNNING, *WAITING}), frozenset({_S.FAILED})),
    _E.CANCEL_REQUESTED: (frozenset({_S.RUNNING}), frozenset({_S.RUNNING})),
    _E.CANCELLED: (frozenset({_S.RUNNING, *WAITING}), frozenset({_S.CANCELLED})),
    _E.RESCHEDULED: (WAITING, WAITING),
    _E.MOVED: (WAITING, WAITING),
    _E.REQUEUED: (FINAL, frozenset({_S.READY})),
}


class IllegalHistory(ValueError):
    """A job's events do not replay through the machine. The text names the first that does not."""


def replay(events: Iterable[tuple[str, str | None]]) -> frozenset[State]:
    """Play a job's events and return the states that it may be in after them.

    Each event is ``(kind, state)``: its kind, and the state the event says it led to, or None
    where it does not say. Raises IllegalHistory at the first event that no transition allows.
    """
    current: frozenset[State | None] = frozenset({None})
    for position, (kind, state) in enumerate(events, start=1):
        if kind == EventKind.REFUSED:
            if current == {None}:
                raise IllegalHistory(f"event {position}: refused before enqueued")
            continue
        if kind not in EventKind.values:
            raise IllegalHistory(f"event {position}: unknown kind {kind!r}")
        source, target = _MOVES[EventKind(kind)]
        if not current & source:
            where = "/".join(sorted(str(s) for s in current))
            raise IllegalHistory(f"event {position}: {kind} cannot follow {where}")
        current = frozenset({State(state)} if state in target else target)
    return frozenset(s for s in current if s is not None)
