"""``relay_worker`` refuses what it cannot do before it touches a database, and says what to do."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_relay.compat import BaseTaskBackend

BACKENDS = BaseTaskBackend.__module__.rpartition(".")[0]
RELAY = "django_relay.backend.RelayBackend"


@pytest.fixture(autouse=True)
def backends(settings: Any) -> None:
    settings.TASKS = {
        "default": {"BACKEND": RELAY, "QUEUES": ["default", "mail"]},
        "any": {"BACKEND": RELAY, "QUEUES": []},
        "wrong": {"BACKEND": RELAY, "QUEUES": ["wrong"], "OPTIONS": {"lease": 5}},
        "dummy": {"BACKEND": f"{BACKENDS}.dummy.DummyBackend"},
    }


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--backend", "nothing"], "--backend nothing"),
        (["--backend", "dummy"], "is no RelayBackend; set its BACKEND"),
        (["--backend", "wrong"], "lease"),
        (["--queues", "mail,post"], "post is not among the backend's QUEUES (default, mail)"),
        (["--queues", ","], "no name is not among"),
        (["--backend", "any", "--queues", " "], "no name is not among the backend's QUEUES (any)"),
        (["--prefetch", "some"], "use auto, or a number from 0 to 1000"),
        (["--prefetch", "-1"], "use auto, or a number from 0 to 1000"),
        (["--prefetch", "1001"], "use auto, or a number from 0 to 1000"),
        (["--slots", "0"], "is not from 1 to 1000"),
        (["--processes", "1001"], "is not from 1 to 1000"),
        (["--async-slots", "10001"], "is not from 1 to 10000"),
        (["--processes", "many"], "'many' is no number"),
        (["--lease", "nan"], "is not from"),
        (["--lease", "inf"], "is not from"),
        (["--grace", "-1"], "is not from"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_flag_that_makes_no_sense_is_refused_with_its_remedy(flags: list[str], why: str) -> None:
    with pytest.raises(CommandError) as refusal:
        call_command("relay_worker", *flags)
    assert why in str(refusal.value)


def test_without_a_settings_module_the_children_would_not_find_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE")
    with pytest.raises(CommandError, match="Set DJANGO_SETTINGS_MODULE"):
        call_command("relay_worker")
