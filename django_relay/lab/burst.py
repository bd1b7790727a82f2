"""Measure a burst: throughput beside what the handler reaches alone, and how long jobs queue.

Each configuration is one worker that waits, warmed up, when the submission begins. Counted is all
of it: from before the first enqueue until the last job has ended. Before each, in the same run,
the handler alone is timed at the same processes and slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from django.core.management.base import CommandError
from django.db import transaction

from django_relay import recording, transitions
from django_relay.transitions import NewJob

from . import ceiling, places, repeats
from .fleet import Fleet
from .repeats import Rule, repeated, typical
from .result import Result
from .stage import Stage

#: The burst's job: it waits so long, in seconds, and chains so many rounds of SHA-256.
WAIT, ROUNDS = 0.010, 1000
#: One slot, four slots, and twelve slots across three processes.
SLOTS, PROCESSES = (1, 4, 4), (1, 1, 3)
#: How long a configuration may take, in seconds for each job.
PATIENCE = 1.0
#: How often to look whether all is done, in seconds. The end itself is read from the jobs: looking
#: takes from what is measured.
LOOK = 0.25
CHUNK = 2000
#: Jobs of one call where they are submitted in bulk.
BULK = 1000

LEFT = """
SELECT EXISTS (
  SELECT 1 FROM django_relay_job
  WHERE id > %(after)s AND queue = %(queue)s AND finished_at IS NULL
)
"""
WORKERS = """
SELECT count(DISTINCT e.worker) FROM django_relay_event AS e
WHERE e.job_id > %(after)s AND e.kind = 'claimed'
"""
# Locks nothing. Milliseconds from enqueue, by the database's clock; and when the last one ended.
TIMES = """
SELECT
  EXTRACT(EPOCH FROM max(finished_at))::float8,
  percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (
    ORDER BY EXTRACT(EPOCH FROM started_at - enqueued_at)::float8 * 1000
  ),
  percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (
    ORDER BY EXTRACT(EPOCH FROM finished_at - enqueued_at)::float8 * 1000
  ),
  count(*) FILTER (WHERE state = 'successful')
FROM django_relay_job WHERE id > %(after)s AND queue = %(queue)s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """``slots`` are of each process; ``slots`` and ``processes`` go pair by pair."""

    jobs: int
    slots: tuple[int, ...] | None
    processes: tuple[int, ...] | None
    submit: str
    noop: bool
    backlog: int
    finished: int
    repeat: int

    def configurations(self) -> list[tuple[int, int]]:
        """Return pairs of processes and slots. Raises CommandError where they do not pair."""
        slots, processes = self.slots, self.processes
        if slots is None and processes is None:
            slots, processes = SLOTS, PROCESSES
        slots, processes = slots or (1,), processes or (1,)
        if len(processes) == 1:
            processes *= len(slots)
        if len(slots) == 1:
            slots *= len(processes)
        if len(slots) != len(processes):
            raise CommandError("--slots and --processes must name as many numbers each.")
        return list(zip(processes, slots, strict=True))


def _same(values: Sequence[Any]) -> Any:
    return values[0]


RULES: dict[str, Rule] = {
    "processes": _same,
    "slots": _same,
    "jobs": _same,
    "done": min,
    "jobs_per_second": typical,
    "ceiling_jobs_per_second": typical,
    "share": typical,
    "submit_seconds": typical,
    "start_ms": typical,
    "finish_ms": typical,
}


def run(stage: Stage, wishes: Wishes) -> Result:
    """Measure each configuration in turn, as often as wished."""
    configurations = wishes.configurations()
    _furnish(stage, wishes)
    rows = []
    # Nothing is no yardstick: beside it, any queue's share is near zero.
    told = partial(_told, compared=not wishes.noop)
    for processes, slots in configurations:
        once = partial(_measure, stage, wishes, processes, slots)
        found = repeated(stage, wishes.repeat, once, told)
        rows.append(repeats.figures(found, RULES, measure="jobs_per_second"))
    made = recording.summary(
        stage.place.connection,
        experiment="burst",
        settings=asdict(wishes),
        figures={"configurations": rows},
    )
    wrong = [f"{row['jobs'] - row['done']} jobs did not succeed" for row in rows]
    lines = [f"{wishes.jobs} jobs per configuration, submission and queue drain included."]
    if wishes.repeat > 1:
        lines.append(f"Each figure is the median of {wishes.repeat} runs.")
    problems = (text for text, row in zip(wrong, rows, strict=True) if row["done"] != row["jobs"])
    return Result(made, (*lines, *(told(row) for row in rows)), tuple(problems))


