"""Every state against every transition, by the table in ``states``.

A play is one call of a transition. Where the table allows it, it makes the move and writes exactly
the event of its row; everywhere else nothing changes, and an ending leaves its refusal behind.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from django_relay import outcomes, transitions
from django_relay.outcomes import Outcome
from django_relay.states import FINAL, TRANSITIONS, WAITING, EventKind, State

from .stage import ACTOR, ERROR, WORKER, Stage, Subject, ending

Act = Callable[[Stage, Subject], Any]
ROWS = {row.verb: row for row in TRANSITIONS}

#: Rows of the table that no code makes yet.
TO_COME = {"unblock"}


@dataclass(frozen=True)
class Move:
    """The row of the table that a play is an instance of, where it leads, and what is written."""

    verb: str
    target: State | None
    kind: EventKind | None


@dataclass(frozen=True)
class Play:
    """A call of a transition, what is done to the job beforehand, and the moves it may make."""

    name: str
    act: Act
    moves: dict[State, Move]
    before: Act = field(default=lambda stage, subject: None)


def _stay(verb: str, kind: EventKind, sources: Any) -> dict[State, Move]:
    return {state: Move(verb, state, kind) for state in sources}


REFUSALS = _stay("refuse", EventKind.REFUSED, State)


def _columns(**columns: Any) -> Act:
    return lambda stage, subject: stage.set(subject.job_id, **columns)


def _due(column: str) -> Act:
    """Age a time of the job, so that it lies an hour back on the database's clock."""
    query = f"UPDATE django_relay_job SET {column} = now() - interval '1 hour' WHERE id = %s"
    return lambda stage, subject: stage.db.execute(query, [subject.job_id])


def _expired(stage: Stage, subject: Subject) -> None:
    stage.age_lease(subject.job_id, 3600)


def _asked(stage: Stage, subject: Subject) -> None:
    if subject.state == State.RUNNING:
        transitions.cancel(stage.db, [subject.job_id], actor=ACTOR)


def _all(*acts: Act) -> Act:
    def act(stage: Stage, subject: Subject) -> None:
        for one in acts:
            one(stage, subject)

    return act


def _end(
    name: str,
    verb: str,
    outcome: Outcome,
    target: State,
    kind: EventKind,
    *,
    ran: float | None = 1.0,
    before: Act = lambda stage, subject: None,
) -> Play:
    """An ending under the job's token: live for a running job, and refused for any other."""

    def act(stage: Stage, subject: Subject) -> None:
        stage.settle(ending(subject, outcome, ran=ran))

    return Play(name, act, REFUSALS | {State.RUNNING: Move(verb, target, kind)}, before)


def _call(name: str, function: Any, moves: dict[State, Move], before: Act | None = None) -> Play:
    def act(stage: Stage, subject: Subject) -> None:
        function(stage.db, subject)

    return Play(name, act, moves, before or (lambda stage, subject: None))


def _cancel(force: bool) -> Any:
    return lambda db, s: transitions.cancel(db, [s.job_id], actor=ACTOR, force=force)


def _reschedule(delay: timedelta) -> Any:
    return lambda db, s: transitions.reschedule(db, [s.job_id], run_after=delay, actor=ACTOR)


def _rescue(target: State, kind: EventKind, name: str, before: Act = _expired) -> Play:
    moves = {State.RUNNING: Move("rescue", target, kind)}
    rescue = lambda db, s: transitions.rescue_expired(db)  # noqa: E731
    return _call(f"rescue, {name}", rescue, moves, _all(_expired, before))


def _late_renewal(stage: Stage, subject: Subject) -> None:
    held = transitions.Held(subject.job_id, str(uuid.uuid4()), 1.0)
    assert transitions.renew(stage.db, [held], lease=60).gone == {held.token}


def _another(stage: Stage, subject: Subject) -> None:
    stage.enqueue()


