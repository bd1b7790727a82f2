"""How a child's end is told, whatever ended it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from django_relay import nursery


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
