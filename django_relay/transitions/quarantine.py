"""Jobs that the database rejects, and how those behind them get past.

A session keeps what it could not move in quarantine for a while: its statements choose other jobs.
They say which by one condition on the id, ``among``, where they choose.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .halves import in_halves, is_about_data, said
from .session import Session
from .straighten import straighten_jobs

Answer = TypeVar("Answer")

#: How long, in seconds, a job stays in quarantine for the first time; twice as long each further
#: time, since to try very many again takes longer than that; and at the most.
FIRST, LONGEST = 10.0, 300.0
#: So many jobs are remembered.
MOST = 10_000

# Which jobs a statement may choose: what it says of their id. As a subquery the list is hashed once
# a statement; `<> ALL` would be searched through for each row.
EVERY = "IS NOT NULL"
FREE = "NOT IN (SELECT unnest(%(among)s::bigint[]))"
ONLY = "= ANY (%(among)s::bigint[])"

STRAIGHTENED = "had values outside their bounds; they are at their bounds now"
REJECTED = "is passed over for {seconds:.0f} s: the database rejects what would be written ({why})"
SKIPPED = "is passed over for {seconds:.0f} s: a lease is in its way, or a trigger that skips it"


@dataclass(frozen=True, slots=True)
class Notice:
    """What there is to say of a job, in words that hold no value of it."""

    job_id: int
    words: str


class Quarantine:
    """The jobs that one session could not move."""

    def __init__(self) -> None:
        #: By job: the end of its quarantine, on the monotonic clock, and how long that was.
        self._held: dict[int, tuple[float, float]] = {}
        self._notices: list[Notice] = []

    def among(self, only: Sequence[int] | None = None) -> tuple[str, dict[str, object]]:
        """Return the condition on the id of a job that may be chosen, and the values in it."""
        if only is not None:
            return ONLY, {"among": list(only)}
        now = time.monotonic()
        # What stays out of it for as long as it was in is forgotten.
        self._held = {key: held for key, held in self._held.items() if now < sum(held)}
        held = [job_id for job_id, (until, _) in self._held.items() if now < until]
        return (FREE, {"among": held}) if held else (EVERY, {})

    def move(
        self,
        connection: Session,
        move: Callable[[Sequence[int] | None], Answer],
        choose: Callable[[], Sequence[int]],
    ) -> list[Answer]:
        """Move many jobs in one statement. Where the database rejects it, move those that it would
        ``choose``, straightened and in halves, and put what is rejected into quarantine.

        Raises what is not about the rows, if nothing has been moved before it.
        """
        try:
            return [move(None)]
        except Exception as error:
            if not is_about_data(error):
                raise
            rejection = error
        ids = choose()
        if not ids:
            raise rejection  # of the statement as such
        straight = straighten_jobs(connection, ids)
        self._notices += [Notice(job_id, STRAIGHTENED) for job_id in straight]
        answers: list[Answer] = []
        try:
            for answer in in_halves(ids, move, self._reject):
                if answer is not None:
                    answers.append(answer)
        except Exception:
            if not answers:
                raise
            # Those have committed; what is left is chosen again.
        return answers

    def skip(self, job_id: int) -> None:
        """Put a job into quarantine that a statement has chosen and not moved."""
        self._put(job_id, SKIPPED)

    def _reject(self, job_id: int, error: Exception) -> None:
        self._put(job_id, REJECTED, said(error))

    def notices(self) -> list[Notice]:
        """Return what there is to say since the last time."""
        notices, self._notices = self._notices, []
        return notices

    def _put(self, job_id: int, words: str, why: str = "") -> None:
        now = time.monotonic()
        until, before = self._held.pop(job_id, (0.0, 0.0))
        again = now < until + before
        seconds = min(2 * before, LONGEST) if again else FIRST
        self._held[job_id] = now + seconds, seconds
        self._notices.append(Notice(job_id, words.format(seconds=seconds, why=why)))
        while len(self._held) > MOST:
            del self._held[next(iter(self._held))]


@dataclass(frozen=True, slots=True)
class Batch:
    """A statement that moves many jobs, as CTEs: ``chosen``, with its place for {among}, and those
    that follow. Of these ``tried`` has the ids of the jobs to be moved as ``job``, and ``moved``
    the answer, with the ids first."""

    chosen: str
    moving: str
    tried: str = "chosen"
    job: str = "id"

    def move(
        self, connection: Session, values: dict[str, object], quarantine: Quarantine
    ) -> list[tuple[Any, ...]]:
        """Choose jobs and move them; return the rows of ``moved``."""
        answer = (
            f"{self.moving} SELECT t.{self.job}, m.* FROM {self.tried} AS t "
            f"LEFT JOIN moved AS m ON m.id = t.{self.job} ORDER BY 1"
        )

        def run(what: str, only: Sequence[int] | None = None) -> list[tuple[Any, ...]]:
            condition, among = quarantine.among(only)
            chosen = self.chosen.format(among=condition)
            with connection.cursor() as cursor:
                cursor.execute(f"WITH {chosen} {what}", {**values, **among} or None)
                rows: list[tuple[Any, ...]] = cursor.fetchall()
                return rows

        def move(only: Sequence[int] | None) -> list[tuple[Any, ...]]:
            rows = run(answer, only)
            for row in rows:
                if row[1] is None:
                    quarantine.skip(row[0])
            return [row[1:] for row in rows if row[1] is not None]

        def choose() -> list[int]:
            return [row[0] for row in run(f"SELECT {self.job} FROM chosen")]

        return [row for rows in quarantine.move(connection, move, choose) for row in rows]
