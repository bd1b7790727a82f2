"""The package itself: safe to import anywhere, and its public names are what they should be."""

from __future__ import annotations

import subprocess
import sys

import pytest

import django_relay

ALONE = """
import sys
import django_relay
assert "django" not in sys.modules
from django_relay import Backoff, Fail, Snooze
assert "django.apps" not in sys.modules
from django.conf import settings
assert not settings.configured
"""

BEFORE_APPS = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
from django.apps import apps
from django_relay import RelayContext, current_job, task
import django_relay.backend, django_relay.checks, tests.tasks
assert not apps.ready
import sys
assert "django_relay.models" not in sys.modules
import django
django.setup()
"""


@pytest.mark.parametrize("script", [ALONE, BEFORE_APPS])
def test_importing_needs_no_settings_and_no_apps(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there() -> None:
    for name in django_relay.__all__:
        assert getattr(django_relay, name) is not None
    assert set(django_relay.__all__) <= set(dir(django_relay))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = django_relay.nonsense


def test_the_decorator_is_not_hidden_by_the_module_of_its_name() -> None:

    from django_relay import task

    assert callable(task)
    assert task is sys.modules["django_relay.task"].task
