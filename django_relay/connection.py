"""The bookkeeping connection: a PostgreSQL session that handlers never see.

Bounded: connecting and a statement end in an error after ``patience``, and soon after that an
answer which a silent network keeps back is waited for no more, if ``unstick`` is called meanwhile.
Pinned: READ COMMITTED and read-write, whatever the role's defaults say; a server or a database that
is read-only is obeyed. Dropped: an error that is not about a value costs the session, and the next
use opens a fresh one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
from django.db import connections
from psycopg import sql

# Whether the session's default isolation is not the one needed; whether the role would have it
# read-only (where the whole server or database is, somebody is moving it: writing on would be lost,
# and so would the attempts of jobs whose handlers then cannot write); and whether what has
# committed could be lost, or a claim might be made twice under one number.
DEFAULTS = """
SELECT current_setting('default_transaction_isolation') <> 'read committed', EXISTS (
  SELECT 1 FROM pg_settings
  WHERE name = 'default_transaction_read_only' AND setting = 'on'
    AND source NOT IN ('configuration file', 'command line', 'environment variable', 'database')
), current_setting('synchronous_commit') = 'off'
"""

# A plan made on empty tables would scan them for ever, so statements are planned anew each time;
# and by an index where there is one: statistics may be of a time when most jobs were those sought.
PLANNED_EACH_TIME = {"plan_cache_mode": "force_custom_plan", "enable_seqscan": "off"}
# At small batches that is half of the server's work. The claim and the ending find their rows one
# by one and by an index; where nothing else is possible, a plan stays right whenever it was made.
PLANNED_ONCE = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}

#: Errors that mean the tables are not there (yet): undefined table or column, missing schema.
NOT_MIGRATED = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.InvalidSchemaName,
)


#: How long after its patience, in seconds, a statement's error may still be under way.
LATE = 1.0


#: Classes of SQLSTATE that tell of the session, the server or the tables. All others tell of the
#: rows that a statement writes.
ELSEWHERE = frozenset(
    [
        *("00", "01", "02", "03", "08", "0A", "25", "26", "28", "2D", "3B", "3D", "3F"),
        *("40", "42", "53", "55", "57", "58", "72", "F0", "HV", "XX"),
    ]
)


#: Where the server raises that a row may not be written under row-level security.
POLICY = "ExecWithCheckOptions"

#: Those of them that pass by themselves, wherever they were raised.
PASSING = frozenset(["08", "25", "40", "53", "55", "57", "58"])


def is_about_rows(error: BaseException) -> bool:
    """Whether the database rejected what a statement would write, so that others may still pass.

    ``error`` is psycopg's or Django's; one without an SQLSTATE tells of a lost connection. What a
    project's own function raises is about a row also where it looks like the server's own.
    """
    told = error if isinstance(error, psycopg.Error) else error.__cause__
    if not isinstance(told, psycopg.Error) or told.sqlstate is None:
        return False
    kind = told.sqlstate[:2]
    # Of a policy's check the server itself says no more than that a privilege is missing.
    theirs = "PL/" in (told.diag.context or "") or told.diag.source_function == POLICY
    return kind not in ELSEWHERE or (theirs and kind not in PASSING)


class _Asking:
    """Says when it asks, so that each statement of a transaction has the whole patience."""

    def __init__(self, session: psycopg.Connection[Any], asking: Callable[[], None]) -> None:
        super().__init__(session)  # type: ignore[call-arg]
        self._asking = asking

    def execute(self, query: Any, params: Any = None, **kwargs: Any) -> Any:
        self._asking()
        if params is None:
            # Of what has no parameter, force_custom_plan makes a generic plan all the same.
            kwargs["prepare"] = False
        return super().execute(query, params, **kwargs)  # type: ignore[misc]


class _Cursor(_Asking, psycopg.Cursor[Any]):
    """For statements with named values."""


class _NumberedCursor(_Asking, psycopg.RawCursor[Any]):
    """For statements with numbered ones, which psycopg sends as they are."""


class Bookkeeping:
    """A session for the package's own statements, in autocommit, opened when first used.

    ``patience`` is in seconds: the longest that a connection attempt, a statement or an unanswered
    packet may take. With ``pooled`` nothing is set on the session, so that a transaction pooler may
    stand between. One that is ``hot`` sends few statements very often. One thread at a time uses
    it; ``unstick`` alone may be called from another.
    """

    def __init__(
        self, database: str, *, pooled: bool, patience: float, name: str, hot: bool = False
    ) -> None:
        self.database = database
        self._pooled = pooled
        self._hot = hot
        self._patience = patience
        self._name = name
        self._session: psycopg.Connection[Any] | None = None
        #: What begins a transaction that pins the session, where its defaults will not do.
        self._begin: str | None = None
        self._asked: float | None = None

    @contextlib.contextmanager
    def cursor(self, *, numbered: bool = False) -> Iterator[psycopg.Cursor[Any]]:
        """Open a cursor; what runs inside is one transaction where the role's defaults need it. It
        takes values by name, or ``numbered`` ones.

        Raises psycopg.Error. Unless it is about the rows (``is_about_rows``) the session is
        dropped, because one that says it is read-only, shutting down or broken stays so.
        """
        self._asking()
        try:
            session = self.session()
            kind = _NumberedCursor if numbered else _Cursor
            with kind(session, self._asking) as cursor:
                if self._begin is None:
                    yield cursor
                    return
                cursor.execute(self._begin)
                yield cursor
                cursor.execute("COMMIT")
        except psycopg.Error as error:
            if not is_about_rows(error) or self._begin:
                self.close()
            raise
        except BaseException:
            if self._begin:  # or its transaction would stay open
                self.close()
            raise
        finally:
            self._asked = None

    def _asking(self) -> None:
        self._asked = time.monotonic()

    def session(self) -> psycopg.Connection[Any]:
        """Return the open session, opening it where there is none.

        What is asked of it outside of ``cursor`` has no bound but the server's.
        """
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
        """Break a statement that has had no answer for longer than its patience.

        The server's own time-out cannot reach through a network that has gone silent. Safe from any
        thread: the waiting one gets an OperationalError.
        """
        asked, session = self._asked, self._session
        if session is None or asked is None or time.monotonic() - asked < self._patience + LATE:
            return
        with contextlib.suppress(OSError, psycopg.Error):
            twin = socket.socket(fileno=os.dup(session.fileno()))
            with twin:
                twin.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Call ``unstick`` each second from a thread, where there is no loop that does."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(1.0):
                self.unstick()

        threading.Thread(target=watch, name="relay-watch", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _open(self) -> psycopg.Connection[Any]:
        django = connections[self.database]
        params = django.get_connection_params()
        for key in ("context", "cursor_factory", "server_side_binding"):
            params.pop(key, None)
        params |= {
            "connect_timeout": max(2, round(self._patience)),
            "keepalives": 1,
            "keepalives_idle": max(1, round(self._patience)),
            "keepalives_interval": 1,
            "keepalives_count": 3,
            "tcp_user_timeout": round(self._patience * 1000),
            "prepare_threshold": None,
        }
        if not self._pooled:
            # Not behind a pooler, which would SET even the name with each change of client.
            params |= {
                "application_name": f"django_relay {self._name}",
                "options": self._options(params.get("options")),
                "prepare_threshold": 3,
            }
        session = psycopg.connect(autocommit=True, **params)
        # Known to ``unstick`` from here on: the network may fall silent after the login too.
        if self._asked is not None:
            self._asking()
        self._session = session
        try:
            self._begin = self._adapt(session, django.settings_dict["OPTIONS"].get("assume_role"))
        except BaseException:
            self.close()
            raise
        return session

    def _adapt(self, session: psycopg.Connection[Any], role: str | None) -> str | None:
        """Set what must be set, and return what begins a transaction where that is not enough."""
        if role:
            session.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
        style = session.info.parameter_status("DateStyle") or "ISO"
        if not style.startswith("ISO"):  # pooled: else it has been set
            raise psycopg.NotSupportedError(
                f"DateStyle is {style}, and behind a pooler nothing can be set: give the role "
                "the DateStyle ISO"
            )
        found = session.execute(DEFAULTS).fetchone()
        stricter, read_only, careless = found or (False, False, False)
        if careless and not self._pooled:
            session.execute("SET synchronous_commit = on")
        begin = "BEGIN ISOLATION LEVEL READ COMMITTED" + (" READ WRITE" if read_only else "")
        return begin if stricter or read_only else None

    def _options(self, given: str | None) -> str:
        settings = {
            **(PLANNED_ONCE if self._hot else PLANNED_EACH_TIME),
            "jit": "off",
            "timezone": "UTC",
            "datestyle": "ISO",
            "statement_timeout": round(self._patience * 1000),
            "lock_timeout": 0,
            "idle_session_timeout": 0,
            "idle_in_transaction_session_timeout": round(self._patience * 1000),
        }
        return " ".join([given or "", *(f"-c {key}={value}" for key, value in settings.items())])
