"""Handlers whose outcomes are hard to store, and one that tells what it was given."""

from __future__ import annotations

import hashlib
import linecache
import math
from typing import Any

from django_relay import task

from . import ledger
from .tasks import SOON

#: What no text of PostgreSQL can hold.
SPOILT = "a NUL \x00 and half of a pair \ud800"
LARGE = 20_000_000
CAUSES = 3_000


def _named(name: str) -> type[Exception]:
    made = type("Spoilt", (Exception,), {})
    made.__qualname__ = name
    return made


def _raise_from_a_spoilt_line() -> None:
    """Fail in code whose source, as tracebacks show it, holds what cannot be stored."""
    source = f"raise ValueError('by a line')  # {SPOILT}\n"
    linecache.cache["<spoilt>"] = (len(source), None, [source], "<spoilt>")
    exec(compile("raise ValueError('by a line')", "<spoilt>", "exec"))


def _raise_with_causes(text: str, number: int) -> None:
    cause: Exception | None = None
    for each in range(number):
        try:
            raise ValueError(f"cause {each}{text}") from cause
        except ValueError as error:
            cause = error
    raise RuntimeError("the last") from cause


def _recurse(depth: int) -> int:
    return _recurse(depth + 1) + 1


@task(max_attempts=2, backoff=SOON)
def raise_spoilt(how: str) -> None:
    """Raise what is hard to store."""
    ledger.write("begin")
    if how == "text":
        raise ValueError(SPOILT)
    if how == "class name":
        raise _named(SPOILT)("by its name")
    if how == "source line":
        _raise_from_a_spoilt_line()
    if how == "size":
        raise ValueError(f"the beginning {'x' * LARGE} the end")
    if how == "causes":
        _raise_with_causes("", CAUSES)
    if how == "causes and size":
        _raise_with_causes("x" * 1_000_000, 100)
    if how == "group":
        raise ExceptionGroup("several", [ValueError(SPOILT), ValueError("x" * LARGE)])
    if how == "note":
        error = ValueError("with a note")
        error.add_note(SPOILT)
        raise error
    _recurse(0)


def _itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(2_000):
        value = [value]
    return value


@task(max_attempts=2, backoff=SOON)
def return_spoilt(how: str) -> Any:
    """Return what JSON or PostgreSQL cannot hold."""
    ledger.write("begin")
    from django.contrib.auth.models import Group

    return {
        "NaN": lambda: math.nan,
        "infinity": lambda: [math.inf],
        "NUL": lambda: "\x00",
        "half of a pair": lambda: {"\ud800": 1},
        "set": lambda: {1},
        "bytes": lambda: b"raw",
        "model": lambda: Group(pk=1, name="of nobody"),
        "itself": _itself,
        "keys": lambda: {(1, 2): 3},
        "depth": _deep,
        "size": lambda: "x" * LARGE,
        "digits": lambda: 10**5_000,
    }[how]()


def told(value: Any) -> list[str]:
    """Tell a value's type, and its whole representation by a digest."""
    return [type(value).__name__, hashlib.sha256(repr(value).encode()).hexdigest()]


@task
def tell(value: Any, *, named: Any) -> list[list[str]]:
    """Tell what came here."""
    ledger.write("begin")
    return [told(value), told(named)]
