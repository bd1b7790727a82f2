"""What a running task learns about its job, and how it is told to stop."""

from __future__ import annotations

import asyncio
import contextvars
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from django_relay import current_job
from django_relay.compat import TaskContext
from django_relay.context import Control, Once, RelayContext, boot_time, enter
from django_relay.exceptions import JobCancelled, LeaseLost


class Result:
    """Stands for a TaskResult: the context asks it for the attempt alone."""

    attempts = 3


def make(**control: Any) -> RelayContext:
    return RelayContext(
        task_result=Result(),  # type: ignore[arg-type]
        max_attempts=5,
        fence=(17, 4),
        control=Control(**control),
    )


def test_it_is_the_frameworks_context_with_more() -> None:
    context = make()
    assert isinstance(context, TaskContext)
    assert (context.attempt, context.max_attempts, context.fence) == (3, 5, (17, 4))


def test_a_task_that_is_wanted_passes_its_checkpoints() -> None:
    context = make(expires=boot_time() + 60)
    assert not context.should_stop
    context.checkpoint()


@pytest.mark.parametrize(
    ("control", "error"),
    [
        ({"lost": True}, LeaseLost),
        ({"expires": boot_time() - 1}, LeaseLost),
        ({"cancelled": True}, JobCancelled),
        ({"cancelled": True, "lost": True}, LeaseLost),
    ],
)
def test_a_task_that_is_not_wanted_is_told_so(
    control: dict[str, Any], error: type[Exception]
) -> None:
    context = make(**control)
    assert context.should_stop
    with pytest.raises(error, match="17"):
        context.checkpoint()


def test_the_worker_may_change_its_mind_while_the_task_runs() -> None:
    control = Control(expires=boot_time() - 1)
    context = RelayContext(
        task_result=Result(),  # type: ignore[arg-type]
        max_attempts=None,
        fence=(1, 1),
        control=control,
    )
    assert context.should_stop
    control.expires = boot_time() + 60  # renewed
    assert not context.should_stop
    control.cancelled = True
    assert context.should_stop


def test_remaining_counts_down_to_the_deadline_and_no_further() -> None:
    assert make().remaining() is None
    assert make().deadline is None
    left = make(deadline=boot_time() + 60).remaining()
    assert left is not None
    assert timedelta(seconds=50) < left <= timedelta(seconds=60)
    assert make(deadline=boot_time() - 60).remaining() == timedelta(0)


def test_the_current_job_is_known_within_its_attempt_alone() -> None:
    assert current_job() is None
    context = make()

    def attempt() -> None:
        enter(Once(lambda: context))
        assert current_job() is context

    contextvars.Context().run(attempt)
    assert current_job() is None


def test_the_current_job_follows_async_code_into_its_threads() -> None:
    async def seen() -> list[Any]:
        context = make()
        enter(Once(lambda: context))
        other = asyncio.create_task(asyncio.sleep(0, result=None))
        found = [current_job(), await sync_to_async(current_job)()]
        await other
        return [*found, context]

    one, two, context = asyncio.run(seen())
    assert one is context
    assert two is context
