"""What is refused before anything is stored: tasks, times and calls that no worker could run.

Every refusal names what is wrong and what would do. The stored form of arguments is ``storable``'s.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from django.utils import timezone

from . import storable
from .compat import InvalidTask, Task
from .task import registered

MAX_PATH = 255
#: A job may be put off by at most this, and to at most this year: well inside the calendar.
MAX_DELAY = timedelta(days=36_500)
YEARS = range(1900, 9999)

Call = tuple[Sequence[Any], Mapping[str, Any]]


def calls_of(given: Iterable[Any]) -> list[Call]:
    """Read what ``enqueue_many`` is given: a list or tuple of arguments a call, or a mapping."""
    calls: list[Call] = []
    for number, each in enumerate(given):
        if isinstance(each, Mapping):
            calls.append(((), each))
        elif isinstance(each, list | tuple):
            calls.append((each, {}))
        else:
            raise TypeError(
                f"calls[{number}] is of type {type(each).__name__}. Give the arguments of each as "
                "a list or tuple, or all of them by name as a mapping."
            )
    return calls


def encoded(
    task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, which: str = ""
) -> tuple[str, str]:
    """Return a call's arguments as JSON texts; raise TypeError or ValueError naming the one that
    cannot be stored, or that the task's function would refuse. ``which`` tells the call."""
    try:
        texts = storable.arguments(args, kwargs)
        check_call(task, args, kwargs)
    except (TypeError, ValueError) as reason:
        raise type(reason)(f"{task.module_path}: {which}{reason}") from None
    return texts


def aware(run_after: Any) -> Any:
    """Give a naive datetime, allowed where USE_TZ is off, the time zone that it means."""
    if isinstance(run_after, datetime) and timezone.is_naive(run_after):
        return timezone.make_aware(run_after, timezone.get_default_timezone())
    return run_after


def check_priority(priority: Any) -> None:
    whole = isinstance(priority, int) or (isinstance(priority, float) and priority.is_integer())
    if isinstance(priority, bool) or not whole:
        raise InvalidTask("priority must be a whole number between -100 and 100.")


def check_run_after(run_after: Any) -> None:
    if isinstance(run_after, timedelta):
        if not timedelta(0) <= run_after <= MAX_DELAY:
            raise InvalidTask(
                f"run_after, as a timedelta, must lie between nothing and {MAX_DELAY.days} days, "
                f"and is {run_after}."
            )
    elif isinstance(run_after, datetime):
        if run_after.year not in YEARS:
            raise InvalidTask(
                f"run_after must lie in the years {YEARS.start} to {YEARS.stop - 1}, and is in "
                f"{run_after.year}."
            )
    elif run_after is not None:
        raise InvalidTask(
            f"run_after must be a datetime or a timedelta, not {type(run_after).__name__}."
        )


def check_path(task: Task[..., Any], path: str) -> Task[..., Any]:
    """Refuse what no worker could find again; return the task that stands at the path."""
    if len(path) > MAX_PATH:
        raise InvalidTask(f"The task's path {path} is longer than {MAX_PATH} characters.")
    if task.func.__module__ == "__main__":
        raise InvalidTask(f"{path} is defined in a script; move it into a module of an app.")
    own = registered(task.func)
    if own is None:
        raise InvalidTask(
            f"A worker would find no task at {path}. Keep the task under its function's own name, "
            "as @task does."
        )
    return own


@lru_cache(maxsize=4096)
def _signature(func: Callable[..., Any]) -> inspect.Signature | None:
    try:
        # What is called, not what it wraps: a decorator may supply arguments.
        return inspect.signature(func, follow_wrapped=False)
    except (TypeError, ValueError):
        return None


def check_call(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise TypeError for a call that the function would refuse: now, not in the worker."""
    _check_shape(task.func, len(args) + task.takes_context, tuple(kwargs))


@lru_cache(maxsize=4096)
def _check_shape(func: Callable[..., Any], count: int, names: tuple[str, ...]) -> None:
    """Whether a call fits depends on how many arguments it has and on their names alone."""
    signature = _signature(func)
    if signature is not None:
        signature.bind(*[None] * count, **dict.fromkeys(names))
