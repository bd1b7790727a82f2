"""Runs one PostgreSQL for as long as anybody uses it; a program of its own, started detached.

It holds ``keeper.lock`` while it lives. Every user holds a shared lock on ``users.lock``; a thread
waits in the kernel for the exclusive one and gets it when the last user has ended. Then, and on
SIGTERM, the server is told to stop. PostgreSQL is its direct child, waited for, and on Linux told
by the kernel to stop should the keeper itself be killed. Imports nothing of this project.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 50.0  # seconds for PostgreSQL to recover from a crash and come up


def main(order: dict[str, Any]) -> int:
    directory, data = Path(order["directory"]), Path(order["data"])
    lock = _hold(directory / "keeper.lock")
    if lock is None:
        _answer("taken")
        return 1
    try:
        _end_orphan(data)
        server, port = _start(order, directory, data)
    except RuntimeError as trouble:
        _answer(str(trouble))
        return 1

    def stop(*_: object) -> None:
        server.send_signal(signal.SIGINT)

    signal.signal(signal.SIGTERM, stop)
    _write(directory / "port", str(port))
    _write(directory / "server.json", json.dumps({"port": port, "postgres": server.pid}))
    _answer("ready")
    threading.Thread(target=_wait_for_users, args=(directory, stop), daemon=True).start()
    server.wait()
    (directory / "server.json").unlink(missing_ok=True)
    if not order["lasting"]:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


def _hold(path: Path) -> int | None:
    """Take the lock for good; those who only look at it have it for a moment at most."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(50):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return fd
    return None


def _answer(text: str) -> None:
    """Tell the process that started us, if it still listens, and let go of its pipe."""
    try:
        print(text, flush=True)
    except OSError:
        pass
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)


def _wait_for_users(directory: Path, stop: Callable[[], None]) -> None:
    users = os.open(directory / "users.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(users, fcntl.LOCK_EX)  # newcomers wait from here on, until this process is gone
    stop()


def _start(order: dict[str, Any], directory: Path, data: Path) -> tuple[subprocess.Popen[Any], int]:
    """Start the server on the port it had the last time, if that is free, and wait for it."""
    port = _remembered(directory)
    for _ in range(3):
        port = _free(port)
        server = _spawn(order, directory, data, port)
        deadline = time.monotonic() + PATIENCE
        while server.poll() is None:
            if _ready(data, server.pid):
                return server, port
            if time.monotonic() > deadline:
                server.send_signal(signal.SIGQUIT)
                server.wait()
                raise RuntimeError(f"PostgreSQL was not ready within {PATIENCE:.0f} s")
            time.sleep(0.02)
        port = 0  # somebody may have taken the port in between
        time.sleep(0.3)  # or the last sessions of a killed server are still about to end
    raise RuntimeError(f"PostgreSQL ended at once with code {server.returncode}")


def _spawn(order: dict[str, Any], directory: Path, data: Path, port: int) -> subprocess.Popen[Any]:
    keeper = os.getpid()
    linux = ctypes.CDLL(None) if sys.platform == "linux" else None

    def die_with_keeper() -> None:
        if linux is not None:
            linux.prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG: a fast shutdown
            if os.getppid() != keeper:
                os._exit(1)

    flags = [part for pair in order["settings"].items() for part in ("-c", "=".join(pair))]
    who: dict[str, Any] = {}
    if order["account"] is not None:
        uid, gid = order["account"]
        who = {"user": uid, "group": gid, "extra_groups": []}
    with open(directory / "server.log", "wb") as log:
        return subprocess.Popen(
            [order["postgres"], "-D", str(data), "-p", str(port), *flags],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=die_with_keeper,  # the main thread spawns, and it lives as long as we do
            **who,
        )


def _ready(data: Path, server: int) -> bool:
    """PostgreSQL writes its state on the eighth line of its pid file; a killed one leaves it."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
        return int(lines[0]) == server and lines[7].strip() == "ready"
    except (OSError, IndexError, ValueError):
        return False


def _end_orphan(data: Path) -> None:
    """Stop a server that outlived its keeper; its users find the new one at the same port.

    The lock tells that no keeper owns it, and only a keeper could see when its users have ended.
    """
    path = data / "postmaster.pid"
    try:
        pid = int(path.read_text().splitlines()[0])
    except (OSError, ValueError, IndexError):
        return
    try:
        os.kill(pid, 0)
    except OSError:
        return
    if str(data) not in _command_of(pid):
        path.unlink()  # the number belongs to another program by now, which PostgreSQL cannot see
        return
    os.kill(pid, signal.SIGINT)
    deadline = time.monotonic() + PATIENCE
    while path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        asked = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout


def _remembered(directory: Path) -> int:
    try:
        return int((directory / "port").read_text())
    except (OSError, ValueError):
        return 0


def _free(port: int) -> int:
    """Return the port if nobody has it, else any free one."""
    for wanted in (port, 0):
        with socket.socket() as probe:
            # As PostgreSQL does: connections that linger from before do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", wanted))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise RuntimeError("no free port on 127.0.0.1")


def _write(path: Path, text: str) -> None:
    """Whole or not at all, for readers who look at any moment."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    new.replace(path)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)  # the child is nobody's child: no zombie is left to whoever started us
    os._exit(main(json.loads(sys.argv[1])))
