"""A PostgreSQL of this checkout's own, shared by every process that needs one.

``join()`` finds the running server or starts it, and ``borrow()`` starts one that is thrown away
afterwards. Each user holds a shared lock on one file, and the keeper (keeper.py) waits for the
exclusive one: the kernel grants it when the last user has ended, however it ended, and the keeper
stops the server. Nobody counts, polls or cleans up. Needs only the standard library; kept out are
where the programs are (binaries.py) and how a database is laid out on disk (cluster.py).
"""

from __future__ import annotations

import functools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import binaries, cluster
from .binaries import ServerUnavailable
from .locks import Lock

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Seat", "ServerUnavailable", "borrow", "join", "start_again"]

PATIENCE = 60.0  # seconds that a slow machine may take to start a server, or to end the last one


@dataclass(frozen=True)
class Seat:
    """A place at a server: it runs at least until ``leave()`` or the end of this process."""

    url: str
    lock: Lock

    def leave(self) -> None:
        self.lock.release()


@functools.cache
def join() -> Seat:
    """Use the server of this checkout, whose data stay for the next time; start it if need be.

    Raises ServerUnavailable, with the remedy in its text.
    """
    directory = cluster.home() / "demo"
    cluster.make_directory(directory)
    return _sit_down(directory, lasting=True)


def start_again() -> None:
    """Start the server of this checkout after it was stopped; our place at it is still ours.

    Raises ServerUnavailable, with the remedy in its text.
    """
    _sit_down(cluster.home() / "demo", lasting=True).leave()


def borrow() -> Seat:
    """Start a server for this process alone; it and its data go when the process ends.

    It trades safety for speed (no fsync). Raises ServerUnavailable, with the remedy in its text.
    """
    home = cluster.home()
    with _alone(home / "borrowed.lock"):
        for left in home.glob("borrowed-*"):
            _clear_away(left)
        directory = Path(tempfile.mkdtemp(prefix="borrowed-", dir=home))
        cluster.make_directory(directory)
        return _sit_down(directory, lasting=False)


def _sit_down(directory: Path, *, lasting: bool) -> Seat:
    deadline = time.monotonic() + PATIENCE
    seat = Lock(directory / "users.lock")
    # Refused only while a keeper is ending its server; then a new server is wanted.
    while not seat.share():
        _pause(deadline, f"the server in {directory} does not end")
    try:
        while (url := _running(directory)) is None:
            with _alone(directory / "start.lock"):
                if _running(directory) is None and not _kept(directory):
                    _start(directory, lasting=lasting)
            if _running(directory) is None:
                _pause(deadline, f"the server in {directory} does not answer")
    except BaseException:
        seat.release()
        raise
    return Seat(url, seat)


def _kept(directory: Path) -> bool:
    """Whether a keeper lives: it holds its own lock for as long as it does."""
    probe = Lock(directory / "keeper.lock")
    free = probe.share()
    probe.release()
    return not free


def _running(directory: Path) -> str | None:
    """The URL of the server that is up, or None."""
    if not _kept(directory):
        return None
    try:
        port = json.loads((directory / "server.json").read_text())["port"]
    except (FileNotFoundError, ValueError):
        return None
    password = (directory / "password").read_text()
    return f"postgres://{cluster.OWNER}:{password}@127.0.0.1:{port}/{cluster.DATABASE}"


def _start(directory: Path, *, lasting: bool) -> None:
    """Lay out the data where there are none, and leave a keeper behind that runs the server."""
    (directory / "server.json").unlink(missing_ok=True)
    account = cluster.account()
    programs = binaries.usable_by(
        account, binaries.find(), copies=cluster.home().parent / "programs"
    )
    data = cluster.ensure(directory, programs, account, lasting=lasting)
    order = {
        "directory": str(directory),
        "data": str(data),
        "postgres": str(programs / "postgres"),
        "account": None if account is None else [account.uid, account.gid],
        "settings": cluster.settings(lasting=lasting),
        "lasting": lasting,
    }
    keeper = subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(__file__).with_name("keeper.py")), json.dumps(order)],
        cwd=directory,
        env=cluster.clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    with keeper:  # it forks and this first process ends at once, so nobody has to wait for it later
        assert keeper.stdout is not None  # noqa: S101
        heard, _, _ = select.select([keeper.stdout], [], [], PATIENCE)
        answer = keeper.stdout.readline().decode(errors="replace").strip() if heard else "silence"
        if answer not in ("ready", "taken"):
            more = keeper.stdout.read().decode(errors="replace") if heard else ""
            raise ServerUnavailable(
                f"PostgreSQL did not start: {answer}\n{more}{_end_of(directory / 'server.log')}"
            )


def _end_of(log: Path) -> str:
    try:
        return "".join(log.read_text(errors="replace").splitlines(keepends=True)[-10:])
    except FileNotFoundError:
        return ""


def _clear_away(directory: Path) -> None:
    """Remove what a borrowed server left whose keeper was killed with its user."""
    try:
        lock = Lock(directory / "users.lock")
    except FileNotFoundError:  # its keeper has just done so
        return
    if lock.claim():
        shutil.rmtree(directory, ignore_errors=True)
    lock.release()


def _pause(deadline: float, trouble: str) -> None:
    if time.monotonic() > deadline:
        raise ServerUnavailable(f"{trouble}; set DATABASE_URL to use another")
    time.sleep(0.05)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time; the kernel frees the lock of one that is killed."""
    lock = Lock(path)
    deadline = time.monotonic() + PATIENCE
    try:
        while not lock.claim():
            _pause(deadline, f"another process holds {path}")
        yield
    finally:
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Lock.let_go_after_fork)
