"""What a transition needs of a connection: a cursor. Django's connection and ours both have it.

``bound`` opens one that sends values apart from their statement.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import psycopg


class Session(Protocol):
    """A PostgreSQL session: Django's database connection, or the worker's bookkeeping one."""

    def cursor(self) -> AbstractContextManager[Any]:
        """Open a cursor with DB-API ``execute``, ``fetchone`` and ``fetchall``."""


@contextlib.contextmanager
def bound(connection: Session) -> Iterator[Any]:
    """Open a cursor that never writes values into the text of a statement.

    Django's does, and ``pg_stat_activity`` and the logs of slow statements show that text to people
    who may not see a job's arguments. Ours sends them apart in any case.
    """
    raw = None
    if hasattr(connection, "ensure_connection"):
        connection.ensure_connection()
        raw = connection.connection  # type: ignore[attr-defined]
        given, raw.cursor_factory = raw.cursor_factory, psycopg.Cursor
    try:
        cursor = connection.cursor()
    finally:
        if raw is not None:
            raw.cursor_factory = given
    with cursor as bound:
        yield bound
