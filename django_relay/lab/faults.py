"""What can be done to workers and to the database, one function a fault.

Each does its harm and returns who was hit, for the recording. PostgreSQL is restarted only by a
function that the user's settings name; otherwise the lab ends sessions of its own workers alone.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.utils.module_loading import import_string

from .fleet import Fleet, Ship, children_of, signal_all
from .places import Place

#: Names, in the settings, a function that restarts the server: called with "fast" or "immediate",
#: it returns when the server is up again. Its presence is what makes the server the lab's own.
SETTING = "RELAY_LAB_RESTART"

# Sessions of the workers that the lab has started, known by the pid in their name.
TERMINATE = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
  AND application_name ~ %(pattern)s
"""

Restart = Callable[[str], None]


def restarter() -> Restart | None:
    """Return what restarts the server, or None where it is not the lab's to restart."""
    path = getattr(settings, SETTING, None)
    return import_string(path) if path else None


def terminate_sessions(fleet: Fleet) -> int:
    """End the sessions of the fleet's workers, and return how many there were."""
    pids = "|".join(str(ship.pid) for ship in fleet.alive)
    place: Place = fleet.place
    rows = place.patiently(
        lambda: place.rows(TERMINATE, pattern=f"^django_relay .*-({pids})-"), [(0,)]
    )
    return int(rows[0][0])


def await_server(place: Place, *, within: float) -> float:
    """Wait until the database answers and return when that was, on the monotonic clock."""
    end = time.monotonic() + within
    while True:
        with suppress(OperationalError, InterfaceError):
            place.rows("SELECT 1")
            return time.monotonic()
        place.connection.close()
        if time.monotonic() > end:
            raise TimeoutError(f"PostgreSQL does not answer after {within:g} s")
        time.sleep(0.05)


def kill_child(fleet: Fleet, ship: Ship, chance: random.Random) -> None:
    """Kill one child of a worker."""
    children = children_of(ship.pid)
    if children:
        fleet.kill(ship, [chance.choice(children)], with_supervisor=False)


def kill_supervisor(fleet: Fleet, ship: Ship, chance: random.Random) -> None:
    """Kill a worker's supervisor alone."""
    fleet.kill(ship, [])


def kill_group(fleet: Fleet, ship: Ship, chance: random.Random) -> None:
    """Kill a worker and all its children."""
    fleet.kill(ship, children_of(ship.pid))


def stop(fleet: Fleet, ship: Ship, chance: random.Random) -> None:
    """Ask a worker to stop, without waiting for it."""
    ship.ended = True
    signal_all([ship.pid], signal.SIGTERM)


def freeze(fleet: Fleet, ship: Ship, chance: random.Random) -> None:
    """Stop a worker and all its children; ``wake`` lets them go on."""
    ship.frozen = True
    signal_all([ship.pid, *children_of(ship.pid)], signal.SIGSTOP)


def freeze_child(fleet: Fleet, ship: Ship, chance: random.Random) -> None:
    """Stop one child of a worker."""
    children = children_of(ship.pid)
    if children:
        ship.frozen = True
        signal_all([chance.choice(children)], signal.SIGSTOP)


def wake(ship: Ship) -> None:
    """Let a worker and its children go on."""
    signal_all([*children_of(ship.pid), ship.pid], signal.SIGCONT)
    ship.frozen = False
