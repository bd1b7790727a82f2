"""Restarts the server of one test for the lab, which is what a project gives it to allow that."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from example_project import embedded

from .waiting import wait_until

MODES = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


def restart(mode: str) -> None:
    """Stop the server that RELAY_TEST_SERVER names in this mode, and start it again."""
    directory = Path(os.environ["RELAY_TEST_SERVER"])
    told = directory / "server.json"
    os.kill(json.loads(told.read_text())["postgres"], MODES[mode])
    wait_until(lambda: not told.exists(), 30, what="the server's end")
    embedded._sit_down(directory, lasting=True).leave()
