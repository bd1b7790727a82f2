"""The settings of a project with the lab; RELAY_TEST_SERVER names a server that it may restart."""

from __future__ import annotations

from tests.process.settings import *  # noqa: F403
from tests.process.settings import INSTALLED_APPS, env

INSTALLED_APPS = [*INSTALLED_APPS, "django_relay.lab"]

if env("RELAY_TEST_SERVER", default=""):
    RELAY_LAB_RESTART = "tests.process.lab_server.restart"
