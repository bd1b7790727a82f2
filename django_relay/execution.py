"""Run one attempt and make an Outcome of whatever it does. Writes nothing.

The handler runs in an empty context: default language and time zone, no context variables of the
job before it. Whatever it raises, returns or leaves behind becomes a value; ``conclude`` receives
it, for a failure inside the except block, so that a signal's receivers still see the exception.
"""

from __future__ import annotations

import contextvars
import json
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async

from . import compat, context, hygiene, outcomes, results, storable
from .backoff import Backoff
from .exceptions import Fail, Snooze
from .outcomes import Outcome
from .task import resolve
from .transitions import Claimed

Conclude = Callable[[Outcome], None]


class Attempt(NamedTuple):
    """One claim of a job about to run: the row, its worker's name, what may stop it, its past."""

    job: Claimed
    backend: Any
    worker: str
    control: context.Control
    past: results.Past
    pid: int


#: The tasks found so far, by path, and which of them are coroutine functions. Importing is for the
#: first job of each.
_known: dict[str, Any] = {}
_coroutines: set[str] = set()


def find(path: str) -> Any:
    """Return the task at a dotted path; raise TaskNotFound where there is none."""
    if path not in _known:
        task = resolve(path)
        if iscoroutinefunction(task.func):
            _coroutines.add(path)
        _known[path] = task
    return _known[path]


def known(path: str) -> Any | None:
    """Return the task at ``path`` if a job of it has been run here."""
    return _known.get(path)


def is_async(path: str) -> bool:
    """Whether the task at ``path`` is known by now to be a coroutine function."""
    return path in _coroutines


def execute(attempt: Attempt, conclude: Conclude) -> None:
    """Run a sync attempt in this thread and call ``conclude`` exactly once."""
    contextvars.Context().run(_execute, attempt, conclude)


def _execute(attempt: Attempt, conclude: Conclude) -> None:
    try:
        hygiene.prepare()
        try:
            call = _prepare(attempt)
            context.enter(call.context)
            value = call.task.func(*call.args, **call.kwargs)
        finally:
            hygiene.end_if_forked(attempt.pid)
            context.leave()
            left = hygiene.clean()
        outcome = _succeeded(value, left)
    except BaseException as error:
        hygiene.end_if_forked(attempt.pid)
        conclude(_outcome_of(error, attempt))
    else:
        conclude(outcome)


async def execute_async(attempt: Attempt, conclude: Conclude) -> None:
    """Run an async attempt on this loop and call ``conclude`` exactly once.

    Its synchronous parts share one thread that lasts as long as the attempt, as in a request.
    """
    async with ThreadSensitiveContext() as threads:
        try:
            try:
                # A thread only for what may block: a first import, receivers of others.
                blocking = attempt.job.task not in _known or compat.foreign(compat.task_started)
                call = await sync_to_async(_prepare)(attempt) if blocking else _prepare(attempt)
                context.enter(call.context)
                value = await call.task.func(*call.args, **call.kwargs)
            finally:
                hygiene.end_if_forked(attempt.pid)
                context.leave()
                left = await sync_to_async(hygiene.leave_thread)() if _has_thread(threads) else []
            outcome = _succeeded(value, left)
        except BaseException as error:
            hygiene.end_if_forked(attempt.pid)
            await sync_to_async(conclude)(_outcome_of(error, attempt))
        else:
            conclude(outcome)


def _has_thread(threads: ThreadSensitiveContext) -> bool:
    return threads in getattr(SyncToAsync, "context_to_thread_executor", {threads: None})


class _Call(NamedTuple):
    task: Any
    context: context.Once
    args: list[Any]
    kwargs: dict[str, Any]


def _prepare(attempt: Attempt) -> _Call:
    """Find the task, tell receivers that it starts, and make ready what it is called with."""
    job = attempt.job
    task = find(job.task)
    args, kwargs = json.loads(job.args), json.loads(job.kwargs)
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise TypeError("The stored arguments are not a list and an object.")
    given = context.Once(lambda: _context(task, attempt))
    if compat.heard(compat.task_started):
        sender = type(attempt.backend)
        compat.announce(compat.task_started, sender, task_result=given().task_result)
    return _Call(task, given, [given(), *args] if task.takes_context else args, kwargs)


def _context(task: Any, attempt: Attempt) -> context.RelayContext:
    job = attempt.job
    return context.RelayContext(
        task_result=results.running(attempt.backend.alias, task, job, attempt.past, attempt.worker),
        max_attempts=job.max_attempts,
        fence=(job.job_id, job.claim),
        control=attempt.control,
    )


def _succeeded(value: Any, left: list[str]) -> Outcome:
    if left:
        raise hygiene.TransactionLeftOpen(
            f"The task left a transaction open on {', '.join(map(repr, left))}; it was rolled back."
            " End every atomic block and BEGIN before returning."
        )
    return outcomes.succeeded(storable.result(value))


def _outcome_of(error: BaseException, attempt: Attempt) -> Outcome:
    """Describe what was raised. Cannot raise, whatever the exception does when it is looked at."""
    kind = type(error)
    try:
        if issubclass(kind, Snooze):
            return outcomes.snoozed(error.delay.total_seconds())  # type: ignore[attr-defined]
        described = storable.error(error)
        if issubclass(kind, Fail):
            return outcomes.failed(described)
        return outcomes.raised(described, delay=_delay(attempt))
    except BaseException:
        return outcomes.untellable(kind)


def _delay(attempt: Attempt) -> float:
    """How long until the next attempt, in seconds; the default where the job says nonsense."""
    job = attempt.job
    try:
        metadata = None if job.metadata is None else json.loads(job.metadata)
        backoff: Backoff = attempt.backend.backoff_of(known(job.task), job.task, metadata)
    except (AttributeError, TypeError, ValueError):
        backoff = Backoff()
    return backoff.delay(job.failures + 1).total_seconds()
