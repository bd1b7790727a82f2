"""The settings of a project whose jobs are in a second database, where its router leads them."""

from __future__ import annotations

from typing import Any

from tests.process import settings as short_clocks
from tests.settings import *  # noqa: F403
from tests.settings import env

TASKS = short_clocks.TASKS
DATABASES = {"default": env.db("RELAY_TEST_DEFAULT"), "queue": env.db("DATABASE_URL")}


class Router:
    """Leads the tables of django_relay to ``queue`` and all others to ``default``."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        """Where to read from."""
        return "queue" if model._meta.app_label == "django_relay" else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        """Whether a database has the tables of an app."""
        return (db == "queue") == (app_label == "django_relay")


DATABASE_ROUTERS = ["tests.process.two_databases.Router"]
