"""A real ``relay_worker`` to measure: started, waited for, and read from /proc. Linux only."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.db import connection

ROOT = Path(__file__).resolve().parents[2]
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Worker:
    """A supervisor's process."""

    process: subprocess.Popen[bytes]

    @property
    def group(self) -> list[int]:
        """The supervisor's pid, and its children's."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task")
        found = [pid]
        for task in children.iterdir():
            found += map(int, (task / "children").read_text().split())
        return found


@contextmanager
def worker(*flags: str, **environment: str) -> Iterator[Worker]:
    """Run a worker that sleeps, waiting for jobs, when the block begins; stop it afterwards."""
    command = [sys.executable, "-m", "django", "relay_worker", "--verbosity", "0", *flags]
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **environment}, start_new_session=True
    )
    try:
        until(lambda: _waiting() or process.poll() is not None, "a worker waits for jobs")
        if process.poll() is not None:
            raise SystemExit(f"the worker ended with code {process.returncode}")
        yield Worker(process)
    finally:
        process.terminate()
        process.wait(30)


def _waiting() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT 1 FROM django_relay_worker WHERE waiting)")
        return bool(cursor.fetchone()[0])


def until(condition: Callable[[], bool], what: str, *, within: float = 600.0) -> None:
    """Wait for a condition."""
    end = time.monotonic() + within
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"waited {within:g} s in vain until {what}")
        time.sleep(0.01)


def drained() -> bool:
    """Whether no job is left to run."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT NOT EXISTS (SELECT 1 FROM django_relay_job WHERE state = 'ready')"
            " AND NOT EXISTS (SELECT 1 FROM django_relay_lease)"
        )
        return bool(cursor.fetchone()[0])


def processor_seconds(pids: Sequence[int]) -> float:
    """Return the processor time that processes have taken so far; none of one elsewhere."""
    total = 0
    for pid in pids:
        if not Path(f"/proc/{pid}").exists():
            continue
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def resident(pid: int) -> int:
    """Return the resident memory of a process in kilobytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise ProcessLookupError(pid)
