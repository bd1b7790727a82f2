"""What one job may not leave behind for the next, in the thread that ran it.

Connections are the handler's own; bookkeeping has others. A transaction that a handler left open or
broken is rolled back with its session, and the attempt is told: it is neither reported as done with
its writes thrown away, nor committed on its behalf.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from typing import Any

from django.db import close_old_connections, connections, reset_queries
from psycopg.pq import TransactionStatus

from .exceptions import RelayError


class TransactionLeftOpen(RelayError):
    """The handler ended without ending a transaction it had begun; it has been rolled back."""


def prepare() -> None:
    """Give the handler sessions that Django would give a request, and an empty query log."""
    reset_queries()
    close_old_connections()


def clean() -> list[str]:
    """Close what the handler left and return the aliases on which it left a transaction."""
    left = []
    for connection in connections.all(initialized_only=True):
        if _left_open(connection):
            left.append(connection.alias)
            discard(connection)
        else:
            connection.queries_log.clear()
    close_old_connections()
    return left


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
