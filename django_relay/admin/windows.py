"""Pages of a large table by key, newest first: no OFFSET, no count, and no unbounded search.

A condition that an index serves is followed through that index. Any other is looked for in one
window of candidates after another; a page that finds less than it could hold says how far it has
looked, and its link leads on from there. So a page costs the same at ten million rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, F, Max, Min, Q, QuerySet
from django.http import QueryDict

#: Rows a page shows, and candidates it looks through for them.
SIZE, WINDOW = 50, 100_000

OLDER, NEWER = "before", "after"


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a page begins: before a key (older), after a key (newer), or at the newest row."""

    before: int | None = None
    after: int | None = None

    @classmethod
    def of(cls, query: QueryDict) -> Cursor:
        before, after = (_key(query.get(name)) for name in (OLDER, NEWER))
        return cls(before, None if before is not None else after)

    @property
    def query(self) -> Mapping[str, int | None]:
        return {OLDER: self.before, NEWER: self.after}


@dataclass(frozen=True, slots=True)
class Window:
    """A page's rows, newest first, and the cursors beside it.

    ``looked`` is the key up to which a search has looked when it found less than a page holds and
    there is more to look through; ``older`` or ``newer`` lead on from there.
    """

    rows: list[Any]
    older: Cursor | None = None
    newer: Cursor | None = None
    looked: int | None = None


def read(
    candidates: QuerySet[Any],
    search: Q,
    cursor: Cursor,
    *,
    columns: tuple[Any, ...],
    sort: bool = False,
) -> Window:
    """Read the page at ``cursor`` of those ``candidates`` that ``search`` finds.

    An index serves the candidates: in the order of their keys, or, with ``sort``, in another; then
    there are few enough to be sorted. The first column is the key.
    """
    upward = cursor.after is not None
    if upward:
        candidates = candidates.filter(pk__gt=cursor.after)
    elif cursor.before is not None:
        candidates = candidates.filter(pk__lt=cursor.before)
    edge = None
    if search and not sort:
        edge = _edge(candidates, upward=upward)
        if edge is not None:
            candidates = candidates.filter(**{"pk__lte" if upward else "pk__gte": edge})
    # The sum hides the key from the planner, which would walk the table's whole key instead.
    key: Any = F("pk") + 0 if sort else F("pk")
    ordered = candidates.filter(search).order_by(key.asc() if upward else key.desc())
    rows = list(ordered.values_list(*columns)[: SIZE + 1])
    return page(rows, cursor, edge=edge)


def page(rows: list[Any], cursor: Cursor, *, edge: int | None = None) -> Window:
    """Make a page of rows that lie next to ``cursor``, nearest first and one more than it holds.

    ``edge`` is the key up to which they were looked for, or None where there are no others.
    """
    upward = cursor.after is not None
    full = len(rows) > SIZE
    rows = rows[:SIZE]
    if upward:
        rows.reverse()
    looked = None if full else edge
    first, last = (rows[0][0], rows[-1][0]) if rows else (None, None)
    if upward:
        onward = Cursor(after=first if full else looked)
        older = Cursor(before=last if rows else (cursor.after or 0) + 1)
        return Window(rows, older, onward if onward.after is not None else None, looked)
    onward = Cursor(before=last if full else looked)
    newer = None
    if cursor.before is not None:
        newer = Cursor(after=first if rows else cursor.before - 1)
    return Window(rows, onward if onward.before is not None else None, newer, looked)


def _edge(candidates: QuerySet[Any], *, upward: bool) -> int | None:
    """Return the last key of the window, or None where it holds all candidates that are left."""
    keys = candidates.order_by("pk" if upward else "-pk").values("pk")[:WINDOW]
    found = keys.aggregate(n=Count("pk"), edge=Max("pk") if upward else Min("pk"))
    return found["edge"] if found["n"] == WINDOW else None


def more_than(candidates: QuerySet[Any], limit: int) -> bool:
    """Tell whether there are more than ``limit`` candidates, without counting the rest."""
    keys = candidates.order_by().values("pk")[: limit + 1]
    return bool(keys.aggregate(n=Count("pk"))["n"] > limit)


def _key(text: str | None) -> int | None:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 18:
        return None
    return int(text)
