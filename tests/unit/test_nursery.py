"""How a child's end is told, whatever ended it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_relay import nursery
from django_relay.heartbeat import Report
from django_relay.messages import Channel
from django_relay.nursery import MUTE, Nursling
from django_relay.supervisor import Supervisor

from .test_hands import plan

Child = Callable[[str], tuple[Nursling, Channel]]


@pytest.fixture
def child() -> Iterator[Child]:
    """Make a child that is ready, and its own end of the channel."""
    ends: list[socket.socket] = []

    def make(name: str) -> tuple[Nursling, Channel]:
        process: Any = None
        ends.extend(socket.socketpair())
        ours, theirs = map(Channel, ends[-2:])
        return Nursling(name, process, ours, lane=False, ready=True), theirs

    yield make
    for end in ends:
        end.close()


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (signal.SIGKILL, "was killed by SIGKILL"),
        (signal.SIGRTMIN, "was killed by SIGRTMIN"),
        (signal.SIGRTMIN + 1, f"was killed by signal {signal.SIGRTMIN + 1}"),
    ],
)
def test_a_child_killed_by_any_signal_is_told(number: int, told: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    os.kill(child.pid, number)
    _, status = os.waitpid(child.pid, 0)
    child.returncode = 0
    assert nursery._change(status) == told


def test_a_child_that_ends_by_itself_is_told() -> None:
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    _, status = os.waitpid(child.pid, 0)
    child.returncode = 0
    assert nursery._change(status) == "exited with code 3"


def test_a_child_that_has_long_read_nothing_still_hears_that_it_is_to_finish(child: Child) -> None:
    nursling, ear = child("one")
    while not nursling.channel.clogged:
        nursling.say({"kind": "wake", "tried": []})
    nursling.say({"kind": "wake", "tried": ["the last"]})
    nursling.say({"kind": "finish", "grace": 1.0})
    heard = []
    while nursling.channel._outgoing or not heard or heard[-1]["kind"] != "finish":
        nursling.channel.flush()
        heard += ear.receive(wait=1.0) or []
    assert heard[-2]["tried"] == [], "what is said again anyway waits for who reads"


def test_a_child_that_may_not_hear_is_woken_only_when_no_other_is_left(child: Child) -> None:
    supervisor = Supervisor(plan(), processes=2, grace=25.0, silence=300.0)
    (busy, ear), (mute, deaf) = child("busy"), child("mute")
    supervisor._children = {"busy": busy, "mute": mute}
    supervisor.reports.add([Report("busy", 1, "token", 0.0, None)])
    supervisor.wake()
    assert deaf.receive(wait=1.0), "it runs the least"
    mute.heard -= 2 * MUTE
    supervisor.wake()
    assert ear.receive(wait=1.0)
    assert deaf.receive() == []
    supervisor.wake(tried=["busy"])
    assert deaf.receive(wait=1.0)
