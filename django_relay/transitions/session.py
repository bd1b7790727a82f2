"""What a transition needs of a connection: a cursor. Django's connection and ours both have it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol


class Session(Protocol):
    """A PostgreSQL session: Django's database connection, or the worker's bookkeeping one."""

    def cursor(self) -> AbstractContextManager[Any]:
        """Open a cursor with DB-API ``execute``, ``fetchone`` and ``fetchall``."""
