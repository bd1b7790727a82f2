"""Many jobs of one task at once: all or none, in the order of the calls, few statements."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_relay import compat, task
from django_relay.models import Event, Job
from tests import tasks

RELAY = "django_relay.backend.RelayBackend"


def calls(number: int) -> list[list[int]]:
    return [[each] for each in range(number)]


@pytest.mark.django_db
def test_each_call_becomes_a_job_in_its_place_with_its_first_event() -> None:
    made = tasks.anything.using(queue_name="mail", priority=3).enqueue_many(
        [["a", 1], ("b",), {"named": True}, []]
    )
    jobs = list(Job.objects.order_by("pk"))
    assert [result.id for result in made] == [str(job.pk) for job in jobs]
    assert [job.args for job in jobs] == [["a", 1], ["b"], [], []]
    assert [job.kwargs for job in jobs] == [{}, {}, {"named": True}, {}]
    assert {(job.queue, job.priority, job.state) for job in jobs} == {("mail", 3, "ready")}
    for job, result in zip(jobs, made, strict=True):
        assert [event.kind for event in Event.objects.filter(job=job)] == ["enqueued"]
        assert (result.args, result.kwargs) == (job.args, job.kwargs)
        assert (result.status, result.enqueued_at) == ("READY", job.enqueued_at)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_in_autocommit_no_job_is_stored_without_its_first_event(many: bool) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE django_relay_event ADD CONSTRAINT none CHECK (kind <> 'enqueued') "
            "NOT VALID"
        )
    try:
        with pytest.raises(Exception, match="none"):
            tasks.echo.enqueue_many(calls(2)) if many else tasks.echo.enqueue(1)
        assert not Job.objects.exists()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE django_relay_event DROP CONSTRAINT none")


@pytest.mark.django_db
def test_a_thousand_jobs_take_one_statement() -> None:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        made = tasks.echo.enqueue_many(calls(1000))
    assert len(queries) == 1
    ids = [int(result.id) for result in made]
    assert ids == sorted(ids)
    assert list(Job.objects.order_by("pk").values_list("args", flat=True)) == calls(1000)


@pytest.mark.django_db(transaction=True)
def test_more_than_a_thousand_are_stored_together_or_not_at_all() -> None:
    made = tasks.echo.enqueue_many(calls(2100))
    assert len(made) == Job.objects.count() == 2100
    most = int(made[-1].id) + 1500
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE django_relay_job ADD CONSTRAINT small CHECK (id < {most})")
    try:
        with pytest.raises(Exception, match="small"):
            tasks.echo.enqueue_many(calls(2100))
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE django_relay_job DROP CONSTRAINT small")
    assert Job.objects.count() == 2100


@pytest.mark.django_db(transaction=True)
def test_they_are_part_of_the_callers_transaction() -> None:
    with transaction.atomic():
        tasks.echo.enqueue_many(calls(1500))
        transaction.set_rollback(True)
    assert not Job.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ([["x"], ["y", 2, 3]], TypeError, r"calls\[1\]"),
        ([["x"], [float("nan")]], ValueError, r"calls\[1\]"),
        ([{"value": 1}, {"other": 1}], TypeError, r"calls\[1\]"),
        ([["x"], "text"], TypeError, r"calls\[1\] is of type str"),
        ([7], TypeError, r"calls\[0\] is of type int"),
    ],
)
def test_one_bad_call_is_named_and_nothing_is_stored(
    given: list[Any], error: type[Exception], words: str
) -> None:
    with CaptureQueriesContext(connection) as queries, pytest.raises(error, match=words):
        tasks.echo.enqueue_many(given)
    assert not queries.captured_queries


@pytest.mark.django_db
def test_no_calls_are_no_jobs_and_no_statement() -> None:
    with CaptureQueriesContext(connection) as queries:
        assert tasks.echo.enqueue_many(iter([])) == []
    assert not queries.captured_queries


@pytest.mark.django_db
def test_a_delay_counts_for_all_of_them() -> None:
    made = tasks.echo.using(run_after=timedelta(hours=1)).enqueue_many(calls(3))
    jobs = Job.objects.filter(pk__in=[int(result.id) for result in made])
    assert {job.state for job in jobs} == {"scheduled"}
    assert len({job.run_after for job in jobs}) == 1


@pytest.mark.django_db
def test_receivers_hear_of_each_of_them() -> None:
    heard: list[str] = []

    def receive(task_result: Any, **_: Any) -> None:
        heard.append(task_result.id)

    compat.task_enqueued.connect(receive)
    try:
        made = tasks.echo.enqueue_many(calls(3))
    finally:
        compat.task_enqueued.disconnect(receive)
    assert heard == [result.id for result in made]


@pytest.mark.django_db(transaction=True)
def test_async_code_can_do_it_too() -> None:
    made = async_to_sync(tasks.echo.aenqueue_many)(calls(3))
    assert [result.args for result in made] == calls(3)


def test_another_backend_is_given_the_calls_one_by_one(settings: Any) -> None:
    module = compat.BaseTaskBackend.__module__.rpartition(".")[0]
    settings.TASKS = {"default": {"BACKEND": f"{module}.dummy.DummyBackend"}}
    made = task(tasks.echo.func).enqueue_many([["x"], {"value": 2}])
    assert [(result.args, result.kwargs) for result in made] == [(["x"], {}), ([], {"value": 2})]
