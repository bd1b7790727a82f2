"""Many rows in one statement, although the database may reject one of them.

A trigger, a check or an index of the project's own can reject a row, a value can be one that no
database stores, and the whole statement fails with it. Then it is sent again in halves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import psycopg
from django.db import DataError

from django_relay.connection import is_about_rows

T = TypeVar("T")
Answer = TypeVar("Answer")


def is_about_data(error: BaseException) -> bool:
    """Tell errors about a row or a value from errors of the database. The driver itself refuses a
    NUL or a lone surrogate."""
    return isinstance(error, DataError | psycopg.DataError | UnicodeError) or is_about_rows(error)


def said(error: BaseException) -> str:
    """Name what the database rejected a row with. Its message may hold values of the row."""
    told = error if isinstance(error, psycopg.Error) else error.__cause__ or error
    words = [type(told).__name__]
    if isinstance(told, psycopg.Error):
        words += [told.diag.constraint_name or ""]
        # The context of an SQL function is its statement; of others it is a name and a line.
        words += [line for line in (told.diag.context or "").split("\n")[:1] if line[:3] == "PL/"]
    return ", ".join(filter(None, words))


def in_halves(
    items: Sequence[T],
    move: Callable[[Sequence[T]], Answer],
    rejected: Callable[[T, Exception], Answer],
) -> Iterator[Answer]:
    """Move ``items`` in one statement, or in halves of it, until the one that the database rejects
    is alone: that is left to ``rejected``.

    Yields each answer as it comes: what it tells of has been done, whatever the next one raises.
    """
    try:
        answer = move(items)
    except Exception as error:
        if not items or not is_about_data(error):
            raise
        cause = error
    else:
        yield answer
        return
    if len(items) == 1:
        yield rejected(items[0], cause)
        return
    half = len(items) // 2
    yield from in_halves(items[:half], move, rejected)
    yield from in_halves(items[half:], move, rejected)
