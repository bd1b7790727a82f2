"""An attempt becomes an outcome, whatever the handler does: here in a thread of this process.

What a worker makes of it, and of handlers that end their process, is in tests/process.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.db.backends.signals import connection_created

from django_relay import (
    Fail,
    RelayContext,
    Snooze,
    compat,
    current_job,
    execution,
    hygiene,
    outcomes,
    task,
)
from django_relay.context import Control
from django_relay.execution import Attempt
from django_relay.outcomes import Outcome, Verb
from tests.process.waiting import wait_until

from .stage import WORKER, Stage

HERE = "tests.db.test_execution"
MINUTE = timedelta(minutes=1)


class Unlucky(Snooze):
    """A Snooze that does not know for how long."""

    def __init__(self) -> None:
        Exception.__init__(self)


class Exiting(Snooze):
    """A Snooze that ends whoever asks it for how long."""

    def __init__(self) -> None:
        Exception.__init__(self)

    @property
    def delay(self) -> timedelta:
        raise SystemExit


def _leave_open() -> str:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
    return "done"


def _change_the_session() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 7654")
    return "done"


def _raise(what: BaseException) -> Any:
    raise what


ENDS: dict[str, Callable[[], Any]] = {
    "return": lambda: [1, {"a": None}],
    "return a set": lambda: {1},
    "raise": lambda: _raise(ValueError("no")),
    "fail": lambda: _raise(Fail("never")),
    "snooze": lambda: _raise(Snooze(MINUTE)),
    "snooze without a delay": lambda: _raise(Unlucky()),
    "snooze and exit": lambda: _raise(Exiting()),
    "exit": lambda: _raise(SystemExit(3)),
    "interrupt": lambda: _raise(KeyboardInterrupt()),
    "cancel": lambda: _raise(asyncio.CancelledError()),
    "current": lambda: list(job.fence) if (job := current_job()) else None,
}


@task(max_attempts=3)
def end(how: str) -> Any:
    return ENDS[how]()


@task(max_attempts=3)
async def end_async(how: str) -> Any:
    return ENDS[how]()


@task
def open_transaction() -> str:
    return _leave_open()


@task
async def open_transaction_async() -> str:
    return await sync_to_async(_leave_open)()


@task
def change_the_session() -> str:
    return _change_the_session()


@task
async def change_the_session_async() -> str:
    return await sync_to_async(_change_the_session)()


@task(takes_context=True)
def told(context: RelayContext, word: str) -> list[Any]:
    return [word, context.attempt, list(context.fence), context is current_job()]


@task(takes_context=True)
async def told_async(context: RelayContext, word: str) -> list[Any]:
    return [word, context.attempt, list(context.fence), context is current_job()]


BOTH = pytest.mark.parametrize("kind", ["", "_async"], ids=["sync", "async"])


@pytest.fixture
def watching() -> Iterator[None]:
    """Sessions are watched, as in a child."""
    hygiene.watch()
    yield
    connection_created.disconnect(dispatch_uid="django_relay.hygiene")


@pytest.fixture
def attempt(stage: Stage, watching: None) -> Callable[..., Outcome]:
    """Enqueue a job, claim it and run it in a thread of its own."""

    def run(path: str, *args: Any, **columns: Any) -> Outcome:
        job_id = stage.enqueue(task=f"{HERE}.{path}", args=json.dumps(args))
        if columns:
            stage.set(job_id, **columns)
        made = Attempt(
            job=stage.claim(),
            backend=compat.task_backends["default"],
            worker=WORKER,
            control=Control(),
            past=(),
            pid=os.getpid(),
        )
        concluded: list[Outcome] = []

        def runs() -> None:
            if path.endswith("_async"):
                asyncio.run(execution.execute_async(made, concluded.append))
            else:
                execution.execute(made, concluded.append)

        stage.start(runs).result()
        (outcome,) = concluded
        return outcome

    return run


Run = Callable[..., Outcome]


@BOTH
@pytest.mark.parametrize(
    ("how", "verb", "tells"),
    [
        ("return", Verb.SUCCEED, '[1,{"a":null}]'),
        ("return a set", Verb.RETRY, "django_relay.storable.Unstorable"),
        ("raise", Verb.RETRY, "builtins.ValueError"),
        ("fail", Verb.FAIL, "django_relay.exceptions.Fail"),
        ("snooze", Verb.SNOOZE, '{"delay": 60.0}'),
        ("snooze without a delay", Verb.RETRY, f"{HERE}.Unlucky"),
        ("snooze and exit", Verb.RETRY, f"{HERE}.Exiting"),
        ("exit", Verb.RETRY, "builtins.SystemExit"),
        ("interrupt", Verb.RETRY, "builtins.KeyboardInterrupt"),
        ("cancel", Verb.RETRY, "asyncio.exceptions.CancelledError"),
    ],
)
def test_whatever_a_handler_does_becomes_an_outcome(
    attempt: Run, kind: str, how: str, verb: Verb, tells: str
) -> None:
    for _ in range(2):  # the first run also imports the task
        outcome = attempt(f"end{kind}", how)
        assert outcome.verb == verb
        assert tells in (outcome.result or outcome.data or "")
        assert outcome.delay > 0 or verb in (Verb.SUCCEED, Verb.FAIL)


@BOTH
def test_a_handler_finds_its_job_and_only_its_own(attempt: Run, kind: str) -> None:
    job_id, claim = json.loads(attempt(f"end{kind}", "current").result or "")
    assert claim == 1
    word, number, fence, same = json.loads(attempt(f"told{kind}", "hello").result or "")
    assert (word, number, fence, same) == ("hello", 1, [job_id + 1, 1], True)
    assert current_job() is None


@BOTH
def test_receivers_hear_of_a_start_before_the_handler(attempt: Run, kind: str) -> None:
    heard: list[Any] = []

    def hear(sender: Any, task_result: Any, **kwargs: Any) -> None:
        heard.append((sender, task_result.task.module_path, task_result.status.name))

    compat.task_started.connect(hear)
    try:
        attempt(f"end{kind}", "return")
    finally:
        compat.task_started.disconnect(hear)
    backend = type(compat.task_backends["default"])
    assert heard == [(backend, f"{HERE}.end{kind}", "RUNNING")]


@BOTH
def test_where_nobody_listens_nothing_is_announced(
    attempt: Run, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "heard", lambda signal: False)
    monkeypatch.setattr(compat, "announce", None)
    assert attempt(f"end{kind}", "return").verb == Verb.SUCCEED


@BOTH
def test_a_transaction_left_open_fails_the_attempt(attempt: Run, kind: str) -> None:
    outcome = attempt(f"open_transaction{kind}")
    assert outcome.error is not None
    assert outcome.error["class"] == "django_relay.hygiene.TransactionLeftOpen"
    assert "'default'" in outcome.error["message"]


@BOTH
def test_a_session_that_was_changed_is_not_kept(attempt: Run, kind: str, stage: Stage) -> None:
    assert attempt(f"change_the_session{kind}").verb == Verb.SUCCEED
    count = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SET statement_timeout = 7654'"
    # The server takes a moment to see that a session was closed.
    wait_until(lambda: stage.value(count) == 0, 10, what="the session closed")


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"args": '{"a": 1}'}, "not a list and an object"),
        ({"kwargs": "[1]"}, "not a list and an object"),
        ({"task": f"{HERE}.nothing"}, "renamed or removed"),
        ({"task": "os.system"}, "no task"),
        ({"args": "[1, 2, 3]"}, "positional argument"),
    ],
)
def test_a_job_that_cannot_be_called_fails_an_attempt(
    attempt: Run, columns: dict[str, Any], why: str
) -> None:
    outcome = attempt("end", "return", **columns)
    assert outcome.verb == Verb.RETRY
    assert outcome.error is not None
    assert why in outcome.error["message"]


@pytest.mark.parametrize(
    ("metadata", "least", "most"),
    [
        (None, 0, 5 * 2),
        ('{"backoff": {"base": 100, "factor": 1, "jitter": 0, "cap": 100}}', 100, 100),
        ('"text"', 0, 5 * 2),
        ("[7]", 0, 5 * 2),
        ('{"backoff": 7}', 0, 5 * 2),
    ],
)
def test_the_wait_before_the_next_attempt_is_the_jobs_or_a_sound_one(
    attempt: Run, metadata: str | None, least: float, most: float
) -> None:
    outcome = attempt("end", "raise", metadata=metadata)
    assert least <= outcome.delay <= most


def test_whether_a_task_is_async_is_known_once_it_has_been_found() -> None:
    path = f"{HERE}.end_async"
    execution._known.pop(path, None)
    execution._coroutines.discard(path)
    assert execution.known(path) is None
    assert not execution.is_async(path)
    found = execution.find(path)
    assert found is execution.find(path) is execution.known(path)
    assert execution.is_async(path)
    assert not execution.is_async(f"{HERE}.end")


def test_an_outcome_tells_its_error_and_bounds_its_delay() -> None:
    assert outcomes.succeeded("1").error is None
    assert outcomes.snoozed(float("nan")).delay == 0
    assert outcomes.snoozed(1e300).delay == outcomes.MAX_DELAY
    untold = outcomes.untellable(ZeroDivisionError)
    assert untold.error is not None
    assert untold.error["class"] == "builtins.ZeroDivisionError"
