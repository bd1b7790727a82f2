"""Reading results: any job, at any moment of its life, as the framework describes one."""

from __future__ import annotations

import json
import math
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest

from django_relay import compat, outcomes, results, transitions
from django_relay.compat import TaskResultDoesNotExist, TaskResultMismatch, TaskResultStatus
from django_relay.exceptions import JobCancelled, JobExpired, TaskNotFound, WorkerLost
from django_relay.options import Options
from django_relay.states import FINAL, State
from tests import tasks

from .stage import ACTOR, WORKER, Stage, ending, success

ECHO = {"task": "tests.tasks.echo", "args": '["word"]'}
BROKEN = {"class": "builtins.KeyError", "message": "'x'", "traceback": "Traceback ...\nKeyError"}


def read(job_id: int) -> Any:
    return compat.task_backends["default"].get_result(str(job_id))


def fail(stage: Stage, error: dict[str, Any] = BROKEN, *, retry: bool = True) -> None:
    outcome = outcomes.raised(error, delay=0) if retry else outcomes.failed(error)
    stage.settle(ending(stage.claim(), outcome))
    stage.db.execute("UPDATE django_relay_job SET state = 'ready' WHERE state = 'scheduled'")


# ------------------------------------------------------------------------------------- its id


@pytest.mark.parametrize(
    "odd",
    [
        "", "0", "-1", "+1", " 1", "1 ", "01", "1.0", "1e3", "x", "\u0661", "1\n", str(2**63),
        "9" * 400, "b7e5c8de-13a6-4a5b-8f0e-000000000000", None, True, 1.0, -1, 2**63, b"1", [],
        object(),
    ],
)  # fmt: skip
def test_what_cannot_be_the_id_of_a_job_is_the_id_of_none(odd: Any) -> None:
    with pytest.raises(TaskResultDoesNotExist):  # without a query: the database is not allowed
        compat.task_backends["default"].get_result(odd)


def test_a_job_that_is_not_there_or_not_ours_does_not_exist(stage: Stage) -> None:
    for job_id in (1, 2**63 - 1, stage.enqueue(backend="other", **ECHO)):
        with pytest.raises(TaskResultDoesNotExist):
            read(job_id)


def test_a_number_will_do_as_an_id(stage: Stage) -> None:
    job_id = stage.enqueue(**ECHO)
    assert compat.task_backends["default"].get_result(job_id) == read(job_id)


# ----------------------------------------------------------------------------------- its state


@pytest.mark.django_db
@pytest.mark.parametrize("task", [tasks.echo, tasks.stubborn, tasks.plain, tasks.told])
def test_a_fresh_job_reads_as_it_was_enqueued(
    task: Any, django_assert_num_queries: Callable[[int], Any]
) -> None:
    changes = {"max_attempts": 11} if task is tasks.stubborn else {}
    asked = task.using(priority=7, queue_name="mail", **changes)
    result = asked.enqueue("word")
    with django_assert_num_queries(1):
        same = task.get_result(result.id)
    assert same == result
    assert same.task == asked
    assert (same.args, same.kwargs) == (["word"], {})
    same.refresh()
    assert same == result
    if task is not tasks.plain:  # the framework's own cannot be pickled before Django 6.1
        assert pickle.loads(pickle.dumps(same)) == result


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (State.BLOCKED, TaskResultStatus.READY),
        (State.SCHEDULED, TaskResultStatus.READY),
        (State.READY, TaskResultStatus.READY),
        (State.RUNNING, TaskResultStatus.RUNNING),
        (State.SUCCESSFUL, TaskResultStatus.SUCCESSFUL),
        (State.FAILED, TaskResultStatus.FAILED),
        (State.CANCELLED, TaskResultStatus.FAILED),
    ],
)
def test_every_state_has_a_status_of_the_framework(
    stage: Stage, state: State, status: TaskResultStatus
) -> None:
    result = read(stage.make(state, **ECHO).job_id)
    assert result.status == status
    assert result.is_finished is (state in FINAL)
    assert (result.finished_at is not None) is (state in FINAL)


def test_a_success_gives_its_value(stage: Stage) -> None:
    job_id = stage.enqueue(**ECHO)
    value = {"a": [1, -0.0, 1e308, None]}
    stage.settle(ending(stage.claim(), outcomes.succeeded(json.dumps(value)), ran=0.001))
    result = tasks.echo.get_result(str(job_id))
    assert result.return_value == value
    assert math.copysign(1, result.return_value["a"][1]) == -1
    assert (result.attempts, result.worker_ids, result.errors) == (1, [WORKER], [])
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.last_attempted_at == result.started_at


