"""The oracle: handlers write down that they began, and nothing of the product is asked.

Each mark goes through a psycopg session of its own, in autocommit, with the database's time. Where
the database is down on purpose, RELAY_LEDGER_FILE names a file that is appended to instead, with
the host's time. Writing needs no Django, reading neither.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psycopg

TABLE = """
CREATE TABLE ledger (
  id bigint GENERATED ALWAYS AS IDENTITY,
  job_id bigint, claim integer, pid integer, mark text, at timestamptz DEFAULT clock_timestamp()
)
"""


@dataclass(frozen=True, slots=True)
class Mark:
    """One line of the ledger."""

    job_id: int
    claim: int
    pid: int
    mark: str
    at: datetime


def write(mark: str) -> None:
    """Write ``mark`` for the job that runs here."""
    from django_relay import current_job

    job = current_job()
    assert job is not None
    line = (*job.fence, os.getpid(), mark)
    path = os.environ.get("RELAY_LEDGER_FILE")
    if path:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            now = datetime.now(UTC).isoformat()
            os.write(fd, (" ".join(map(str, (*line, now))) + "\n").encode())
        finally:
            os.close(fd)
        return
    with psycopg.connect(os.environ["RELAY_LEDGER"], autocommit=True) as session:
        session.execute(
            "INSERT INTO ledger (job_id, claim, pid, mark) VALUES (%s, %s, %s, %s)", line
        )


def count(mark: str) -> int:
    """Count the lines with this mark, from within a handler."""
    path = os.environ.get("RELAY_LEDGER_FILE")
    marks = read_file(path) if path else read(os.environ["RELAY_LEDGER"])
    return sum(each.mark == mark for each in marks)


def read(url: str) -> list[Mark]:
    """Read the whole table, oldest first."""
    with psycopg.connect(url, autocommit=True) as session:
        rows = session.execute("SELECT job_id, claim, pid, mark, at FROM ledger ORDER BY id")
        return [Mark(*row) for row in rows]


def read_file(path: str | os.PathLike[str]) -> list[Mark]:
    """Read the file, oldest first."""
    marks = []
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    for line in lines:
        job_id, claim, pid, rest = line.split(" ", 3)
        mark, at = rest.rsplit(" ", 1)
        marks.append(Mark(int(job_id), int(claim), int(pid), mark, datetime.fromisoformat(at)))
    return marks
