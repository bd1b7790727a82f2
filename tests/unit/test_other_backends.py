"""What a test sees with the framework's own backends is what a worker will see with ours."""

from __future__ import annotations

from typing import Any

import pytest

from django_relay.compat import BaseTaskBackend
from tests import tasks

from .test_storable import GOOD, _same

BACKENDS = BaseTaskBackend.__module__.rpartition(".")[0]


@pytest.fixture(autouse=True)
def others(settings: Any) -> None:
    settings.TASKS = {
        "default": {"BACKEND": "django_relay.backend.RelayBackend", "QUEUES": []},
        "dummy": {"BACKEND": f"{BACKENDS}.dummy.DummyBackend"},
        "immediate": {"BACKEND": f"{BACKENDS}.immediate.ImmediateBackend"},
    }


@pytest.mark.parametrize("value", GOOD, ids=lambda value: str(value)[:12])
def test_other_backends_give_on_what_ours_gives_on(value: Any) -> None:
    ran = tasks.echo.using(backend="immediate").enqueue(value)
    assert _same(ran.return_value, value)
    for backend in ("immediate", "dummy"):
        kept = tasks.echo.using(backend=backend).enqueue(value=value)
        assert _same(kept.kwargs, {"value": value})
