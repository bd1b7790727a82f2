"""Tasks that tests enqueue and run. Each is small and says by its name what it does."""

from __future__ import annotations

from datetime import timedelta
from functools import wraps
from typing import Any

from django_relay import Backoff, RelayContext, task
from django_relay.compat import DEFAULT_TASK_PRIORITY, Task


@task
def echo(value: Any = None) -> Any:
    return value


@task
async def async_echo(value: Any = None) -> Any:
    return value


@task()
def anything(*args: Any, **kwargs: Any) -> None:
    """Takes whatever it is called with."""


@task(priority=5, max_attempts=7, backoff=Backoff(base=timedelta(seconds=2)))
def stubborn(what: str, *, times: int = 1) -> None:
    """Has a policy of its own."""


@task(max_attempts=None)
def tireless() -> None:
    """Is tried without end."""


@task(takes_context=True)
def told(context: RelayContext, word: str) -> str:
    """Takes its context."""
    return f"{word} {context.attempt}"


def supplied(func: Any) -> Any:
    """Give a function its first argument, as decorators do that open a connection or a file."""

    @wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return func("supplied", *args, **kwargs)

    return wrapper


@task
@supplied
def helped(by: str, value: int) -> tuple[str, int]:
    return by, value


def plain(value: Any = None) -> Any:
    """A task of the framework's own class, as an app makes that knows nothing of us."""
    return value


plain = Task(  # type: ignore[assignment]
    func=plain,
    priority=DEFAULT_TASK_PRIORITY,
    backend="default",
    queue_name="default",
    run_after=None,
)


class Shelf:
    """A task may be a function of a class."""

    @staticmethod
    @task
    def kept() -> str:
        return "kept"


def not_a_task() -> None:
    """A plain function, which no worker may call."""
