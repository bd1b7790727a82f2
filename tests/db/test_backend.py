"""Enqueueing: a job joins its caller's transaction, or nothing is stored and nothing broken."""

from __future__ import annotations

import asyncio
import json
import types
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection, connections, transaction

from django_relay import Backoff, compat, task
from django_relay.compat import InvalidTask, TaskResultStatus
from django_relay.models import Event, Job
from tests import tasks

second = timedelta(seconds=1)
RELAY = "django_relay.backend.RelayBackend"


def jobs() -> list[Job]:
    return list(Job.objects.order_by("pk"))


# ------------------------------------------------------------------------------ what is stored


@pytest.mark.django_db
def test_a_job_is_stored_with_all_that_was_said() -> None:
    result = tasks.stubborn.using(queue_name="mail").enqueue("pack", times=3)
    (job,) = jobs()
    assert (job.backend, job.queue, job.task) == ("default", "mail", "tests.tasks.stubborn")
    assert (job.args, job.kwargs) == (["pack"], {"times": 3})
    assert (job.state, job.priority, job.max_attempts, job.timeout) == ("ready", 5, 7, None)
    assert job.metadata is None
    assert [event.kind for event in Event.objects.filter(job=job)] == ["enqueued"]
    assert result.id == str(job.pk)
    assert result.status == TaskResultStatus.READY
    assert result.enqueued_at == job.enqueued_at
    assert (result.args, result.kwargs, result.backend) == (["pack"], {"times": 3}, "default")
    assert (result.started_at, result.finished_at, result.last_attempted_at) == (None,) * 3
    assert (result.errors, result.worker_ids, result.attempts) == ([], [], 0)
    assert result.task == tasks.stubborn.using(queue_name="mail")
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value


@pytest.mark.django_db
def test_the_settings_decide_what_the_task_leaves_open(settings: Any) -> None:
    options = {
        "max_attempts": 4,
        "tasks": {"tests.tasks.async_*": {"max_attempts": None}},
    }
    settings.TASKS = {"default": {"BACKEND": RELAY, "OPTIONS": options}}
    for each in (tasks.echo, tasks.plain, tasks.async_echo, tasks.stubborn, tasks.tireless):
        each.enqueue(*["x"] if each is tasks.stubborn else [])
    assert [job.max_attempts for job in jobs()] == [4, 4, None, 7, None]


@pytest.mark.django_db
@pytest.mark.parametrize("task", [tasks.echo, tasks.plain], ids=["ours", "plain"])
def test_a_job_may_be_put_off_by_a_time_or_a_delay(task: Any) -> None:
    later = datetime(2100, 1, 1, tzinfo=UTC)
    task.using(run_after=later).enqueue()
    task.using(run_after=timedelta(hours=1)).enqueue()
    task.using(run_after=timedelta(0)).enqueue()
    task.using(run_after=datetime(2001, 1, 1, tzinfo=UTC)).enqueue()
    at, delayed, now, past = jobs()
    assert (at.state, at.run_after) == ("scheduled", later)
    assert delayed.state == "scheduled"
    assert abs(delayed.run_after - delayed.enqueued_at - timedelta(hours=1)) < 10 * second
    assert (now.state, past.state) == ("ready", "ready")


@pytest.mark.django_db
def test_a_naive_time_means_the_projects_time_zone_where_time_zones_are_off(settings: Any) -> None:
    settings.USE_TZ = False
    settings.TIME_ZONE = "Asia/Tokyo"
    nine = datetime(2100, 1, 1, 9)  # noqa: DTZ001
    result = tasks.echo.using(run_after=nine).enqueue()
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXTRACT(EPOCH FROM run_after)::bigint FROM django_relay_job")
        assert cursor.fetchone()[0] == datetime(2100, 1, 1, tzinfo=UTC).timestamp()
    read = tasks.echo.get_result(result.id)
    assert read == result
    assert read.task.run_after == nine