S, E = State, EventKind
TIMEOUT = ERROR | {"class": "django_relay.exceptions.JobTimeout"}
RETRY, FAIL = outcomes.raised(ERROR, delay=60), outcomes.failed(ERROR)
SUCCEED, SNOOZE = outcomes.succeeded("[1]"), outcomes.snoozed(60)
RELEASE, OVERRUN = outcomes.released(), outcomes.raised(TIMEOUT, delay=60)
LAST_FAILURE, LAST_STOP = _columns(failures=4), _columns(interruptions=49)
CANCELS = {state: Move("cancel", S.CANCELLED, E.CANCELLED) for state in WAITING}
ASKS = {S.RUNNING: Move("ask to stop", S.RUNNING, E.CANCEL_REQUESTED)}
FORCES = {S.RUNNING: Move("cancel by force", S.CANCELLED, E.CANCELLED)}
STAYS_BLOCKED = _stay("reschedule", E.RESCHEDULED, [S.BLOCKED])
NEVER_BEGUN = {S.RUNNING: Move("release", S.READY, E.RELEASED)}

PLAYS = [
    Play("another enqueue", _another, {}),
    _call(
        "promote",
        lambda db, s: transitions.promote(db),
        {S.SCHEDULED: Move("promote", S.READY, None)},
        _due("run_after"),
    ),
    _call("promote too early", lambda db, s: transitions.promote(db), {}),
    Play(
        "claim",
        lambda stage, s: stage.claim_up_to(5, alone=True),
        {S.READY: Move("claim", S.RUNNING, E.CLAIMED)},
    ),
    _end("succeed", "succeed", SUCCEED, S.SUCCESSFUL, E.SUCCEEDED),
    _end(
        "succeed when asked to stop", "succeed", SUCCEED, S.SUCCESSFUL, E.SUCCEEDED, before=_asked
    ),
    _end("retry", "retry", RETRY, S.SCHEDULED, E.RETRIED),
    _end("fail", "fail", FAIL, S.FAILED, E.FAILED),
    _end("fail by the last retry", "fail", RETRY, S.FAILED, E.FAILED, before=LAST_FAILURE),
    _end("snooze", "snooze", SNOOZE, S.SCHEDULED, E.SNOOZED),
    _end("release", "release", RELEASE, S.READY, E.RELEASED),
    _end("release unbegun", "release", RELEASE, S.READY, E.RELEASED, ran=None),
    _end("release too often", "release", RELEASE, S.FAILED, E.FAILED, before=LAST_STOP),
    _end("time out", "time out", OVERRUN, S.SCHEDULED, E.RETRIED),
    _end("time out at last", "time out", OVERRUN, S.FAILED, E.FAILED, before=LAST_FAILURE),
    *(
        _end(f"stop by {word}", "stop", outcome, S.CANCELLED, E.CANCELLED, before=_asked)
        for word, outcome in (
            ("retry", RETRY),
            ("fail", FAIL),
            ("snooze", SNOOZE),
            ("end", RELEASE),
        )
    ),
    _rescue(S.READY, E.RESCUED, "first loss", _columns(losses=0)),
    _rescue(S.SCHEDULED, E.RESCUED, "second loss", _columns(losses=1)),
    _rescue(S.FAILED, E.FAILED, "last loss", _columns(losses=4)),
    _rescue(S.CANCELLED, E.CANCELLED, "asked to stop", _asked),
    _call("rescue too early", lambda db, s: transitions.rescue_expired(db), {}),
    _call(
        "rescue of a dead child",
        lambda db, s: transitions.rescue_child(db, WORKER, begun=[s.token]),
        {S.RUNNING: Move("rescue", S.SCHEDULED, E.RESCUED)},
    ),
    _call(
        "rescue of a dead child that had not begun",
        lambda db, s: transitions.rescue_child(db, WORKER, begun=[]),
        NEVER_BEGUN,
    ),
    _call("rescue of another child", lambda db, s: transitions.rescue_child(db, "x", begun=[]), {}),
    _call("mend", lambda db, s: transitions.mend(db), {}),
    _call("cancel", _cancel(force=False), CANCELS | ASKS),
    _call("cancel again", _cancel(force=False), CANCELS, _asked),
    _call("cancel by force", _cancel(force=True), CANCELS | FORCES),
    _call(
        "reschedule",
        _reschedule(timedelta(hours=2)),
        {s: Move("reschedule", S.SCHEDULED, E.RESCHEDULED) for s in WAITING} | STAYS_BLOCKED,
    ),
    _call(
        "run now",
        _reschedule(timedelta(0)),
        {s: Move("reschedule", S.READY, E.RESCHEDULED) for s in WAITING} | STAYS_BLOCKED,
    ),
    _call(
        "move",
        lambda db, s: transitions.move(db, [s.job_id], queue="mail", priority=7, actor=ACTOR),
        _stay("move", E.MOVED, WAITING),
    ),
    _call(
        "expire",
        lambda db, s: transitions.expire(db),
        {s: Move("expire", S.FAILED, E.FAILED) for s in WAITING},
        _due("start_before"),
    ),
    _call("expire too early", lambda db, s: transitions.expire(db), {}),
    _call(
        "requeue",
        lambda db, s: transitions.requeue(db, [s.job_id], actor=ACTOR),
        {s: Move("requeue", S.READY, E.REQUEUED) for s in FINAL},
    ),
    _call(
        "prune",
        lambda db, s: transitions.prune(db, older_than=timedelta(0)),
        {s: Move("prune", None, None) for s in FINAL},
    ),
    _call("prune too early", lambda db, s: transitions.prune(db, older_than=timedelta(1)), {}),
    _end("late ending", "refuse", SUCCEED, S.RUNNING, E.REFUSED, before=_expired),
    Play(
        "ending under a foreign token",
        lambda stage, s: stage.settle(ending(replace(s, token=str(uuid.uuid4())), SUCCEED)),
        REFUSALS,
    ),
    Play("renewal under a foreign token", _late_renewal, {}),
]


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.name)
def test_a_transition_makes_its_move_or_changes_nothing(
    stage: Stage, play: Play, state: State
) -> None:
    subject = stage.make(state)
    job_id = subject.job_id
    play.before(stage, subject)
    job, lease, events = stage.job(job_id), stage.lease(job_id), stage.events(job_id)

    play.act(stage, subject)

    move = play.moves.get(state)
    written = stage.events(job_id)[len(events) :]
    if move is None or move.verb == "refuse":
        assert [event.kind for event in written] == ([] if move is None else ["refused"])
        assert (stage.job(job_id), stage.lease(job_id)) == (job, lease)
    elif move.target is None:
        assert (stage.job(job_id), stage.events(job_id)) == (None, [])
    else:
        assert stage.state(job_id) == move.target
        assert [event.kind for event in written] == ([move.kind] if move.kind else [])
        assert all(event.data.get("state", move.target) == move.target for event in written)
    if move is None or move.target is not None:
        stage.check_history(job_id)
    assert stage.orphans() == []


