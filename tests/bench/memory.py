"""Whether a worker grows: resident memory of supervisor and child over 100,000 jobs."""

from __future__ import annotations

import time
from typing import Any

from . import crew, ground
from .cost import enqueue_many


def run(*, jobs: int = 100_000, chunk: int = 10_000, slots: int = 4) -> dict[str, Any]:
    """Run jobs in chunks and read the memory of supervisor and child after each.

    ``growth_last_half_kb`` is what came on top over the last half of the jobs, together.
    """
    with (
        ground.databases("default"),
        crew.worker("--processes", "1", "--slots", str(slots)) as worker,
    ):
        readings = []
        for start in range(0, jobs, chunk):
            enqueue_many(chunk)
            crew.until(crew.drained, "the jobs have run")
            time.sleep(0.5)
            sizes = [crew.resident(pid) for pid in worker.group]
            readings.append(
                {"jobs": start + chunk, "supervisor_kb": sizes[0], "child_kb": sizes[1]}
            )
    sums = [reading["supervisor_kb"] + reading["child_kb"] for reading in readings]
    return {"readings": readings, "growth_last_half_kb": sums[-1] - sums[len(sums) // 2 - 1]}