@pytest.mark.django_db
def test_a_wait_that_only_this_enqueue_asks_for_is_kept_with_the_job() -> None:
    backend = compat.task_backends["default"]
    tasks.stubborn.using(backoff=Backoff(base=9 * second)).enqueue("x")
    tasks.stubborn.using(max_attempts=2).enqueue("x")
    asked, own = jobs()
    path = tasks.stubborn.module_path
    assert backend.backoff_of(tasks.stubborn, path, asked.metadata).base == 9 * second
    assert own.metadata is None
    assert backend.backoff_of(tasks.stubborn, path, own.metadata).base == 2 * second
    assert backend.backoff_of(None, path).base == 5 * second
    assert backend.backoff_of(None, path, {"backoff": "odd"}).base == 5 * second


@pytest.mark.django_db
def test_enqueueing_is_one_statement(django_assert_num_queries: Callable[[int], Any]) -> None:
    tasks.echo.enqueue()
    with django_assert_num_queries(1):
        tasks.echo.enqueue()


# ------------------------------------------------------------------------- in a transaction or not


class Undone(Exception):
    pass


def undone(function: Callable[..., Any], *args: Any) -> None:
    """Call ``function`` in a transaction that is rolled back."""
    with transaction.atomic():
        function(*args)
        raise Undone


@pytest.mark.django_db(transaction=True)
def test_what_is_rolled_back_leaves_no_job() -> None:
    with pytest.raises(Undone):
        undone(tasks.echo.enqueue)
    with transaction.atomic():
        with pytest.raises(Undone):
            undone(tasks.echo.enqueue, "inner")
        tasks.echo.enqueue("outer")
    assert [job.args for job in jobs()] == [["outer"]]
    assert Event.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_job_enqueued_on_commit_is_stored_like_any() -> None:
    with transaction.atomic():
        transaction.on_commit(lambda: tasks.echo.enqueue())
        assert jobs() == []
    assert len(jobs()) == 1


@pytest.mark.django_db(transaction=True)
def test_async_code_enqueues_too() -> None:
    async def work() -> Any:
        try:
            result = await tasks.async_echo.aenqueue(1)
            await tasks.echo.using(run_after=timedelta(hours=1)).aenqueue(2)
            return await tasks.async_echo.aget_result(result.id)
        finally:
            await sync_to_async(connections.close_all)()  # the loop's thread has its own

    result = asyncio.run(work())
    assert result.args == [1]
    assert result.task == tasks.async_echo
    assert [job.args for job in jobs()] == [[1], [2]]


@pytest.mark.django_db(transaction=True)
def test_async_enqueueing_joins_the_transaction_of_its_thread() -> None:
    with pytest.raises(Undone):
        undone(async_to_sync(tasks.echo.aenqueue), "undone")
    with transaction.atomic():
        async_to_sync(tasks.echo.aenqueue)("kept")
    assert [job.args for job in jobs()] == [["kept"]]


# ------------------------------------------------------------------------------------- refusals


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: tasks.echo.enqueue((1,)), TypeError, "Unsupported type: argument 1"),
        (lambda: tasks.echo.enqueue({1}), TypeError, r"tests\.tasks\.echo: Unsupported type"),
        (lambda: tasks.echo.enqueue(value=b"x"), TypeError, "argument 'value' is of type bytes"),
        (lambda: tasks.echo.enqueue(float("nan")), ValueError, "argument 1 is NaN"),
        (lambda: tasks.echo.enqueue("\x00"), ValueError, "NUL"),
        (lambda: tasks.echo.enqueue(1, 2), TypeError, r"tests\.tasks\.echo: too many positional"),
        (lambda: tasks.echo.enqueue(other=1), TypeError, "unexpected keyword argument 'other'"),
        (lambda: tasks.stubborn.enqueue(), TypeError, "missing a required argument: 'what'"),
        (lambda: tasks.told.enqueue(), TypeError, "missing a required argument: 'word'"),
        (lambda: tasks.told.enqueue("a", "b"), TypeError, "too many positional"),
    ],
)
def test_a_call_that_cannot_work_is_refused_before_any_sql(
    call: Callable[[], Any],
    error: type[Exception],
    words: str,
    django_assert_num_queries: Callable[[int], Any],
) -> None:
    with django_assert_num_queries(0), pytest.raises(error, match=words):
        call()
    # The caller's transaction goes on.
    tasks.echo.enqueue("after")
    assert [job.args for job in jobs()] == [["after"]]