def test_a_null_result_is_a_value_too(stage: Stage) -> None:
    job_id = stage.enqueue(**ECHO)
    stage.settle(success(stage.claim(), "null"))
    assert read(job_id).return_value is None


def test_a_running_job_shows_the_times_of_its_lease(stage: Stage) -> None:
    job_id = stage.enqueue(**ECHO)
    stage.claim()
    first = read(job_id)
    assert (first.status, first.attempts) == (TaskResultStatus.RUNNING, 1)
    assert first.started_at == first.last_attempted_at
    assert first.started_at >= first.enqueued_at
    stage.db.execute("UPDATE django_relay_lease SET begun_at = acquired_at + interval '1 second'")
    assert (read(job_id).started_at - first.started_at).total_seconds() == 1
    stage.db.execute("DELETE FROM django_relay_lease")  # somebody's own SQL
    assert read(job_id).started_at is None


# ----------------------------------------------------------------------------------- its errors


def test_each_failed_attempt_has_its_error(stage: Stage) -> None:
    job_id = stage.enqueue(**ECHO, max_attempts=3)
    for number in (1, 2, 3):
        fail(stage, BROKEN | {"traceback": f"number {number}"})
        result = read(job_id)
        assert [error.traceback for error in result.errors][-1] == f"number {number}"
        assert len(result.errors) == result.attempts == number
    assert result.status == TaskResultStatus.FAILED
    assert {error.exception_class for error in result.errors} == {KeyError}
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


@pytest.mark.parametrize(
    ("error", "cls"),
    [
        ({"class": "gone.app.Error", "importable": "builtins.ValueError"}, ValueError),
        ({"class": f"{__name__}.test.<locals>.E", "importable": "builtins.OSError"}, OSError),
        ({"class": "gone.app.Error"}, Exception),
        ({"class": "os.system"}, Exception),
        ({"class": 7, "message": None}, Exception),
        ({"class": "builtins.SystemExit"}, SystemExit),
        ({}, Exception),
    ],
)
def test_an_error_whose_class_does_not_import_is_readable(
    stage: Stage, error: dict[str, Any], cls: type[BaseException]
) -> None:
    job_id = stage.enqueue(**ECHO)
    fail(stage, error, retry=False)
    (found,) = read(job_id).errors
    assert found.exception_class is cls
    assert str(error.get("class", "unknown")) in found.traceback


def test_a_cancelled_job_has_failed_with_the_reason(stage: Stage) -> None:
    waiting = stage.enqueue(**ECHO)
    transitions.cancel(stage.db, [waiting], actor=ACTOR)
    asked = stage.enqueue(**ECHO)
    held = stage.claim()
    transitions.cancel(stage.db, [asked], actor=ACTOR)
    stage.settle(ending(held, outcomes.failed(BROKEN)))
    for job_id, attempts, words in ((waiting, 0, ACTOR), (asked, 1, "Traceback")):
        result = read(job_id)
        (error,) = result.errors
        assert error.exception_class is JobCancelled
        assert words in error.traceback
        assert (result.status, result.attempts) == (TaskResultStatus.FAILED, attempts)


def test_a_lost_worker_and_a_missed_start_are_named(stage: Stage) -> None:
    lost = stage.enqueue(**ECHO, max_attempts=1)
    stage.claim()
    stage.age_lease(lost, 3600)
    transitions.rescue_expired(stage.db)
    (error,) = read(lost).errors
    assert error.exception_class is WorkerLost
    late = stage.enqueue(**ECHO)
    stage.db.execute(
        "UPDATE django_relay_job SET start_before = clock_timestamp() - interval '1 s' "
        "WHERE id = %s",
        [late],
    )
    transitions.expire(stage.db)
    (error,) = read(late).errors
    assert error.exception_class is JobExpired


# --------------------------------------------------------------------------------- its attempts


def test_a_claim_whose_handler_never_began_is_no_attempt(stage: Stage) -> None:
    job_id = stage.enqueue(**ECHO)
    stage.settle(ending(stage.claim(worker="a/1"), outcomes.released(), ran=None))
    assert read(job_id).worker_ids == []
    stage.settle(ending(stage.claim(worker="b/1"), outcomes.released(), ran=1.0))
    stage.claim(worker="c/1")
    assert read(job_id).worker_ids == ["b/1", "c/1"]


