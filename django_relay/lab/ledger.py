"""The witness outside of the queue: handlers append to a file that they begin and that they end.

One line a mark, appended with one write, so that lines of several processes do not mix and a
killed process leaves whole lines. Times are on the monotonic clock, which the processes of a host
share. Needs neither Django nor a database.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

#: Where the workers of an experiment write; set in their environment by the lab.
VARIABLE = "RELAY_LAB_LEDGER"


@dataclass(frozen=True, slots=True)
class Line:
    """One mark: ``begin`` or ``end``, of which claim of which job, in which process, when."""

    mark: str
    job: int
    claim: int
    pid: int
    parent: int
    at: float


def write(mark: str, job: int, claim: int) -> None:
    """Append a mark. Raises KeyError outside of an experiment."""
    line = f"{mark} {job} {claim} {os.getpid()} {os.getppid()} {time.monotonic():.6f}\n"
    file = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def read(path: Path) -> list[Line]:
    """Read all marks, oldest first."""
    try:
        text = path.read_text(encoding="ascii")
    except FileNotFoundError:
        return []
    return [_line(line) for line in text.splitlines()]


def _line(text: str) -> Line:
    mark, job, claim, pid, parent, at = text.split(" ")
    return Line(mark, int(job), int(claim), int(pid), int(parent), float(at))
