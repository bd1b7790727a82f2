"""What a claim costs beside many jobs that are ready, not due yet, or finished.

Four databases on one server, alike but for their rows, take turns claim by claim, so that a busy
moment of the machine falls on all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from django_relay.transitions import Frontier, Session

from . import ground

QUEUES = [f"queue {number}" for number in range(20)]
STATES = {"ready": "ready", "future": "scheduled", "finished": "successful"}
#: The first claims of a session prepare its statements.
WARM = 10


def run(
    *, jobs: int = 1_000_000, rounds: int = 500, limit: int = 8, statistics: str = "fresh"
) -> dict[str, Any]:
    """Claim beside 1,000,000 ready jobs in 20 queues, future ones, finished ones, and none.

    Each round makes ``limit`` jobs in one queue ready and claims as many, by any queue and by the
    names of all. ``--statistics stale``: the tables were analyzed while they were empty.
    """
    aliases = ("default", *STATES)
    with ground.databases(*aliases):
        for alias in aliases:
            _furnish(alias, jobs, statistics)
        times = _take_turns(aliases, rounds, limit)
        with ground.session() as session:
            server = ground.version(session)
    found = {key: ground.rank(values, 50, 95, 99) for key, values in times.items()}
    return {
        "server": server,
        "claim_ms": {" ".join(key).replace("default", "empty"): v for key, v in found.items()},
        "p95_ratio": {
            f"{alias} {how}": round(found[alias, how]["p95"] / found["default", how]["p95"], 3)
            for alias, how in found
            if alias != "default"
        },
    }


def _furnish(alias: str, jobs: int, statistics: str) -> None:
    with ground.session(alias) as session:
        if statistics == "stale":
            ground.run(session, "VACUUM ANALYZE")
        if alias in STATES:
            ground.fill(session, jobs, state=STATES[alias], queues=QUEUES)
        if statistics == "fresh":
            ground.run(session, "VACUUM ANALYZE")
        ground.run(session, "CHECKPOINT")


def _take_turns(
    aliases: Sequence[str], rounds: int, limit: int
) -> dict[tuple[str, str], list[float]]:
    ways = {"any queue": None, "20 queues": QUEUES}
    times: dict[tuple[str, str], list[float]] = {(a, how): [] for how in ways for a in aliases}
    with ExitStack() as stack:
        claimers = {
            alias: Claimer(stack.enter_context(ground.session(alias, hot=True)), alias)
            for alias in aliases
        }
        for number in range(WARM + rounds):
            for alias, how in times:
                spent = claimers[alias].once(limit, number, ways[how])
                if number >= WARM:
                    times[alias, how].append(spent)
    return times


class Claimer:
    """Claims in one database, on one session, as a child does."""

    def __init__(self, session: Session, alias: str) -> None:
        self.session, self._alias = session, alias
        self._frontier = Frontier()

    def once(self, limit: int, number: int, queues: Sequence[str] | None = None) -> float:
        """Make ``limit`` jobs ready, claim and settle as many; return the claim's milliseconds."""
        ground.fill(self.session, limit, queues=[QUEUES[number % len(QUEUES)]])
        spent, jobs = ground.timed(
            lambda: ground.claim(self.session, limit, self._alias, queues, self._frontier)
        )
        if len(jobs) != limit:
            raise SystemExit(f"{len(jobs)} of {limit} jobs were claimed in {self._alias}")
        ground.settle(self.session, jobs)
        return spent
