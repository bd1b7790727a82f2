"""Rows outside every check: no transition writes them, but somebody's own SQL or a dump may.

A check constraint added as NOT VALID lets the rows that were there before stand, and refuses every
later update of them, whatever it changes. That is what these rows meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

Session = psycopg.Connection[Any]

CHECKS = """
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE contype = 'c' AND conrelid::regclass::text LIKE 'django_relay%'
ORDER BY conname
"""

#: What an unfinished job may hold that no check allows, by what is odd about it.
JOBS = {
    "a priority beyond its bound": "priority = 32767",
    "a priority below its bound": "priority = -32767",
    "counters at their type's limit": "claims = 2147483647, failures = 2147483647, "
    "losses = 2147483647, interruptions = 2147483647",
    "counters below zero": "claims = -1, failures = -2147483648, losses = -1, interruptions = -1",
    "no attempts at all": "max_attempts = 0",
    "fewer attempts than none": "max_attempts = -2147483648",
    "attempts at the type's limit": "max_attempts = 2147483647",
    "times before the calendar": "enqueued_at = '4000-01-01 BC', started_at = '-infinity', "
    "last_attempted_at = '-infinity'",
    "times after the calendar": "enqueued_at = '20000-01-01', started_at = 'infinity', "
    "last_attempted_at = 'infinity'",
    "an end although it is unfinished": "finished_at = '2030-01-01'",
    "an end that never comes": "finished_at = 'infinity'",
}

#: What a lease may hold.
LEASES = {
    "no end": "expires_at = 'infinity'",
    "an end before the calendar": "expires_at = '-infinity', acquired_at = '4000-01-01 BC'",
    "a deadline that never comes": "deadline = 'infinity', begun_at = '-infinity'",
}


@contextmanager
def before_the_checks(session: Session) -> Iterator[None]:
    """Write rows as they may have been before there were checks; these come then, NOT VALID."""
    checks = session.execute(CHECKS).fetchall()
    for table, name, _ in checks:
        session.execute(_alter("DROP CONSTRAINT {name}", table, name))
    try:
        yield
    finally:
        for table, name, definition in checks:
            add = f"ADD CONSTRAINT {{name}} {definition.removesuffix(' NOT VALID')} NOT VALID"
            session.execute(_alter(add, table, name))


def validate(session: Session) -> None:
    """Hold all rows against the checks again; raise CheckViolation where one will not do."""
    for table, name, _ in session.execute(CHECKS).fetchall():
        session.execute(_alter("VALIDATE CONSTRAINT {name}", table, name))


def _alter(what: str, table: str, name: str) -> sql.Composed:
    statement = sql.SQL("ALTER TABLE {table} " + what)
    return statement.format(table=sql.Identifier(table), name=sql.Identifier(name))
