"""A job queue inside your own PostgreSQL, as a backend of Django's Tasks framework.

The public names of the package are here and are imported when first used, so that this module is
safe to import from settings and before the apps are ready. Everything else is private.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import audit, outcomes, recording, replay, states, transitions
    from .backoff import Backoff
    from .context import RelayContext, current_job
    from .exceptions import (
        Fail,
        JobCancelled,
        JobExpired,
        JobTimeout,
        LeaseLost,
        Snooze,
        WorkerLost,
    )
    from .task import task

__version__ = "0.1.0"

__all__ = [
    "Backoff",
    "Fail",
    "JobCancelled",
    "JobExpired",
    "JobTimeout",
    "LeaseLost",
    "RelayContext",
    "Snooze",
    "WorkerLost",
    "audit",
    "current_job",
    "outcomes",
    "recording",
    "replay",
    "states",
    "task",
    "transitions",
]

#: The module each public name is in, or None where the name is itself a module.
_HOMES: dict[str, str | None] = {
    "Backoff": "backoff",
    "Fail": "exceptions",
    "JobCancelled": "exceptions",
    "JobExpired": "exceptions",
    "JobTimeout": "exceptions",
    "LeaseLost": "exceptions",
    "RelayContext": "context",
    "Snooze": "exceptions",
    "WorkerLost": "exceptions",
    "audit": None,
    "current_job": "context",
    "outcomes": None,
    "recording": None,
    "replay": None,
    "states": None,
    "transitions": None,
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    if home is None:
        return import_module(f"{__name__}.{name}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Keeps ``django_relay.task`` the decorator.

    Importing the module of that name would otherwise put the module in the decorator's place, and
    ``from django_relay import task`` would give one or the other by the order of imports.
    """

    @property
    def task(self) -> Any:
        return import_module(f"{__name__}.task").task

    @task.setter
    def task(self, value: Any) -> None:
        """Ignore the import system, which sets the module here."""


sys.modules[__name__].__class__ = _Package
