"""Many rows in one statement, although the database may refuse one of them.

A trigger, a check or an index of the project's own can refuse a row, a value can be one that no
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


def in_halves(
    items: Sequence[T],
    move: Callable[[Sequence[T]], Answer],
    refused: Callable[[T, Exception], Answer],
) -> Iterator[Answer]:
    """Move ``items`` in one statement, or in halves of it, until the one that the database refuses
    is alone: that is left to ``refused``.

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
        yield refused(items[0], cause)
        return
    half = len(items) // 2
    yield from in_halves(items[:half], move, refused)
    yield from in_halves(items[half:], move, refused)
