"""The backend as an object: cheap to make, made once per thread, and it knows its database."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from django_relay import compat
from django_relay.backend import RelayBackend

RELAY = "django_relay.backend.RelayBackend"


class ToQueue:
    """A router that sends the app to a database of its own."""

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "queue" if model._meta.app_label == "django_relay" else None

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "replica"


def backend() -> RelayBackend:
    made = compat.task_backends["default"]
    assert isinstance(made, RelayBackend)
    return made


def test_jobs_are_where_the_router_would_write_them(settings: Any) -> None:
    assert backend().database == "default"
    settings.DATABASE_ROUTERS = [ToQueue()]
    assert backend().database == "queue"


def test_an_option_names_the_database_outright(settings: Any) -> None:
    settings.DATABASE_ROUTERS = [ToQueue()]
    settings.TASKS = {"default": {"BACKEND": RELAY, "OPTIONS": {"database": "mine"}}}
    assert backend().database == "mine"


def test_each_thread_has_a_backend_that_says_the_same() -> None:
    made = []
    thread = threading.Thread(target=lambda: made.append(backend()))
    thread.start()
    thread.join()
    assert made[0] is not backend()
    assert made[0].relay_options == backend().relay_options


def test_changed_settings_make_a_new_backend(settings: Any) -> None:
    assert backend().relay_options.max_attempts == 3
    settings.TASKS = {"default": {"BACKEND": RELAY, "OPTIONS": {"max_attempts": 9}}}
    assert backend().relay_options.max_attempts == 9


def test_the_frameworks_reading_of_queues_holds(settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": RELAY, "QUEUES": ("a", "b")}}
    assert backend().queues == {"a", "b"}
    settings.TASKS = {"default": {"BACKEND": RELAY, "QUEUES": []}}
    assert backend().queues == set()


@pytest.mark.parametrize("name", ["enqueue", "get_result"])
def test_the_async_forms_are_the_frameworks_own(name: str) -> None:
    assert f"a{name}" not in vars(RelayBackend)
