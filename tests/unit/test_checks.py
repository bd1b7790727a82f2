"""System checks: what cannot work is told in plain words, each with its remedy."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from datetime import timedelta
from typing import Any

import django
import pytest
from django.core.checks import CheckMessage, run_checks
from django.core.exceptions import ImproperlyConfigured

from django_relay import checks, compat
from django_relay.backend import RelayBackend
from tests.tasks import echo

RELAY = "django_relay.backend.RelayBackend"


def found(*, databases: list[str] | None = None) -> list[CheckMessage]:
    """Everything of ours that ``manage.py check`` says; each message has a hint."""
    messages = [
        each
        for each in run_checks(databases=databases)
        if each.id and each.id.startswith("django_relay.")
    ]
    assert all(each.hint for each in messages)
    return messages


def said(settings: Any, **entry: Any) -> list[str]:
    settings.TASKS = {"default": {"BACKEND": RELAY, **entry}}
    return [f"{each.id} {each.msg} {each.hint}" for each in found()]


def test_sound_settings_give_no_message() -> None:
    assert found() == []


def test_a_missing_entry_means_the_default_queue_and_the_defaults(settings: Any) -> None:
    assert said(settings) == []
    assert compat.task_backends["default"].queues == {"default"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"leese": 1}, "E002 TASKS['default']: OPTIONS['leese'] is unknown. Did you mean 'lease'?"),
        ({"lease": 30}, "Write timedelta(seconds=30)"),
        ({"backoff": -1}, "E002"),
        ({"backoff": float("nan")}, "E002"),
        (None, "OPTIONS is of type NoneType"),
        ({"database": "nowhere"}, "E004 TASKS['default']: there is no database 'nowhere'"),
    ],
)
def test_bad_options_are_a_check_error_and_no_import_error(
    settings: Any, options: Any, words: str
) -> None:
    (message,) = said(settings, OPTIONS=options)
    assert words in message
    # What an import does goes on working.
    assert echo.using(priority=3).priority == 3


ALONE = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
from django.conf import settings
settings.TASKS["default"]["OPTIONS"] = {"leese": 1}
import django
django.setup()
from django.core.checks import run_checks
assert "django_relay.E002" in [each.id for each in run_checks()]
"""


def test_the_settings_are_checked_where_nothing_has_imported_a_task_yet() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_every_bad_option_is_told(settings: Any) -> None:
    assert len(said(settings, OPTIONS={"lease": 30, "pool": 1, "max_attempts": 0})) == 3


@pytest.mark.parametrize(
    ("queues", "words"),
    [
        ("default", "QUEUES'] must be a list of names, not str"),
        (None, "not NoneType"),
        ({"default": 1}, "not dict"),
        ([1], "has a name that must be text, not int"),
        ([""], "has a name that must have 1 to 64"),
        (["x" * 65], "has a name that must have 1 to 64"),
        ([["a"]], "has a name that must be text"),
    ],
)
def test_bad_queues_are_a_check_error_and_no_import_error(
    settings: Any, queues: Any, words: str
) -> None:
    (message,) = said(settings, QUEUES=queues)
    assert "E003" in message
    assert words in message
    assert echo.using(priority=3).priority == 3
    with pytest.raises(ImproperlyConfigured, match="QUEUES"):
        echo.enqueue()


def test_bad_options_are_told_again_when_something_is_enqueued(settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": RELAY, "OPTIONS": {"lease": 30}}}
    with pytest.raises(ImproperlyConfigured, match=r"TASKS\['default'\]: OPTIONS\['lease'\]"):
        echo.enqueue()


def test_an_alias_has_to_fit_its_column() -> None:
    (message,) = checks.check_backend("x" * 65, queues=[], options={})
    assert message.id == "django_relay.E003"


def test_a_database_that_is_no_postgresql_is_refused(settings: Any) -> None:
    from django.db import connections
    from django.db.backends.sqlite3.base import DatabaseWrapper

    other = DatabaseWrapper({"NAME": ":memory:"}, "other")
    connections["other"] = other
    connections.settings["other"] = other.settings_dict
    try:
        settings.TASKS = {"default": {"BACKEND": RELAY, "OPTIONS": {"database": "other"}}}
        (message,) = compat.task_backends["default"].check()
        assert message.id == "django_relay.E004"
        assert "'other' is no PostgreSQL" in message.msg
        with pytest.raises(ImproperlyConfigured, match="'other' is no PostgreSQL"):
            echo.enqueue()
    finally:
        del connections["other"]
        del connections.settings["other"]


def test_psycopg_2_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db.backends.postgresql import psycopg_any

    monkeypatch.setattr(psycopg_any, "is_psycopg3", False)
    (message,) = checks.check_backend("default", queues=[], options={})
    assert "psycopg 3" in message.msg


def test_the_app_has_to_be_installed(settings: Any) -> None:
    settings.INSTALLED_APPS = [
        each for each in settings.INSTALLED_APPS if not each.startswith("django_relay")
    ]
    (message,) = compat.task_backends["default"].check()
    assert message.id == "django_relay.E001"
    with pytest.raises(ImproperlyConfigured, match='"django_relay" to INSTALLED_APPS'):
        echo.enqueue()


@pytest.mark.parametrize(
    ("one", "two", "words"),
    [
        (["a", "b"], ["b", "c"], "the queue 'b'"),
        ([], ["a"], "one of them takes any"),
        ([], [], "one of them takes any"),
        (["a"], ["b"], None),
    ],
)
def test_two_backends_may_not_share_a_queue_of_a_database(
    settings: Any, one: list[str], two: list[str], words: str | None
) -> None:
    settings.TASKS = {
        "default": {"BACKEND": RELAY, "QUEUES": one},
        "second": {"BACKEND": RELAY, "QUEUES": two},
        "broken": {"BACKEND": "nowhere.Backend"},
    }
    messages = checks.check_overlap()
    assert [each.id for each in messages] == (["django_relay.E005"] if words else [])
    assert words is None or words in messages[0].msg


@pytest.mark.parametrize(
    ("python", "version", "words"),
    [
        ((3, 10, 9), django.VERSION, "Python 3.11 or newer"),
        (sys.version_info, (4, 2, 0, "final", 0), "Django 5.2, 6.0 or newer"),
    ],
)
def test_what_is_not_supported_is_said(
    monkeypatch: pytest.MonkeyPatch, python: Any, version: Any, words: str
) -> None:
    monkeypatch.setattr(sys, "version_info", python)
    monkeypatch.setattr(django, "VERSION", version)
    hints = [each.hint for each in checks.check_surroundings() if each.id == "django_relay.E006"]
    assert hints == [f"Use {words}."]


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (None, "pip install 'django-relay[backport]'"),
        (importlib.util.find_spec("django"), 'Add "django_tasks" to INSTALLED_APPS'),
    ],
)
def test_django_5_2_needs_the_backport_installed_and_listed(
    settings: Any, monkeypatch: pytest.MonkeyPatch, there: Any, words: str
) -> None:
    settings.INSTALLED_APPS = [e for e in settings.INSTALLED_APPS if e != "django_tasks"]
    monkeypatch.setattr(django, "VERSION", (5, 2, 0, "final", 0))
    monkeypatch.setattr(checks, "find_spec", lambda name: there)
    (message,) = checks.check_surroundings()
    assert message.id == "django_relay.E007"
    assert words in str(message.hint)


def test_the_backend_answers_the_frameworks_question() -> None:
    backend = compat.task_backends["default"]
    assert isinstance(backend, RelayBackend)
    assert backend.check() == []
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority
    assert backend.relay_options.lease == timedelta(seconds=30)
