"""Freeze a worker past its leases and let it try everything when it wakes.

Three jobs run in one worker when it is stopped. Others finish them. Woken, its handlers return,
raise and go on; it tries to succeed, to report a failure, to renew, and, told to stop, to give the
third job back. Each is its own doing, through its own code; the renewal is asked once more from
here, for its answer.
"""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from django_relay import recording, transitions
from django_relay.recording import Glimpse
from django_relay.transitions import Held

from . import clock, fleet, repeats
from .fleet import Fleet, Ship
from .repeats import Rule, joined, repeated, total
from .result import Result
from .sampling import Sampler
from .stage import Stage

#: What the three handlers do when they wake, and what their worker then tries.
TRIES = {"": "succeed", "raise": "retry", "linger": "release"}

# Locks nothing: everything about the jobs that may not change any more.
STATE = """
SELECT id, state, claims, failures, losses, interruptions, result::text, finished_at
FROM django_relay_job WHERE id = ANY (%(ids)s) ORDER BY id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """``lease`` and ``job_seconds`` are in seconds."""

    lease: float
    job_seconds: float
    repeat: int


RULES: dict[str, Rule] = {
    "jobs": total,
    "attempts": total,
    "accepted": total,
    "refusals": total,
    "refused": joined,
    "renewals_answered_gone": total,
    "handlers_told_that_the_lease_is_lost": total,
    "nothing_changed": all,
}


@dataclass(frozen=True, slots=True)
class Run:
    """One worker that came back: its jobs, what was done to it, and the figures."""

    jobs: list[int]
    marks: list[tuple[float, str, str]]
    seen: list[Glimpse]
    figures: dict[str, Any]


def run(stage: Stage, wishes: Wishes) -> Result:
    """Freeze, take over, wake, and see what is refused, as often as wished."""
    runs = repeated(stage, wishes.repeat, lambda: _once(stage, wishes), _outcome)
    wrong = [_problems(run.figures) for run in runs]
    shown = repeats.worth_recording(runs, wrong)
    figures = repeats.figures([run.figures for run in runs], RULES)
    made = recording.record(
        stage.place.connection,
        shown.jobs,
        experiment="zombie",
        seen=shown.seen,
        marks=shown.marks,
        settings=asdict(wishes),
        figures=figures,
    )
    return Result(made, _told(figures), repeats.problems(wrong))


def _once(stage: Stage, wishes: Wishes) -> Run:
    flags = ["--lease", f"{wishes.lease:g}", "--grace", "0", "--prefetch", "0"]
    with stage.fleet(*flags) as workers, Sampler(stage.place) as sampler:
        frozen = workers.start("--slots", "3")
        workers.ready()
        jobs = _enqueue(wishes)
        lines = [stage.begun(workers, job, 1) for job in jobs]
        workers.start("--slots", "1", "--processes", "3")
        clock.wait_until(lines[0].at + wishes.job_seconds / 2)
        marks = [_freeze(stage, frozen)]
        tokens = [stage.token(job, 1) for job in jobs]
        stage.finished(workers, jobs, within=30 + 5 * wishes.lease + 6 * wishes.job_seconds)
        before = stage.place.rows(STATE, ids=jobs)
        clock.wait_until(max(line.at for line in lines) + wishes.job_seconds)
        marks.append(_wake(stage, frozen))
        _await_refusals(stage, workers, jobs, 2)
        held = [Held(job, token, 1.0) for job, token in zip(jobs, tokens, strict=True)]
        answer = transitions.renew(stage.place.connection, held, lease=wishes.lease)
        marks.append((stage.clock.now(), "SIGTERM to the worker that woke", frozen.id))
        workers.stop(frozen)
        _await_refusals(stage, workers, jobs, 3)
        unchanged = stage.place.rows(STATE, ids=jobs) == before
        said = frozen.log.read_text(errors="replace").count("lost its lease and runs on")
        seen = sampler.seen
    figures = _figures(stage, jobs, unchanged=unchanged, gone=len(answer.gone), told=said)
    return Run(jobs, marks, seen, figures)


def _enqueue(wishes: Wishes) -> list[int]:
    from .tasks import hold

    return [int(hold.enqueue(wishes.job_seconds, first).id) for first in TRIES]


def _freeze(stage: Stage, ship: Ship) -> tuple[float, str, str]:
    """Stop the supervisor and its children."""
    ship.frozen = True
    at = stage.clock.now()
    fleet.signal_all([ship.pid, *fleet.children_of(ship.pid)], signal.SIGSTOP)
    return at, "SIGSTOP to the whole worker", ship.id


def _wake(stage: Stage, ship: Ship) -> tuple[float, str, str]:
    at = stage.clock.now()
    fleet.signal_all([*fleet.children_of(ship.pid), ship.pid], signal.SIGCONT)
    ship.frozen = False
    return at, "SIGCONT to the whole worker", ship.id


def _await_refusals(stage: Stage, workers: Fleet, jobs: list[int], count: int) -> None:
    def refused() -> bool:
        return len(stage.events(jobs, "refused")) >= count

    stage.until(refused, f"{count} endings are refused", within=10, fleet=workers)


def _figures(
    stage: Stage, jobs: list[int], *, unchanged: bool, gone: int, told: int
) -> dict[str, Any]:
    rows = stage.place.rows(
        "SELECT data->>'would_have' FROM django_relay_event"
        " WHERE job_id = ANY (%(ids)s) AND kind = 'refused' ORDER BY id",
        ids=jobs,
    )
    accepted = stage.events(jobs, "succeeded", "failed", "cancelled")
    return {
        "jobs": len(jobs),
        "attempts": len(stage.events(jobs, "claimed")),
        "accepted": len(accepted),
        "refusals": len(rows),
        "refused": sorted(row[0] for row in rows),
        "renewals_answered_gone": gone,
        "handlers_told_that_the_lease_is_lost": told,
        "nothing_changed": unchanged,
    }


def _problems(figures: dict[str, Any]) -> tuple[str, ...]:
    wrong = []
    if figures["refused"] != sorted(TRIES.values()):
        wrong.append(f"refused were {figures['refused']}, not one of each of {[*TRIES.values()]}")
    if figures["renewals_answered_gone"] != figures["jobs"]:
        wrong.append("a renewal under an old token was not told that the lease is gone")
    if not figures["nothing_changed"]:
        wrong.append("a late ending changed a job")
    if figures["accepted"] != figures["jobs"]:
        wrong.append(f"{figures['accepted']} outcomes were accepted of {figures['jobs']} jobs")
    return tuple(wrong)


def _outcome(run: Run) -> str:
    changed = "nothing" if run.figures["nothing_changed"] else "something"
    return f"{run.figures['refusals']} late endings refused, {changed} changed"


def _told(figures: dict[str, Any]) -> tuple[str, ...]:
    changed = "Nothing" if figures["nothing_changed"] else "Something"
    times = figures.get("repeats", 1)
    again = f", {times} times" if times > 1 else ""
    return (
        f"Froze a worker with {figures['jobs'] // times} jobs until others had finished them, and "
        f"woke it{again}.",
        f"Refused: {_counted(figures['refused'])}. Renewals told that the lease is gone: "
        f"{figures['renewals_answered_gone']}. {changed} changed.",
    )


def _counted(verbs: list[str]) -> str:
    counts = Counter(verbs)
    return ", ".join(verb if n == 1 else f"{n} x {verb}" for verb, n in counts.items())
