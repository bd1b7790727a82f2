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

from . import clock, fleet
from .fleet import Fleet
from .ledger import Line
from .result import Result, percentiles, spread
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


@dataclass(frozen=True, slots=True)
class Run:
    """One crash: the job, when the kill was (in seconds since 1970), whom it hit, the figures."""

    job: int
    killed: tuple[float, str, str]
    seconds: float
    attempts: int
    refusals: int


def run(stage: Stage, wishes: Wishes) -> Result:
    """Crash as often as wished; the recording is that of the first."""
    flags = ["--lease", f"{wishes.lease:g}", "--slots", "1", "--grace", "2"]
    runs = []
    with stage.fleet(*flags) as workers, Sampler(stage.place) as sampler:
        for number in range(1, wishes.repeat + 1):
            for _ in range(2 - len(workers.alive)):
                workers.start()
            workers.ready()
            runs.append(_crash(stage, workers, wishes))
            stage.say(f"{number} of {wishes.repeat}: {runs[-1].seconds:.3f} s from kill to success")
        seen = sampler.seen
    made = recording.record(
        stage.place.connection,
        [runs[0].job],
        experiment="crash",
        seen=seen,
        marks=[runs[0].killed],
        settings=asdict(wishes),
        figures=_figures(runs),
    )
    return Result(made, _told(wishes, runs))


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
    return Run(
        job=job,
        killed=(at, f"SIGKILL to {WHAT[wishes.kill]}", whom),
        seconds=round(ended[0][2] - at, 3),
        attempts=len(stage.events([job], "claimed")),
        refusals=len(stage.events([job], "refused")),
    )


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


def _figures(runs: list[Run]) -> dict[str, Any]:
    seconds = [run.seconds for run in runs]
    ranks = percentiles(seconds)
    figures: dict[str, Any] = {
        "kill_to_success_seconds": ranks["p50"],
        "attempts": max(run.attempts for run in runs),
        "refusals": sum(run.refusals for run in runs),
    }
    if len(runs) > 1:
        figures |= {"repeats": len(runs), "distribution": ranks, "runs": seconds}
    return figures


def _told(wishes: Wishes, runs: list[Run]) -> tuple[str, ...]:
    figures = _figures(runs)
    job = f"a job of {wishes.job_seconds:g} s, a lease of {wishes.lease:g} s"
    seconds = f"{figures['kill_to_success_seconds']:.3f} s from the kill to the job's success"
    if len(runs) > 1:
        seconds = f"from kill to success, {len(runs)} times: {spread(figures['distribution'], 's')}"
    return (
        f"Killed {WHAT[wishes.kill]} with SIGKILL: {job}.",
        f"{seconds[0].upper()}{seconds[1:]}.",
        f"Attempts: {figures['attempts']}. Late endings refused: {figures['refusals']}.",
    )
