"""What every experiment stands on: a place, a directory of its own, the clock, and its waits."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from django.core.management.base import CommandError

from . import clock, ledger, places
from .clock import Clock
from .fleet import Fleet
from .ledger import Line
from .places import Place

T = TypeVar("T")

UNFINISHED = """
SELECT count(*) FROM django_relay_job WHERE id = ANY (%(ids)s) AND finished_at IS NULL
"""
CLAIMED = """
SELECT token::text FROM django_relay_event
WHERE job_id = %(job)s AND kind = 'claimed' AND claim = %(claim)s
"""
EVENTS = """
SELECT kind, claim, EXTRACT(EPOCH FROM at)::float8, data FROM django_relay_event
WHERE job_id = ANY (%(ids)s) AND kind = ANY (%(kinds)s) ORDER BY id
"""


class Failed(CommandError):
    """The experiment did not go as it should have; the text says what was waited for."""


@dataclass(frozen=True, slots=True)
class Stage:
    """``say`` tells the user what goes on."""

    place: Place
    directory: Path
    clock: Clock
    say: Callable[[str], None]

    def fleet(self, *flags: str) -> Fleet:
        """Make a fleet whose workers are started with these flags."""
        return Fleet(self.place, self.directory, flags)

    def until(
        self,
        condition: Callable[[], T],
        what: str,
        *,
        within: float,
        fleet: Fleet | None = None,
        pause: float = 0.01,
    ) -> T:
        """Wait for a condition and return what it returned; raise Failed after so many seconds."""
        end = time.monotonic() + within
        while not (found := condition()):
            if fleet is not None:
                fleet.check()
            if time.monotonic() > end:
                said = [f"\n{ship.log.name}:\n{ship.said}" for ship in fleet.ships] if fleet else []
                raise Failed("".join([f"Not within {within:g} s: {what}.", *said]))
            time.sleep(pause)
        return found

    def begun(self, fleet: Fleet, job: int, claim: int, *, within: float = 30.0) -> Line:
        """Wait until the handler of a claim has begun, by its own account."""

        def found() -> Line | None:
            lines = ledger.read(fleet.ledger)
            wanted = (line for line in lines if (line.mark, line.job) == ("begin", job))
            return next((line for line in wanted if line.claim == claim), None)

        line = self.until(found, f"claim {claim} of job {job} begins", within=within, fleet=fleet)
        assert line is not None  # noqa: S101  # until returns what is true
        return line

    def finished(self, fleet: Fleet, jobs: Sequence[int], *, within: float) -> None:
        """Wait until jobs are finished."""

        def all_done() -> bool:
            return self.place.patiently(
                lambda: self.place.rows(UNFINISHED, ids=list(jobs))[0][0] == 0, False
            )

        what = f"{len(jobs)} jobs are finished"
        self.until(all_done, what, within=within, fleet=fleet)

    def token(self, job: int, claim: int) -> str:
        """Return the token of a claim."""
        return str(self.place.rows(CLAIMED, job=job, claim=claim)[0][0])

    def events(self, jobs: Sequence[int], *kinds: str) -> list[tuple[str, int, float, object]]:
        """Return kind, claim, time (in seconds since 1970) and data of events, oldest first."""
        return self.place.rows(EVENTS, ids=list(jobs), kinds=list(kinds))


@contextmanager
def opened(say: Callable[[str], None], *, keep: bool) -> Iterator[Stage]:
    """Prepare the place; delete the jobs afterwards unless they are to be kept."""
    place = places.find()
    places.clear(place)
    directory = Path(tempfile.mkdtemp(prefix="relay-lab-"))
    try:
        yield Stage(place, directory, clock.read(place), say)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        if not keep:
            place.patiently(lambda: places.tidy(place), None)
