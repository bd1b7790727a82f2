"""Kill a worker in mid-job and follow the job through its recovery.

Two workers, one job. Its worker is killed by SIGKILL half way through; the lease runs out (or the
supervisor sees its child die), the other worker claims the job and finishes it. Then the killed
worker's token is presented after all, through the same call that a late worker makes.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from django_relay import outcomes, recording, transitions
from django_relay.outcomes import Ending

from . import clock, fleet, repeats
from .fleet import Fleet
from .ledger import Line
from .repeats import Rule, repeated, spread, total, typical
from .result import Result
from .sampling import Sampler
from .stage import Failed, Stage

WHAT = {
    "child": "the child process that runs the job",
    "supervisor": "the supervisor alone",
    "group": "the whole worker",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """``lease`` and ``job_seconds`` are in seconds; ``kill`` is a key of ``WHAT``."""

    lease: float
    job_seconds: float
    kill: str
    repeat: int


RULES: dict[str, Rule] = {"kill_to_success_seconds": typical, "attempts": max, "refusals": total}


@dataclass(frozen=True, slots=True)
class Run:
    """One crash: the job, when the kill was (in seconds since 1970), whom it hit, the figures."""

    job: int
    killed: tuple[float, str, str]
    figures: dict[str, Any]


def run(stage: Stage, wishes: Wishes) -> Result:
    """Crash as often as wished; the recording is that of the first."""
    flags = ["--lease", f"{wishes.lease:g}", "--slots", "1", "--grace", "2"]
    with stage.fleet(*flags) as workers, Sampler(stage.place) as sampler:

        def once() -> Run:
            for _ in range(2 - len(workers.alive)):
                workers.start()
            workers.ready()
            return _crash(stage, workers, wishes)

        def told(run: Run) -> str:
            return f"{run.figures['kill_to_success_seconds']:.3f} s from kill to success"

        runs = repeated(stage, wishes.repeat, once, told)
        seen = sampler.seen
    measure = "kill_to_success_seconds"
    figures = repeats.figures([run.figures for run in runs], RULES, measure=measure)
    made = recording.record(
        stage.place.connection,
        [runs[0].job],
        experiment="crash",
        seen=seen,
        marks=[runs[0].killed],
        settings=asdict(wishes),
        figures=figures,
    )
    return Result(made, _told(wishes, figures))


def _crash(stage: Stage, workers: Fleet, wishes: Wishes) -> Run:
    from .tasks import hold

    job = int(hold.enqueue(wishes.job_seconds).id)
    began = stage.begun(workers, job, 1)
    clock.wait_until(began.at + wishes.job_seconds / 2)
    killed, whom = _kill(workers, began, wishes.kill)
    patience = 20 + 5 * wishes.lease + 2 * wishes.job_seconds
    stage.finished(workers, [job], within=patience)
    _present(stage, job, ran=time.monotonic() - began.at)
    at = stage.clock.at(killed)
    ended = stage.events([job], "succeeded")
    if not ended:
        raise Failed(f"Job {job} did not succeed.")
    figures = {
        "kill_to_success_seconds": round(ended[0][2] - at, 3),
        "attempts": len(stage.events([job], "claimed")),
        "refusals": len(stage.events([job], "refused")),
    }
    return Run(job, (at, f"SIGKILL to {WHAT[wishes.kill]}", whom), figures)


def _kill(workers: Fleet, began: Line, whom: str) -> tuple[float, str]:
    """Kill who runs the job, and return when and its name."""
    ship = next(ship for ship in workers.ships if ship.pid == began.parent)
    if whom == "child":
        return workers.kill(ship, [began.pid], with_supervisor=False), f"{ship.id}/1"
    children = fleet.children_of(ship.pid) if whom == "group" else []
    return workers.kill(ship, children), ship.id


def _present(stage: Stage, job: int, *, ran: float) -> None:
    """Come late: say under the first claim's token that it succeeded."""
    late = Ending(job, stage.token(job, 1), outcomes.succeeded('"late"'), ran)
    answer = transitions.settle(stage.place.connection, [late])[late.token]
    if answer.accepted:
        raise Failed(f"The late success of job {job} was accepted.")


def _told(wishes: Wishes, figures: dict[str, Any]) -> tuple[str, ...]:
    job = f"a job of {wishes.job_seconds:g} s, a lease of {wishes.lease:g} s"
    seconds = f"{figures['kill_to_success_seconds']:.3f} s from the kill to the job's success"
    if wishes.repeat > 1:
        ranks = spread(figures["distribution"], "s")
        seconds = f"From kill to success, {wishes.repeat} times: {ranks}"
    return (
        f"Killed {WHAT[wishes.kill]} with SIGKILL: {job}.",
        f"{seconds}.",
        f"Attempts: {figures['attempts']}. Late endings refused: {figures['refusals']}, presented "
        "under the killed attempt's token.",
    )
