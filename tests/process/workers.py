"""One ``relay_worker`` under test: its processes, its log, and the harm one may do to it.

The group is the supervisor and every child, each signalled by its pid. Children are found by their
parent, through ``ps``, and not by what they call themselves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


class Worker:
    """A worker process with its own log file. ``own`` is a queue that no other worker serves."""

    def __init__(
        self,
        name: str,
        log: Path,
        *,
        queues: Sequence[str] | None = ("default",),
        slots: int = 1,
        processes: int = 1,
        flags: Sequence[str] = (),
        env: Mapping[str, str],
        wrapped: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.log = log
        self.own = f"only-{name}"
        self.capacity = slots * processes
        #: Whether the case provokes tracebacks in the log.
        self.provoked = False
        self._wrapped = bool(wrapped)
        command = [sys.executable, "-m", "django", "relay_worker"]
        if queues is not None:
            command += ["--queues", ",".join([*queues, self.own])]
        command += ["--slots", str(slots), "--processes", str(processes), *flags]
        with open(log, "ab") as out:
            self.process = subprocess.Popen(
                [*wrapped, *command],
                cwd=ROOT,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    # What it is ----------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The supervisor's pid; under a wrapper (unshare) that is the wrapper's only child."""
        if not self._wrapped:
            return self.process.pid
        return wait_until(lambda: children_of(self.process.pid), 10, what="the wrapper's child")[0]

    @property
    def children(self) -> list[int]:
        """The pids of its child processes."""
        return children_of(self.pid)

    @property
    def group(self) -> list[int]:
        """The supervisor, then every child."""
        return [self.pid, *self.children]

    @property
    def said(self) -> str:
        """Its log so far."""
        return self.log.read_text(errors="replace")

    @property
    def alive(self) -> bool:
        """Whether its supervisor runs, as far as waiting for it can tell."""
        return self.process.poll() is None

    # What is done to it --------------------------------------------------------------------------

    def signal(self, number: signal.Signals) -> None:
        """Signal the supervisor."""
        os.kill(self.pid, number)

    def wait(self, deadline: float) -> int:
        """Wait for its end and return the exit code; fail after ``deadline`` seconds."""
        try:
            return self.process.wait(deadline)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"worker {self.name} runs after {deadline:g} s") from None

    def stop(self, deadline: float = 20) -> int:
        """Ask it to stop with SIGTERM, wait for its end and return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(deadline)

    def end(self) -> None:
        """Kill whatever is left of it."""
        if self.process.poll() is None:
            pids = [*self.group, self.process.pid] if self._wrapped else self.group
            send(pids, signal.SIGKILL)
        self.process.wait()


def send(pids: Sequence[int], number: signal.Signals) -> None:
    """Signal each pid; one that has gone is no error."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def children_of(pid: int) -> list[int]:
    """Return the living children of a process, oldest first."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
    )
    found = []
    for line in listed.stdout.splitlines():
        child, parent, state = line.split()[:3]
        if int(parent) == pid and not state.startswith("Z"):
            found.append(int(child))
    return sorted(found)


def runs(pid: int) -> bool:
    """Whether there is a process with this pid that has not ended."""
    listed = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return bool(listed.stdout.strip()) and not listed.stdout.strip().startswith("Z")
