"""The jobs of the measurements. BENCH_MARKS names the file where a job leaves word of its start."""

from __future__ import annotations

import os
import time

from django_relay import task


@task
def noop() -> None:
    """Do nothing, so that only the queue is measured."""


@task
def mark(number: int) -> None:
    """Write down when this handler began, on the clock that all processes of a machine share."""
    line = f"{number} {time.monotonic()}\n"
    file = os.open(os.environ["BENCH_MARKS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(file, line.encode())
    os.close(file)
