"""What a transition needs of a connection: a cursor. Django's connection and ours both have it.

``bound`` opens one that sends values apart from their statement.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import psycopg
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy


class Session(Protocol):
    """A PostgreSQL session: Django's database connection, or the worker's bookkeeping one."""

    def cursor(self) -> AbstractContextManager[Any]:
        """Open a cursor with DB-API ``execute``, ``fetchone`` and ``fetchall``."""


class _Preparing(psycopg.Cursor[Any]):
    """Has the server keep the statement, so that it is parsed and planned once a session."""

    def execute(self, query: Any, params: Any = None, **kwargs: Any) -> _Preparing:
        return super().execute(query, params, **{**kwargs, "prepare": True})


@contextlib.contextmanager
def bound(connection: Session, *, prepare: bool = False) -> Iterator[Any]:
    """Open a cursor that never writes values into the text of a statement.

    Django's does, and ``pg_stat_activity`` and the logs of slow statements show that text to people
    who may not see a job's arguments. Ours sends them apart in any case. With ``prepare`` the
    server keeps the statement on the caller's session, if that is known to be ``relay_direct``:
    behind a transaction pooler another client's statement may have its name.
    """
    if isinstance(connection, ConnectionProxy):  # django.db.connection
        connection = connections[connection.alias]
    if not isinstance(connection, BaseDatabaseWrapper):
        with connection.cursor() as cursor:
            yield cursor
        return
    connection.close_if_health_check_failed()  # here, not under the cursor
    connection.ensure_connection()
    raw: Any = connection.connection
    prepare = prepare and getattr(raw, "relay_direct", False)
    given = raw.cursor_factory, raw.prepare_threshold
    try:
        raw.cursor_factory = _Preparing if prepare else psycopg.Cursor
        with connection.cursor() as cursor:
            raw.cursor_factory = given[0]
            if prepare:
                raw.prepare_threshold = 0  # Django's None would forbid it
            yield cursor
    finally:
        raw.cursor_factory, raw.prepare_threshold = given
