"""The demo's worker processes: ordinary ``manage.py relay_worker``s, started, killed, ended.

Each is on a leash (leash.py), so that it ends with the demo even when that is killed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from example_project import leash

if TYPE_CHECKING:
    from types import TracebackType

MANAGE = Path(__file__).resolve().parents[1] / "manage.py"
PATIENCE = 5.0  # seconds from SIGTERM to SIGKILL at the end


class WorkerEnded(Exception):
    """A worker ended by itself; the text ends with the last lines of its log."""


@dataclass(frozen=True)
class Member:
    name: str
    process: subprocess.Popen[Any]
    log: Path


class Team:
    """The workers of one demo, by name; ends them all when left."""

    def __init__(self, logs: Path, *, lease: float) -> None:
        self._logs = logs
        self._lease = lease
        self._members: dict[str, Member] = {}
        self._killed: set[str] = set()
        self._leash, self._held = os.pipe()

    def __enter__(self) -> Team:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self._members.values():
            member.process.send_signal(signal.SIGTERM)
        for member in self._members.values():
            try:
                member.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
        os.close(self._leash)
        os.close(self._held)

    def start(self, name: str) -> None:
        """Start one; what it says goes to a log of its own."""
        log = self._logs / f"worker-{name}.log"
        options = ["--lease", f"{self._lease:g}", "--slots", "2", "--grace", "2"]
        with open(log, "wb") as out:
            process = subprocess.Popen(
                [sys.executable, str(MANAGE), "relay_worker", *options],
                env={**os.environ, leash.NAME: str(self._leash)},
                pass_fds=[self._leash],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,  # Ctrl-C is for the demo, which then ends its workers
            )
        self._members[name] = Member(name, process, log)

    def check(self) -> None:
        """Raise WorkerEnded when one is gone that nobody killed."""
        for name, member in self._members.items():
            if name not in self._killed and member.process.poll() is not None:
                raise WorkerEnded(
                    f"Worker {name} ended with code {member.process.returncode}. It said:\n"
                    + "".join(member.log.read_text(errors="replace").splitlines(True)[-15:])
                )

    def kill(self, name: str) -> None:
        """As a crash or the kernel's memory killer would: no chance to clean up."""
        self._killed.add(name)
        self._members[name].process.kill()

    def member_of(self, worker: str) -> str | None:
        """Return the name of the process that calls itself ``worker``: host, pid, random part."""
        for name, member in self._members.items():
            if re.search(rf"(?<!\d){member.process.pid}(?!\d)", worker.rpartition("/")[0]):
                return name
        return None