def test_every_row_of_the_table_is_played_from_and_to_every_state_it_names() -> None:
    sources: dict[str, set[Any]] = {"enqueue": {None}}
    targets: dict[str, set[Any]] = {"enqueue": {S.BLOCKED, S.SCHEDULED, S.READY}}
    kinds: dict[str, set[Any]] = {"enqueue": {E.ENQUEUED}}
    for play in PLAYS:
        for source, move in play.moves.items():
            sources.setdefault(move.verb, set()).add(source)
            targets.setdefault(move.verb, set()).add(move.target)
            kinds.setdefault(move.verb, set()).update({move.kind} - {None})
    played = {verb: (sources[verb], targets[verb], kinds[verb]) for verb in sources}
    assert played == {
        verb: (row.source, row.target, row.kinds)
        for verb, row in ROWS.items()
        if verb not in TO_COME
    }


@pytest.mark.parametrize(
    ("run_after", "state"), [(None, "ready"), (timedelta(0), "ready"), (timedelta(1), "scheduled")]
)
def test_an_enqueue_makes_a_job_and_its_first_event(
    stage: Stage, run_after: timedelta | None, state: str
) -> None:
    job_id = stage.enqueue(run_after=run_after)
    job = stage.job(job_id)
    assert job is not None
    assert job["state"] == state
    assert (job["claims"], job["failures"], job["losses"], job["interruptions"]) == (0, 0, 0, 0)
    (event,) = stage.events(job_id)
    assert (event.kind, event.data) == ("enqueued", {"state": state})


def test_an_enqueue_is_rolled_back_with_its_caller(stage: Stage) -> None:
    caller = stage.connect(autocommit=False)
    job_id = stage.enqueue(caller)
    caller.rollback()
    assert (stage.job(job_id), stage.events(job_id)) == (None, [])


def test_an_enqueue_that_a_column_refuses_leaves_nothing(stage: Stage) -> None:
    with pytest.raises(psycopg.DataError):
        stage.enqueue(args="no json")
    with pytest.raises(psycopg.errors.CheckViolation):
        stage.enqueue(priority=101)
    assert stage.value("SELECT count(*) FROM django_relay_event") == 0