def _measure(stage: Stage, wishes: Wishes, processes: int, slots: int) -> dict[str, Any]:
    work = (0.0, 0) if wishes.noop else (WAIT, ROUNDS)
    alone = ceiling.measure(
        processes=processes, slots=slots, jobs=wishes.jobs, wait=work[0], rounds=work[1]
    )
    flags = ["--processes", str(processes), "--slots", str(slots), "--verbosity", "0"]
    with stage.fleet(*flags) as workers:
        workers.start()
        workers.ready()
        _warm_up(stage, workers, processes, slots)
        after = stage.place.last()
        began = stage.clock.now()
        _submit(wishes)
        submitted = stage.clock.now() - began
        _drain(stage, workers, after, wishes.jobs)
    ended, start, finish, done = stage.place.rows(TIMES, after=after, queue=places.QUEUE)[0]
    reached = wishes.jobs / (ended - began)
    return {
        "processes": processes,
        "slots": slots,
        "jobs": wishes.jobs,
        "done": done,
        "jobs_per_second": round(reached, 1),
        "ceiling_jobs_per_second": round(alone, 1),
        "share": round(reached / alone, 4),
        "submit_seconds": round(submitted, 3),
        "start_ms": _ranks(start),
        "finish_ms": _ranks(finish),
    }


def _ranks(values: list[float]) -> dict[str, float]:
    return dict(zip(("p50", "p95", "p99"), (round(each, 1) for each in values), strict=True))


def _submit(wishes: Wishes) -> None:
    """Enqueue all: a call and a commit for each, or for each thousand."""
    from . import tasks

    task: Any = tasks.noop if wishes.noop else tasks.burn
    call = () if wishes.noop else (WAIT, ROUNDS)
    if wishes.submit == "one":
        for _ in range(wishes.jobs):
            task.enqueue(*call)
        return
    for start in range(0, wishes.jobs, BULK):
        task.enqueue_many([call] * min(BULK, wishes.jobs - start))


def _warm_up(stage: Stage, workers: Fleet, processes: int, slots: int) -> None:
    """Have every process run something, so that none is still importing when the burst comes."""
    from .tasks import burn

    after = stage.place.last()

    def all_took_part() -> bool:
        for _ in range(processes * slots):
            burn.enqueue(0.05, 0)
        _drain(stage, workers, after, processes * slots)
        return bool(stage.place.rows(WORKERS, after=after)[0][0] >= processes)

    stage.until(all_took_part, "every process has run a job", within=60, fleet=workers)


def _drain(stage: Stage, workers: Fleet, after: int, jobs: int) -> None:
    def drained() -> bool:
        return not stage.place.rows(LEFT, after=after, queue=places.QUEUE)[0][0]

    within = 30 + PATIENCE * jobs
    stage.until(drained, "the queue is empty", within=within, fleet=workers, pause=LOOK)


def _furnish(stage: Stage, wishes: Wishes) -> None:
    """Put as many waiting jobs of another queue, and finished ones, into the tables as wished."""
    for count, finished in ((wishes.finished, True), (wishes.backlog, False)):
        for start in range(0, count, CHUNK):
            ids = _fill(stage, min(CHUNK, count - start))
            if finished:
                transitions.cancel(stage.place.connection, ids, actor=places.ACTOR)
        if count:
            stage.say(f"{count} {'finished' if finished else 'waiting'} jobs are there")


def _fill(stage: Stage, count: int) -> list[int]:
    job = NewJob(
        backend=stage.place.alias,
        queue=places.BACKLOG,
        task="django_relay.lab.tasks.noop",
        args="[]",
        kwargs="{}",
        notify=False,
    )
    with transaction.atomic(using=stage.place.database):
        return [transitions.enqueue(stage.place.connection, job).id for _ in range(count)]


def _told(row: dict[str, Any], *, compared: bool) -> str:
    total = row["processes"] * row["slots"]
    across = f" across {row['processes']} processes" if row["processes"] > 1 else ""
    start, finish = row["start_ms"], row["finish_ms"]
    share = f", {100 * row['share']:.0f} % of {row['ceiling_jobs_per_second']:,.1f} with no queue"
    return (
        f"{total} {'slot' if total == 1 else 'slots'}{across}: {row['jobs_per_second']:,.1f} jobs/s"
        f"{share if compared else ''}; "
        f"enqueue to start p50 {start['p50']:,.0f}, p95 {start['p95']:,.0f}, "
        f"p99 {start['p99']:,.0f} ms; to finish p50 {finish['p50']:,.0f}, "
        f"p95 {finish['p95']:,.0f}, p99 {finish['p99']:,.0f} ms"
    )
