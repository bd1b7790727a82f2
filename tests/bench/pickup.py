"""How soon an idle worker starts a job: from the enqueue's commit to the handler's first line."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from . import crew, ground, tasks


def run(
    *, jobs: int = 200, pause: float = 0.1, processes: int = 1, slots: int = 4
) -> dict[str, Any]:
    """Enqueue a job every ``pause`` seconds into an idle worker with default settings.

    ``enqueue_ms`` is the caller's part: validation, one statement, its commit.
    """
    with ground.databases("default"), tempfile.TemporaryDirectory() as directory:
        marks = Path(directory) / "marks"
        flags = ("--processes", str(processes), "--slots", str(slots))
        with crew.worker(*flags, BENCH_MARKS=str(marks)):
            _enqueue(20, pause, first=-20)  # the first of each child imports the task
            spent = _enqueue(jobs, pause, first=0)
            crew.until(crew.drained, "the jobs have run")
        began = dict(_read(line) for line in marks.read_text().splitlines())
    waits = [(began[number] - committed) * 1000 for number, (_, committed) in spent.items()]
    calls = [(committed - asked) * 1000 for asked, committed in spent.values()]
    return {"start_ms": ground.rank(waits, 50, 95, 100), "enqueue_ms": ground.rank(calls, 50, 95)}


def _enqueue(count: int, pause: float, *, first: int) -> dict[int, tuple[float, float]]:
    times = {}
    for number in range(first, first + count):
        asked = time.monotonic()
        tasks.mark.enqueue(number)
        times[number] = (asked, time.monotonic())
        time.sleep(max(0.0, pause - (time.monotonic() - asked)))
    return times


def _read(line: str) -> tuple[int, float]:
    number, began = line.split()
    return int(number), float(began)
