"""Start child processes and learn what becomes of them.

A child is a plain new interpreter with the same settings module and import path, in a session of
its own, so that a Ctrl-C in a terminal reaches the supervisor alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

from .messages import Channel, Message, Plan

_START = (
    "import json, sys; start = json.loads(sys.argv.pop(1)); sys.path[:] = start['path']; "
    "import django; django.setup(); from django_relay.child import main; main(start['descriptor'])"
)


#: Who has said nothing for so long may not hear either, in seconds: each says that it lives once a
#: second, but for those whose handler keeps the interpreter to itself.
MUTE = 2.5
#: What is said once, as is which leases are gone. Other messages are said again, so that who does
#: not read them misses nothing.
ORDERS = {"finish", "lanes"}


@dataclass(slots=True, eq=False)
class Nursling:
    """One child process as its supervisor knows it."""

    name: str
    process: subprocess.Popen[bytes]
    channel: Channel
    lane: bool
    heard: float = field(default_factory=time.monotonic)
    ready: bool = False
    idle: bool = False
    leaving: bool = False
    stopped: bool = False
    closed: bool = False
    killed: bool = False

    @property
    def usable(self) -> bool:
        """Whether it can take jobs now."""
        return self.ready and not (self.leaving or self.stopped or self.closed)

    def say(self, message: Message) -> None:
        """Say something without waiting; a child that has stopped reading hears orders alone."""
        if message["kind"] == "wake":
            self.idle = False  # it may claim at once, and says again when it is
        order = message["kind"] in ORDERS or message.get("gone")
        if not self.closed and (order or not self.channel.clogged):
            self.channel.post(**message)

    @property
    def mute(self) -> bool:
        """Whether it may not hear."""
        return self.silent_for(time.monotonic()) > MUTE

    def kill(self) -> None:
        """Kill it, whatever it does."""
        if not self.killed:
            self.killed = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)

    def silent_for(self, now: float) -> float:
        """How long it has said nothing, in seconds; importing a project may take its time."""
        return now - self.heard


def spawn(plan: Plan) -> Nursling:
    """Start a child and tell it its plan."""
    ours, theirs = socket.socketpair()
    with theirs:
        start = {"descriptor": theirs.fileno(), "path": sys.path}
        process = subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps(start)],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    channel = Channel(ours)
    channel.post(kind="plan", plan=asdict(plan))
    return Nursling(plan.worker, process, channel, plan.lane)


def reap(children: Mapping[str, Nursling]) -> Iterator[tuple[str, str]]:
    """Yield (name, what happened) for children that died, were stopped or go on.

    As process 1 also collects orphans that others left, which is that process's duty.
    """
    names = {child.process.pid: name for name, child in children.items()}
    pids = [-1] if os.getpid() == 1 else list(names)
    for asked in pids:
        while True:
            try:
                pid, status = os.waitpid(asked, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in names:
                change = _change(status)
                if change not in ("stopped", "continued"):
                    children[names[pid]].process.returncode = os.waitstatus_to_exitcode(status)
                yield names[pid], change
                if change not in ("stopped", "continued"):
                    break


def _change(status: int) -> str:
    if os.WIFSTOPPED(status):
        return "stopped"
    if os.WIFCONTINUED(status):
        return "continued"
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has no name
        return f"was killed by signal {-code}"
