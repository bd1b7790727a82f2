"""The settings of the measurements: those of the tests with nothing but the package itself.

Each alias is a database that the measurement makes and drops on the server of DATABASE_URL.
OPTIONS are empty, so that what is measured is what a user gets.
"""

from __future__ import annotations

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, INSTALLED_APPS

INSTALLED_APPS = [app for app in INSTALLED_APPS if app in {"django_relay", "django_tasks"}]

_server = DATABASES["default"]
DATABASES = {
    alias: {**_server, "NAME": f"relay_bench_{alias}"}
    for alias in ("default", "ready", "future", "finished", "churned")
}

TASKS = {"default": {"BACKEND": "django_relay.backend.RelayBackend", "QUEUES": []}}
