"""Triggers of a project's own that refuse rows, as a rule of somebody's business might."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

TRIGGER = """
CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
CREATE TRIGGER {name} BEFORE {doing} ON django_relay_{table} FOR EACH ROW
  WHEN ({when}) EXECUTE FUNCTION refuse();
"""

Refuse = Callable[..., None]


@contextmanager
def triggers(execute: Callable[[Any], object]) -> Iterator[Refuse]:
    """Yield ``refuse(when, table="job", doing="UPDATE")``; no trigger is left afterwards."""
    names: list[str] = []

    def refuse(when: str, table: str = "job", doing: str = "UPDATE") -> None:
        names.append(f"refuse_{len(names)}")
        execute(TRIGGER.format(name=names[-1], table=table, doing=doing, when=when))

    try:
        yield refuse
    finally:
        execute("DROP FUNCTION IF EXISTS refuse CASCADE")
