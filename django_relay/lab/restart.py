"""Take the database away under load: its sessions, then the server itself, and see all come back.

The server is restarted only where the settings name a function for it (``RELAY_LAB_RESTART``), as
those of the example project do for its own embedded server; else sessions of the lab's own workers
are terminated and nothing more.
"""

from __future__ import annotations

import random
import time
from dataclasses import asdict, dataclass
from typing import Any

from django_relay import recording
from django_relay.recording import Glimpse

from . import faults, ledger, repeats, verdict
from .fleet import Fleet
from .load import Load
from .places import QUEUE
from .repeats import Rule, repeated, spread, total, typical
from .result import Result
from .sampling import Sampler
from .stage import Stage

LEFT = """
SELECT count(*) FROM django_relay_job
WHERE id > %(after)s AND queue = %(queue)s AND finished_at IS NULL
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """``lease`` is in seconds; ``only_sessions`` forbids restarts even where they are allowed."""

    lease: float
    jobs: int
    only_sessions: bool
    repeat: int


RULES: dict[str, Rule] = {
    **dict.fromkeys(verdict.FIGURES, total),
    # Each audit reads the jobs of the runs before it once more.
    "audit_findings": max,
    "accepted": total,
    "enqueues_without_answer": total,
    "resumed_seconds": typical,
    "away_seconds": typical,
}


@dataclass(frozen=True, slots=True)
class Blow:
    """One fault: what it was, how long the server was away, until a handler began again after."""

    what: str
    away: float
    resumed: float


@dataclass(frozen=True, slots=True)
class Run:
    """One time without the database: the jobs worth a look, what was done, what came of it."""

    jobs: list[int]
    marks: list[tuple[float, str, str]]
    seen: list[Glimpse]
    figures: dict[str, Any]
    problems: tuple[str, ...]


def run(stage: Stage, wishes: Wishes) -> Result:
    """Take it away, three times or once, while jobs are enqueued and run; as often as wished."""
    restart = None if wishes.only_sessions else faults.restarter()
    runs = repeated(stage, wishes.repeat, lambda: _once(stage, wishes, restart), _outcome)
    wrong = [run.problems for run in runs]
    shown = repeats.worth_recording(runs, wrong)
    measure = "resumed_seconds"
    figures = repeats.figures([run.figures for run in runs], RULES, measure=measure)
    made = recording.record(
        stage.place.connection,
        shown.jobs,
        experiment="restart",
        seen=shown.seen,
        marks=shown.marks,
        settings=asdict(wishes) | {"restarts_allowed": restart is not None},
        figures=figures,
    )
    return Result(made, _told(figures), repeats.problems(wrong))


def _once(stage: Stage, wishes: Wishes, restart: faults.Restart | None) -> Run:
    kinds = ["sessions", *(["fast", "immediate"] if restart else [])]
    flags = ["--lease", f"{wishes.lease:g}", "--slots", "3", "--poll", "0.5"]
    after = stage.place.last()
    load = Load(stage.place, random.Random(1), pause=0.03, longest=0.3)  # noqa: S311
    with stage.fleet(*flags) as workers, Sampler(stage.place) as sampler:
        workers.start()
        workers.start()
        workers.ready()
        marks, blows = [], []
        with load:
            for place, kind in enumerate(kinds, start=1):
                wanted = wishes.jobs * place // (len(kinds) + 1)
                _await_load(stage, workers, load, wanted)
                marks.append((stage.clock.now(), _words(kind), ""))
                blows.append(_blow(stage, workers, kind, restart))
                stage.say(f"{_words(kind)}: back to work {blows[-1].resumed:.2f} s after it")
            _await_load(stage, workers, load, wishes.jobs)
        await_end(stage, workers, after, within=60 + 10 * wishes.lease)
        seen = sampler.seen
        found = verdict.reach(stage.place, workers.ledger, after, load.accepted)
    figures = found.figures | _figures(blows, load)
    jobs = verdict.eventful(stage.place, after)
    return Run(jobs, marks, seen, figures, found.problems)


def await_end(stage: Stage, workers: Fleet, after: int, *, within: float) -> None:
    """Wait until every job of this experiment has ended."""

    def none_left() -> bool:
        return stage.place.patiently(
            lambda: stage.place.rows(LEFT, after=after, queue=QUEUE)[0][0] == 0, False
        )

    stage.until(none_left, "every job has ended", within=within, fleet=workers)


def _await_load(stage: Stage, workers: Fleet, load: Load, wanted: int) -> None:
    def enough() -> bool:
        return len(load.accepted) >= wanted

    stage.until(enough, f"{wanted} jobs are accepted", within=120, fleet=workers)


def _blow(stage: Stage, workers: Fleet, kind: str, restart: faults.Restart | None) -> Blow:
    """Strike, and measure from when the server answers until a handler begins."""
    struck = time.monotonic()
    if kind == "sessions" or restart is None:
        faults.terminate_sessions(workers)
    else:
        restart(kind)
    back = faults.await_server(stage.place, within=60)

    def begun() -> float | None:
        lines = ledger.read(workers.ledger)
        return next((line.at for line in lines if line.mark == "begin" and line.at > back), None)

    first = stage.until(begun, "a handler begins again", within=60, fleet=workers) or back
    return Blow(kind, back - struck, first - back)


def _words(kind: str) -> str:
    if kind == "sessions":
        return "the workers' sessions terminated"
    return f"PostgreSQL restarted ({kind})"


def _figures(blows: list[Blow], load: Load) -> dict[str, Any]:
    return {
        "accepted": len(load.accepted),
        "enqueues_without_answer": load.unanswered,
        "resumed_seconds": {blow.what: round(blow.resumed, 3) for blow in blows},
        "away_seconds": {blow.what: round(blow.away, 3) for blow in blows},
    }


def _outcome(run: Run) -> str:
    return f"{run.figures['jobs']} jobs, {run.figures['lost']} lost"


def _told(figures: dict[str, Any]) -> tuple[str, ...]:
    lines = []
    for kind, seconds in figures["resumed_seconds"].items():
        away = figures["away_seconds"][kind]
        line = f"{_words(kind)}: away {away:.2f} s, back to work {seconds:.2f} s after it."
        if "distribution" in figures:
            ranks = spread(figures["distribution"][kind], "s")
            line += f" {figures['repeats']} times: {ranks}."
        lines.append(line[0].upper() + line[1:])
    return (*lines, account(figures))


def account(figures: dict[str, Any]) -> str:
    """Say in one line what became of the jobs."""
    return (
        f"{figures['jobs']} jobs, {figures['lost']} lost, accepted outcomes per job "
        f"{figures['accepted_outcomes_per_job']}; {figures['duplicates_started']} started again, "
        f"{figures['duplicates_unexplained']} of them unexplained; {figures['refusals']} late "
        f"endings refused; audit: {figures['audit_findings']} findings."
    )
