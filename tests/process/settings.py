"""The settings of the workers under test: those of the tests, with fewer apps and short clocks.

DATABASE_URL says where the jobs are. RELAY_TEST_APPS adds apps, for the tests that need receivers
or a logging of their own; RELAY_TEST_DEBUG, RELAY_TEST_POOL and RELAY_TEST_POOLED are what a
project may have set.
"""

from __future__ import annotations

from datetime import timedelta

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, INSTALLED_APPS, env

# What a worker needs and no more: it is started often.
_needed = {"django.contrib.auth", "django.contrib.contenttypes", "django_relay", "django_tasks"}
INSTALLED_APPS = [app for app in INSTALLED_APPS if app in _needed]
INSTALLED_APPS += env.list("RELAY_TEST_APPS", default=[])

DEBUG = env.bool("RELAY_TEST_DEBUG", default=False)
if _size := env.int("RELAY_TEST_POOL", default=0):
    DATABASES["default"].setdefault("OPTIONS", {})["pool"] = {"max_size": _size, "timeout": 10}

TASKS = {
    "default": {
        "BACKEND": "django_relay.backend.RelayBackend",
        "QUEUES": [],
        "OPTIONS": {
            "lease": timedelta(seconds=6),
            "poll": timedelta(seconds=0.5),
            "grace": timedelta(seconds=5),
            "pooled": env.bool("RELAY_TEST_POOLED", default=False),
            "stuck_after": timedelta(seconds=env.float("RELAY_TEST_STUCK_AFTER", default=60)),
        },
    },
}
