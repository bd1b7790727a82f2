"""Jobs that the database refuses to have moved, and how those behind them get past.

A session keeps what was refused in quarantine for a while: its statements choose other jobs. They
say which by one condition on the id, ``among``, where they choose.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .halves import in_halves, is_about_data
from .session import Session
from .straighten import straighten_jobs

Answer = TypeVar("Answer")

#: How long, in seconds, a job stays in quarantine, and how many do.
KEEP, MOST = 60.0, 10_000

# Which jobs a statement may choose: what it says of their id.
EVERY = "IS NOT NULL"
FREE = "<> ALL (%(among)s::bigint[])"
ONLY = "= ANY (%(among)s::bigint[])"


@dataclass(frozen=True, slots=True)
class Notice:
    """A job that was straightened, or that the database refused with an ``error``."""

    job_id: int
    error: Exception | None = None


class Quarantine:
    """The refused jobs of one session."""

    def __init__(self) -> None:
        self._until: dict[int, float] = {}
        self._notices: list[Notice] = []

    def among(self, only: Sequence[int] | None = None) -> tuple[str, dict[str, object]]:
        """Return the condition on the id of a job that may be chosen, and the values in it."""
        if only is not None:
            return ONLY, {"among": list(only)}
        now = time.monotonic()
        # In the order of their ends, as they came.
        while self._until and next(iter(self._until.values())) < now:
            del self._until[next(iter(self._until))]
        return (FREE, {"among": list(self._until)}) if self._until else (EVERY, {})

    def past(
        self,
        connection: Session,
        choose: Callable[[], Sequence[int]],
        move: Callable[[Sequence[int]], Answer],
        nothing: Answer,
    ) -> Iterator[Answer]:
        """Move what a refused statement has chosen, but for what the database refuses.

        A job whose own values it refuses is straightened first. Yields each answer as it comes.
        """
        ids = choose()
        self._notices += map(Notice, straighten_jobs(connection, ids))

        def put(job_id: int, error: Exception) -> Answer:
            self._put(job_id, error)
            return nothing

        if ids:
            yield from in_halves(ids, move, put)

    def notices(self) -> list[Notice]:
        """Return what there is to tell since the last time."""
        notices, self._notices = self._notices, []
        return notices

    def _put(self, job_id: int, error: Exception) -> None:
        self._until.pop(job_id, None)
        self._until[job_id] = time.monotonic() + KEEP
        self._notices.append(Notice(job_id, error))
        while len(self._until) > MOST:
            del self._until[next(iter(self._until))]


@dataclass(frozen=True, slots=True)
class Batch:
    """A statement that moves many rows: the CTE ``chosen`` with its place for {among}, which has
    their ids as ``job``, and what follows."""

    chosen: str
    moving: str
    job: str = "id"

    def move(
        self, connection: Session, values: dict[str, object], quarantine: Quarantine
    ) -> list[tuple[Any, ...]]:
        """Choose rows and move them; return the statement's answer, in parts where one is refused.

        Raises what is not about the rows, when some of them may have been moved.
        """

        def run(what: str, only: Sequence[int] | None = None) -> list[tuple[Any, ...]]:
            condition, among = quarantine.among(only)
            chosen = self.chosen.format(among=condition)
            with connection.cursor() as cursor:
                cursor.execute(f"WITH {chosen} {what}", values | among or None)
                rows: list[tuple[Any, ...]] = cursor.fetchall()
                return rows

        try:
            return run(self.moving)
        except Exception as error:
            if not is_about_data(error):
                raise
        nothing: list[tuple[Any, ...]] = []
        parts = quarantine.past(
            connection,
            lambda: [row[0] for row in run(f"SELECT {self.job} FROM chosen")],
            lambda only: run(self.moving, only),
            nothing,
        )
        return [row for part in parts for row in part]