@pytest.mark.django_db
def test_calls_that_work_are_not_refused() -> None:
    tasks.anything.enqueue(1, 2, three=3)
    tasks.told.enqueue("word")
    tasks.told.enqueue(word="word")
    tasks.helped.enqueue(3)  # its decorator supplies the other argument
    tasks.Shelf.kept.enqueue()
    assert len(jobs()) == 5


@pytest.mark.django_db
def test_a_task_that_no_worker_could_find_is_refused() -> None:
    with pytest.raises(InvalidTask, match=r"no task at tests\.tasks\.not_a_task"):
        task(tasks.not_a_task).enqueue()
    script = types.FunctionType(tasks.not_a_task.__code__, {}, "work")
    script.__module__ = "__main__"
    with pytest.raises(InvalidTask, match="defined in a script"):
        task(script).enqueue()
    distant = types.FunctionType(tasks.not_a_task.__code__, {}, "work")
    distant.__module__ = "x" * 255
    with pytest.raises(InvalidTask, match="longer than 255"):
        task(distant).enqueue()


@pytest.mark.django_db
def test_what_has_become_wrong_since_is_refused_again(settings: Any) -> None:
    task = tasks.echo.using(queue_name="mail")
    settings.TASKS = {"default": {"BACKEND": RELAY, "QUEUES": ["default"]}}
    with pytest.raises(InvalidTask, match="Queue 'mail' is not valid"):
        task.enqueue()


VALUES = [
    None, True, 0, 2**63, 2**100, -0.0, 1e308, 1e16, 0.1, "", "äß🎈\u2028", [], {},
    {"1": [None, {}]}, "x" * 5_000_000,
]  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("value", VALUES, ids=lambda value: str(value)[:12] or "empty")
def test_the_database_gives_back_what_went_in(value: Any) -> None:
    result = tasks.echo.enqueue(value)
    with connection.cursor() as cursor:
        cursor.execute("SELECT args::text FROM django_relay_job")
        (kept,) = json.loads(cursor.fetchone()[0])
    (read,) = tasks.echo.get_result(result.id).args
    for found in (kept, read):
        assert type(found) is type(value)
        assert repr(found) == repr(value)


# ------------------------------------------------------------------------------ prepared


def prepared() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements")
        return [statement for (statement,) in cursor.fetchall()]


@pytest.mark.django_db(transaction=True)
def test_enqueueing_prepares_its_own_statement_and_no_other() -> None:
    connection.close()
    before = connection.prepare_threshold if hasattr(connection, "prepare_threshold") else None
    for _ in range(3):
        tasks.echo.enqueue()
        list(Job.objects.all())
    (statement,) = prepared()
    assert "INSERT INTO django_relay_job" in statement
    assert connection.connection is not None
    assert connection.connection.prepare_threshold == before


@pytest.mark.django_db(transaction=True)
def test_enqueueing_goes_on_after_what_makes_a_session_forget_statements() -> None:
    for forget in ("DISCARD ALL", "DEALLOCATE ALL"):
        connection.close()
        tasks.echo.enqueue()
        tasks.echo.enqueue()
        assert len(prepared()) == 1
        with connection.cursor() as cursor:
            cursor.execute(forget)
        tasks.echo.enqueue()
        tasks.echo.enqueue()
    with transaction.atomic():
        tasks.echo.enqueue()
        transaction.set_rollback(True)
    tasks.echo.enqueue()
    assert Job.objects.count() == 9


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("who", ["us", "Django"])
def test_behind_a_pooler_nothing_is_prepared(settings: Any, who: str, monkeypatch: Any) -> None:
    connection.close()
    if who == "us":
        settings.TASKS = {"default": {"BACKEND": RELAY, "OPTIONS": {"pooled": True}}}
    else:
        monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
    for _ in range(3):
        tasks.echo.enqueue()
    assert prepared() == []


@pytest.mark.django_db(transaction=True)
def test_a_session_that_another_process_answers_is_taken_for_a_poolers(monkeypatch: Any) -> None:
    connection.close()
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", property(lambda self: 1))
    for _ in range(3):
        tasks.echo.enqueue()
    assert prepared() == []
