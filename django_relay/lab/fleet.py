"""The workers of an experiment: real ``relay_worker`` processes of the user's own settings.

They are started, killed, frozen and woken by pid, and ended when the fleet is left, however that
happens; should the lab itself be killed, each is on a leash (launch.py). What they say goes to a
log file each, which is shown when one ends unasked.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from django.core.management.base import CommandError

from django_relay import transitions

from . import ledger
from .places import QUEUE, WORKERS, Place

#: How long a worker may take to start, and to end when asked, in seconds.
START, END = 60.0, 10.0

# Locks nothing: the workers that say they sleep, waiting for jobs.
ATTENDING = """
SELECT id FROM django_relay_worker
WHERE stopped_at IS NULL AND waiting AND queues ?| %(queues)s::text[]
"""


@dataclass(slots=True, eq=False)
class Ship:
    """One worker: its supervisor's process, its log, and whether the lab has ended it."""

    process: subprocess.Popen[Any]
    log: Path
    id: str = ""
    ended: bool = False
    frozen: bool = False

    @property
    def pid(self) -> int:
        """The supervisor's pid."""
        return self.process.pid

    @property
    def said(self) -> str:
        """The end of its log."""
        return "".join(self.log.read_text(errors="replace").splitlines(True)[-15:])

    def owns(self, worker: str) -> bool:
        """Whether a worker's name (host, pid and a random part) is this one's."""
        return re.search(rf"-{self.pid}-[0-9a-f]+(/\d+)?$", worker) is not None


@dataclass(slots=True)
class Fleet:
    """The workers of one experiment. ``flags`` are given to each."""

    place: Place
    directory: Path
    flags: Sequence[str] = ()
    ships: list[Ship] = field(default_factory=list)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    @property
    def ledger(self) -> Path:
        """The file that the handlers append to."""
        return self.directory / "ledger"

    def start(self, *flags: str) -> Ship:
        """Start a worker; ``ready`` waits for it."""
        log = self.directory / f"worker-{len(self.ships) + 1}.log"
        options = ["--backend", self.place.alias, "--queues", QUEUE, *self.flags, *flags]
        with open(log, "wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "django_relay.lab.launch", "relay_worker", *options],
                env=environment(self.ledger),
                stdin=subprocess.PIPE,  # the leash; nobody writes to it
                stdout=out,
                stderr=out,
                start_new_session=True,  # Ctrl-C is for the lab, which then ends its workers
            )
        ship = Ship(process, log)
        self.ships.append(ship)
        return ship

    def ready(self) -> None:
        """Wait until every living worker sleeps, waiting for jobs. Raises CommandError."""
        deadline = time.monotonic() + START
        while missing := [ship for ship in self.alive if not ship.id]:
            self.check()
            self.identify(ATTENDING)
            if time.monotonic() > deadline:
                raise CommandError(f"A worker is not ready after {START:.0f} s.\n{missing[0].said}")
            time.sleep(0.02)

    def identify(self, query: str = WORKERS) -> None:
        """Learn what the workers call themselves that are there by now."""
        rows = self.place.rows(query, queues=[QUEUE])
        for ship in self.ships:
            ship.id = ship.id or next((row[0] for row in rows if ship.owns(row[0])), "")

    def check(self) -> None:
        """Raise CommandError with the end of its log when a worker has ended unasked."""
        for ship in self.ships:
            if not ship.ended and ship.process.poll() is not None:
                raise CommandError(
                    f"A worker ended with code {ship.process.returncode}. It said:\n{ship.said}"
                )

    @property
    def alive(self) -> list[Ship]:
        """The workers that nobody has ended."""
        return [ship for ship in self.ships if not ship.ended]

    def owner(self, worker: str) -> Ship:
        """Return the worker that calls itself so, as leases and events name it."""
        return next(ship for ship in self.ships if ship.owns(worker))

    def kill(self, ship: Ship, pids: Sequence[int], *, with_supervisor: bool = True) -> float:
        """Send SIGKILL to all at once and return when, on the monotonic clock."""
        at = time.monotonic()
        if with_supervisor:
            ship.ended = True
            signal_all([ship.pid], signal.SIGKILL)
        signal_all(pids, signal.SIGKILL)
        if with_supervisor:
            ship.process.wait()
        return at

    def stop(self, ship: Ship) -> None:
        """Ask a worker to stop, and wait for it for a while."""
        ship.ended = True
        signal_all([ship.pid], signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            ship.process.wait(END)

    def end(self) -> None:
        """End all that still runs: asked first, made to after a while."""
        left = [ship for ship in self.ships if ship.process.poll() is None]
        for ship in left:
            ship.ended = True
            children = children_of(ship.pid) if ship.frozen else []
            signal_all([*children, ship.pid], signal.SIGKILL if ship.frozen else signal.SIGTERM)
        deadline = time.monotonic() + END
        for ship in left:
            try:
                ship.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                signal_all([*children_of(ship.pid), ship.pid], signal.SIGKILL)
                ship.process.wait()
        self.place.patiently(self._write_off, None)

    def _write_off(self) -> None:
        """Say good-bye for the killed, or the next experiment would take them for alive."""
        for (worker,) in self.place.rows(WORKERS, queues=[QUEUE]):
            if any(ship.owns(worker) for ship in self.ships):
                transitions.leave(self.place.connection, worker)


def environment(witness: Path) -> dict[str, str]:
    """The environment in which the user's own project is found as this process has found it."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        ledger.VARIABLE: str(witness),
    }


def signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    """Signal each; one that has gone is no error."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def children_of(pid: int) -> list[int]:
    """Return the living children of a process."""
    rows = _on_linux() if Path("/proc/self/stat").exists() else _elsewhere()
    return [int(child) for child, parent, state in rows if int(parent) == pid and state[0] != "Z"]


def _on_linux() -> Iterator[tuple[str, str, str]]:
    """Yield each process, its parent and its state; a slim image has no ``ps``."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            # The name stands in parentheses and may hold any character.
            state, parent = path.read_text(errors="replace").rpartition(")")[2].split()[:2]
            yield path.parent.name, parent, state


def _elsewhere() -> Iterator[tuple[str, str, str]]:
    command = ["ps", "-A", "-o", "pid=,ppid=,stat="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        pid, parent, state = line.split()[:3]
        yield pid, parent, state
