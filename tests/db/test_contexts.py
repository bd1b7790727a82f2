"""What a handler sets for itself alone: the next job of the same thread does not find it."""

from __future__ import annotations

import json
import os
from contextvars import ContextVar

from django.utils import timezone, translation

from django_relay import compat, execution, task
from django_relay.context import Control
from django_relay.execution import Attempt
from django_relay.outcomes import Outcome

from .stage import WORKER, Stage

HERE = "tests.db.test_contexts"
NOTE: ContextVar[str] = ContextVar("note", default="nothing")


@task
def leave() -> list[str | None]:
    translation.activate("de")
    timezone.activate("Asia/Tokyo")
    NOTE.set("something")
    return find.func()


@task
def find() -> list[str | None]:
    return [translation.get_language(), timezone.get_current_timezone_name(), NOTE.get()]


def run(stage: Stage, *paths: str) -> list[Outcome]:
    """Run jobs one after the other in one thread."""
    concluded: list[Outcome] = []

    def runs() -> None:
        for path in paths:
            stage.enqueue(task=f"{HERE}.{path}", args="[]")
            attempt = Attempt(
                job=stage.claim(),
                backend=compat.task_backends["default"],
                worker=WORKER,
                control=Control(),
                past=(),
                pid=os.getpid(),
            )
            execution.execute(attempt, concluded.append)

    stage.start(runs).result()
    return concluded


def test_language_time_zone_and_context_variables_are_not_left_for_the_next_job(
    stage: Stage,
) -> None:
    before, left, found = (json.loads(o.result or "") for o in run(stage, "find", "leave", "find"))
    assert left == ["de", "Asia/Tokyo", "something"]
    assert found == before
