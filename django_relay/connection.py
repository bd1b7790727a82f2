"""The bookkeeping connection: a PostgreSQL session that handlers never see.

Bounded: connecting, a statement and a silent network all end in an error after ``patience``.
Pinned: READ COMMITTED and read-write, whatever the role's defaults say. Dropped: an error that is
not about a value costs the session, and the next use opens a fresh one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import psycopg
from django.db import connections
from psycopg import sql

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"

DEFAULTS = """
SELECT current_setting('default_transaction_isolation'),
       current_setting('default_transaction_read_only')
"""

#: Errors that mean the tables are not there (yet): undefined table or column, missing schema.
NOT_MIGRATED = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.InvalidSchemaName,
)


class Bookkeeping:
    """A session for the package's own statements, in autocommit, opened when first used.

    ``patience`` is in seconds: the longest that a connection attempt, a statement or an unanswered
    packet may take. With ``pooled`` nothing is set on the session, so that a transaction pooler may
    stand between. One thread at a time uses it; ``unstick`` alone may be called from another.
    """

    def __init__(self, database: str, *, pooled: bool, patience: float, name: str) -> None:
        self.database = database
        self._pooled = pooled
        self._patience = patience
        self._name = name
        self._session: psycopg.Connection[Any] | None = None
        self._pinned = False
        self._busy_since: float | None = None

    @contextlib.contextmanager
    def cursor(self) -> Iterator[psycopg.Cursor[Any]]:
        """Open a cursor; what runs inside is one transaction where the role's defaults need it.

        Raises psycopg.Error. Unless it is about a value (classes 22, 23 and 54) the session is
        dropped, because one that says it is read-only, shutting down or broken stays so.
        """
        self._busy_since = time.monotonic()
        try:
            session = self.session()
            with session.cursor() as cursor:
                if not self._pinned:
                    yield cursor
                    return
                cursor.execute(BEGIN)
                yield cursor
                cursor.execute("COMMIT")
        except psycopg.Error as error:
            if (error.sqlstate or "")[:2] not in ("22", "23", "54") or self._pinned:
                self.close()
            raise
        except BaseException:
            if self._pinned:  # or its transaction would stay open
                self.close()
            raise
        finally:
            self._busy_since = None

    def session(self) -> psycopg.Connection[Any]:
        """Return the open session, opening it where there is none."""
        if self._session is None or self._session.closed:
            self._session = self._open()
        return self._session

    def close(self) -> None:
        """Drop the session; the next use opens another."""
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(psycopg.Error):
                session.close()

    def unstick(self) -> None:
        """Break a statement that has had no answer for twice its patience.

        The server's own time-out cannot reach through a network that has gone silent. Safe from any
        thread: the waiting one gets an OperationalError.
        """
        since, session = self._busy_since, self._session
        if session is None or since is None or time.monotonic() - since < 2 * self._patience:
            return
        with contextlib.suppress(OSError, psycopg.Error):
            twin = socket.socket(fileno=os.dup(session.fileno()))
            with twin:
                twin.shutdown(socket.SHUT_RDWR)

    def _open(self) -> psycopg.Connection[Any]:
        django = connections[self.database]
        params = django.get_connection_params()
        for key in ("context", "cursor_factory", "server_side_binding"):
            params.pop(key, None)
        params |= {
            "application_name": f"django_relay {self._name}",
            "connect_timeout": max(2, round(self._patience)),
            "keepalives": 1,
            "keepalives_idle": max(1, round(self._patience)),
            "keepalives_interval": 1,
            "keepalives_count": 3,
            "tcp_user_timeout": round(self._patience * 1000),
            "prepare_threshold": None,
        }
        if not self._pooled:
            params |= {"options": self._options(params.get("options")), "prepare_threshold": 3}
        session = psycopg.connect(autocommit=True, **params)
        try:
            role = django.settings_dict["OPTIONS"].get("assume_role")
            if role:
                session.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
            row = session.execute(DEFAULTS).fetchone()
        except BaseException:
            session.close()
            raise
        self._pinned = row != ("read committed", "off")
        return session

    def _options(self, given: str | None) -> str:
        # Prepared statements with a plan made for the values at hand: a generic plan made on empty
        # tables would scan them for ever.
        settings = {
            "plan_cache_mode": "force_custom_plan",
            "timezone": "UTC",
            "statement_timeout": round(self._patience * 1000),
            "lock_timeout": 0,
            "idle_session_timeout": 0,
            "idle_in_transaction_session_timeout": round(self._patience * 1000),
        }
        return " ".join([given or "", *(f"-c {key}={value}" for key, value in settings.items())])
