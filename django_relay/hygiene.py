"""What one job may not leave behind for the next, in the thread that ran it.

Connections are the handler's own; bookkeeping has others. A transaction that a handler left open or
broken is rolled back with its session, and the attempt is told: it is neither reported as done with
its writes thrown away, nor committed on its behalf.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import sys
from typing import Any

from django.db import connections
from django.db.backends.signals import connection_created
from psycopg.pq import TransactionStatus

from .exceptions import RelayError


class TransactionLeftOpen(RelayError):
    """The handler ended without ending a transaction it had begun; it has been rolled back."""


#: Statements that leave something on a session for whoever has it next: settings, locks,
#: temporary tables, cursors. One too many costs a new session, no more.
_LASTING = re.compile(
    r"\A\s*(?:SET|RESET|LISTEN|PREPARE|DECLARE|LOAD)\b|\bTEMP(?:ORARY)?\b|\bset_config\b"
    r"|\bpg_(?:try_)?advisory_lock",
    re.IGNORECASE,
)


def watch() -> None:
    """From now on note which sessions of this process are changed, by SQL that Django sends.

    What a handler does with the driver's own connection is not seen.
    """
    connection_created.connect(_watch, dispatch_uid="django_relay.hygiene")


def _watch(sender: Any, connection: Any, **kwargs: Any) -> None:
    if _note not in connection.execute_wrappers:
        connection.execute_wrappers.append(_note)


def _note(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
    if not isinstance(sql, str) or _LASTING.search(sql):
        context["connection"].relay_changed = True
    return execute(sql, params, many, context)


def prepare() -> None:
    """Give the handler sessions that Django would give a request, and an empty query log."""
    for connection in connections.all(initialized_only=True):
        _renew(connection)


def clean() -> list[str]:
    """Close what the handler left and return the aliases on which it left a transaction."""
    left = []
    for connection in connections.all(initialized_only=True):
        if _left_open(connection):
            left.append(connection.alias)
            discard(connection)
        elif getattr(connection, "relay_changed", False):
            discard(connection)
        else:
            _renew(connection)
    return left


def _renew(connection: Any) -> None:
    connection.queries_log.clear()
    connection.close_if_unusable_or_obsolete()


def leave_thread() -> list[str]:
    """``clean``, and close every session, because the thread itself ends with the attempt."""
    left = clean()
    connections.close_all()
    return left


def discard(connection: Any) -> None:
    """Drop a session whose state cannot be trusted, with the object that mirrors it."""
    raw = connection.connection
    del connections[connection.alias]
    if raw is not None:
        with contextlib.suppress(Exception):
            raw.close()
        # Where Django pools sessions, the pool must have the closed one back to open another.
        with contextlib.suppress(Exception):
            connection.close()


def _left_open(connection: Any) -> bool:
    if connection.connection is None:
        # A handler that closed its session inside a transaction has left the block in any case.
        return bool(connection.in_atomic_block)
    if connection.in_atomic_block or not connection.autocommit:
        return True
    info = getattr(connection.connection, "info", None)
    status = getattr(info, "transaction_status", TransactionStatus.IDLE)
    return status not in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN)


def end_if_forked(pid: int) -> None:
    """End this process if it is a copy that a handler forked and let return.

    It holds copies of every session and lock of the worker; nothing here may touch them.
    """
    if os.getpid() != pid:
        gc.disable()
        sys.stderr.write("django_relay: a process that a task forked has returned; it ends here\n")
        sys.stderr.flush()
        os._exit(70)
