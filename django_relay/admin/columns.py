"""Columns as a page can bear them: times inside Python's calendar, JSON as a bounded text.

One odd row, written by somebody's own SQL, must not keep a page of fifty from opening. The times of
jobs and leases are kept inside by the tables themselves.
"""

from __future__ import annotations

from django.db.models import DateTimeField, F, Func, TextField

#: Characters of a JSON text that a page shows.
EXCERPT = 20_000

#: The edges of what Python can hold in any time zone; ``infinity`` lies beyond.
FIRST, LAST = "0002-01-01 00:00:00+00", "9998-12-31 00:00:00+00"

CLIPPED = (
    f"CASE WHEN {{0}} < timestamptz '{FIRST}' THEN timestamptz '{FIRST}' "
    f"WHEN {{0}} > timestamptz '{LAST}' THEN timestamptz '{LAST}' ELSE {{0}} END"
)


class Clipped(Func):
    """A time, brought to the calendar's edge where it lies beyond."""

    template = CLIPPED.format("%(expressions)s")
    arity = 1

    def __init__(self, name: str) -> None:
        super().__init__(F(name), output_field=DateTimeField())


class Excerpt(Func):
    """The beginning of a JSON value's text, one character longer than is shown."""

    template = f"left((%(expressions)s)::text, {EXCERPT + 1})"
    arity = 1

    def __init__(self, name: str) -> None:
        super().__init__(F(name), output_field=TextField(null=True))
