"""Which jobs a list shows: the filters of its address, and the index that serves them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import Q
from django.http import QueryDict

from django_relay.models import Job
from django_relay.states import State

from . import backlog, rows, windows
from .places import Place
from .readonly import key_of
from .rows import Row
from .windows import Cursor, Window

#: States whose partial index is in the order of keys, and those whose index is in another.
IN_ORDER = frozenset({State.RUNNING, State.FAILED, State.CANCELLED})
INDEXED = frozenset({State.READY, State.SCHEDULED})


@dataclass(frozen=True, slots=True)
class Filters:
    """What the viewer asked for. A search for digits is a look-up by key and nothing else."""

    key: int | None = None
    state: str = ""
    queue: str = ""
    task: str = ""
    text: str = ""

    @classmethod
    def of(cls, query: QueryDict) -> Filters:
        text = _clean(query.get("q"))
        key = key_of(text)
        if key is not None:
            return cls(key=key, text=text)
        state = _clean(query.get("state"))
        return cls(
            state=state if state in State.values else "",
            queue=_clean(query.get("queue")),
            task=_clean(query.get("task")),
            text=text,
        )

    @property
    def query(self) -> Mapping[str, str]:
        """The filters as they stand in an address."""
        return {"state": self.state, "queue": self.queue, "task": self.task, "q": self.text}

    @property
    def active(self) -> bool:
        return any(self.query.values())


def read(filters: Filters, cursor: Cursor, place: Place) -> Window:
    """Read the page of jobs at ``cursor``; its rows are of type Row."""
    jobs = Job.objects.using(place.database)
    if filters.state == State.READY and not (filters.key or filters.task or filters.text):
        return _ready(filters, cursor, place)
    if filters.key is not None:
        found = jobs.filter(pk=filters.key).values_list(*rows.COLUMNS)
        return Window([Row._make(row) for row in found])
    search, sort = Q(), False
    if filters.queue:
        search &= Q(queue=filters.queue)
    if filters.task:
        search &= Q(task=filters.task)
    if filters.text:
        search &= Q(task__contains=filters.text)
    if filters.state in IN_ORDER:
        jobs = jobs.filter(state=filters.state)
    elif filters.state in INDEXED:
        waiting = jobs.filter(state=filters.state)
        if windows.more_than(waiting, windows.WINDOW):
            search &= Q(state=filters.state)
        else:
            jobs, sort = waiting, True
    elif filters.state:
        search &= Q(state=filters.state)
    page = windows.read(jobs, search, cursor, columns=rows.COLUMNS, sort=sort)
    return Window([Row._make(row) for row in page.rows], page.older, page.newer, page.looked)


def _ready(filters: Filters, cursor: Cursor, place: Place) -> Window:
    """Read a page of the backlog."""
    keys = backlog.ready_keys(place, filters.queue, cursor, limit=windows.SIZE + 1)
    jobs = Job.objects.using(place.database).filter(pk__in=keys).order_by("pk")
    found = [Row._make(row) for row in jobs.values_list(*rows.COLUMNS)]
    return windows.page(found if cursor.after is not None else found[::-1], cursor)


def _clean(text: str | None) -> str:
    """Return a search text that PostgreSQL accepts: no NUL, no more than a path is long."""
    return (text or "").replace("\x00", "").strip()[:255]