def test_the_worker_learns_a_jobs_past_for_many_at_once(stage: Stage) -> None:
    twice, once, never = (stage.enqueue(**ECHO) for _ in range(3))
    for worker in ("a/1", "b/1"):
        stage.settle(ending(stage.claim(worker=worker), outcomes.raised(BROKEN, delay=0)))
        stage.set(twice, state="ready")
    held = {claimed.job_id: claimed for claimed in stage.claim_up_to(3).jobs}
    pasts = results.pasts(stage.db, list(held))
    assert pasts == {twice: ("a/1", "b/1"), once: (), never: ()}
    made = results.running("default", tasks.echo, held[twice], pasts[twice], WORKER)
    known = read(twice)
    for name in ("id", "status", "args", "kwargs", "backend", "worker_ids", "attempts"):
        assert getattr(made, name) == getattr(known, name), name


def test_the_worker_describes_an_end_as_it_will_be_read(stage: Stage) -> None:
    for outcome in (outcomes.succeeded("[1]"), outcomes.failed(BROKEN)):
        job_id = stage.enqueue(**ECHO)
        held = stage.claim()
        (settled,) = stage.settle(ending(held, outcome))
        made = results.finished("default", tasks.echo, held, (), WORKER, outcome, settled)
        known = read(job_id)
        for name in ("id", "status", "errors", "finished_at", "worker_ids", "_return_value"):
            assert getattr(made, name) == getattr(known, name), name


def test_a_job_with_endless_events_still_opens(stage: Stage) -> None:
    job_id = stage.enqueue(**ECHO, max_attempts=None)
    stage.db.execute(
        """
        INSERT INTO django_relay_event (job_id, kind, at, claim, worker, data)
        SELECT %s, CASE n %% 2 WHEN 0 THEN 'claimed' ELSE 'retried' END, clock_timestamp(), n / 2,
          'w', CASE n %% 2 WHEN 1 THEN jsonb_build_object('error', jsonb_build_object(
            'class', 'builtins.ValueError', 'message', n, 'traceback', repeat('x', 20000))) END
        FROM generate_series(2, 20001) AS n
        """,
        [job_id],
    )
    stage.set(job_id, claims=10_000, failures=10_000)
    result = read(job_id)
    assert len(result.errors) == results.ERRORS_READ
    assert result.attempts == results.EVENTS_READ // 2


# ------------------------------------------------------------------------------------- its task


@pytest.mark.parametrize("path", ["tests.tasks.removed", "nowhere.f", "os.system", "odd", ""])
def test_a_job_whose_task_is_gone_is_readable(stage: Stage, path: str) -> None:
    job_id = stage.enqueue(task=path, queue="mail", priority=3)
    fail(stage, retry=False)
    result = read(job_id)
    assert result.status == TaskResultStatus.FAILED
    assert result.errors[0].exception_class is KeyError
    assert result.task.module_path.strip(".") == path
    assert (result.task.queue_name, result.task.priority) == ("mail", 3)
    with pytest.raises(TaskNotFound):
        result.task.call()
    with pytest.raises(TaskResultMismatch):
        tasks.echo.get_result(str(job_id))
    result.refresh()


def test_a_module_that_exits_when_imported_does_not_end_the_reader(
    stage: Stage, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "relay_leaves.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    job_id = stage.enqueue(task="relay_leaves.work")
    fail(stage, {"class": "relay_leaves.Error"}, retry=False)
    assert read(job_id).errors[0].exception_class is Exception
    assert "relay_leaves" not in sys.modules


def test_another_tasks_result_is_a_mismatch(stage: Stage) -> None:
    job_id = stage.enqueue(**ECHO)
    assert tasks.echo.get_result(str(job_id)).id == str(job_id)
    with pytest.raises(TaskResultMismatch):
        tasks.async_echo.get_result(str(job_id))


def test_what_is_not_allowed_any_more_is_still_readable(stage: Stage, settings: Any) -> None:
    job_id = stage.enqueue(**ECHO, queue="closed")
    settings.TASKS = {
        "default": {"BACKEND": "django_relay.backend.RelayBackend", "QUEUES": ["default"]}
    }
    assert read(job_id).task.queue_name == "closed"


def test_a_result_is_read_by_what_the_options_say_of_the_task(stage: Stage) -> None:
    job_id = stage.enqueue(**ECHO, max_attempts=3)
    from django.db import connection

    for limit, said in ((3, tasks.echo.max_attempts), (4, 3)):
        options = Options.parse({"max_attempts": limit})
        result = results.read("default", "default", job_id, connection=connection, options=options)
        assert result is not None
        assert result.task.max_attempts == said  # type: ignore[attr-defined]
