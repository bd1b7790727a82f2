"""An app that raises where RELAY_TEST_FAULTS says: in receivers (started, finished), in logging."""

from __future__ import annotations

import logging
import os
from typing import Any

from django.apps import AppConfig


class LoudHandler(logging.Handler):
    """A logging handler that raises instead of keeping it to itself."""

    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError("the log is full")


def raise_at_start(**kwargs: Any) -> None:
    raise RuntimeError("a receiver at the start")


def raise_at_end(**kwargs: Any) -> None:
    raise RuntimeError("a receiver at the end")


class Faulty(AppConfig):
    """Connects what was asked for."""

    name = "tests.process.faulty"
    label = "faulty"
    path = os.path.dirname(__file__)

    def ready(self) -> None:
        from django_relay import compat

        faults = os.environ.get("RELAY_TEST_FAULTS", "").split(",")
        if "started" in faults:
            compat.task_started.connect(raise_at_start)
        if "finished" in faults:
            compat.task_finished.connect(raise_at_end)
        if "logging" in faults:
            logging.getLogger("django_relay").addHandler(LoudHandler())
