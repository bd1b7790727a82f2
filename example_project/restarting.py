"""Restarts the embedded server, for ``relay_lab restart`` and ``relay_lab soak``.

It is this checkout's own, so the lab may; with DATABASE_URL the settings do not name this.
"""

from __future__ import annotations

import json
import os
import signal
import time

from example_project import embedded
from example_project.embedded import cluster

#: PostgreSQL's ways to stop, by the signal that asks for each.
MODES = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
PATIENCE = 60.0  # seconds for the server to end


def restart(mode: str) -> None:
    """Stop the server in this mode and return when it is up again, at the same port.

    Raises ServerUnavailable when it does not come back.
    """
    directory = cluster.home() / "demo"
    told = directory / "server.json"
    os.kill(json.loads(told.read_text())["postgres"], MODES[mode])
    deadline = time.monotonic() + PATIENCE
    while told.exists():  # its keeper removes this when it has ended
        if time.monotonic() > deadline:
            raise embedded.ServerUnavailable(f"The server did not end within {PATIENCE:.0f} s")
        time.sleep(0.02)
    embedded.start_again()
