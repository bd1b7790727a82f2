"""Triggers of a project's own that reject rows, as a rule of somebody's business might."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

TRIGGER = """
CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN {does}; END $$;
CREATE TRIGGER {name} BEFORE {doing} ON django_relay_{table} FOR EACH ROW
  WHEN ({when}) EXECUTE FUNCTION {name}();
"""

RAISE = "RAISE EXCEPTION 'not this one: %', NEW"
#: Nothing is said, and nothing is done.
SKIP = "RETURN NULL"


class Reject:
    """Makes triggers on one of our tables; ``no_more`` drops them all."""

    def __init__(self, execute: Callable[[Any], object]) -> None:
        self._execute = execute
        self._names: list[str] = []

    def __call__(
        self, when: str, table: str = "job", *, doing: str = "UPDATE", does: str = RAISE
    ) -> None:
        self._names.append(f"reject_{len(self._names)}")
        trigger = TRIGGER.format(
            name=self._names[-1], table=table, doing=doing, when=when, does=does
        )
        self._execute(trigger)

    def no_more(self) -> None:
        while self._names:
            self._execute(f"DROP FUNCTION {self._names.pop()} CASCADE")


@contextmanager
def triggers(execute: Callable[[Any], object]) -> Iterator[Reject]:
    """Yield what makes them; none is left afterwards."""
    reject = Reject(execute)
    try:
        yield reject
    finally:
        reject.no_more()
