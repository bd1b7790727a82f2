"""Enqueueing where users' own tests and async views do it."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.test import AsyncClient, TestCase, TransactionTestCase, override_settings
from django.urls import path

from django_relay.models import Event, Job
from tests import tasks


class Undone(Exception):
    """Raised to roll a transaction back."""


def undo() -> None:
    """Enqueue in a transaction that is rolled back."""
    with transaction.atomic():
        tasks.echo.enqueue("undone")
        raise Undone


class TestInATestCase(TestCase):
    """One transaction around each test, rolled back at its end."""

    def test_a_job_is_there_and_its_event_with_it(self) -> None:
        job_id = int(tasks.echo.enqueue("a").id)
        assert Job.objects.get(pk=job_id).state == "ready"
        assert [each.kind for each in Event.objects.filter(job=job_id)] == ["enqueued"]
        assert tasks.echo.get_result(str(job_id)).args == ["a"]

    def test_the_next_test_finds_nothing_of_it(self) -> None:
        assert not Job.objects.exists()

    def test_a_savepoint_that_is_rolled_back_takes_the_job_along(self) -> None:
        with pytest.raises(Undone):
            undo()
        assert not Job.objects.exists()
        assert not Event.objects.exists()


class TestInATransactionTestCase(TransactionTestCase):
    """No transaction around a test; the tables are emptied after it."""

    def test_a_job_is_stored_at_once_and_undone_with_its_transaction(self) -> None:
        kept = tasks.echo.enqueue("kept")
        with pytest.raises(Undone):
            undo()
        assert [str(job.pk) for job in Job.objects.all()] == [kept.id]
        assert Event.objects.count() == 1


async def enqueueing(request: HttpRequest) -> JsonResponse:
    """Enqueue directly, and inside a transaction that is undone."""
    kept = await tasks.echo.aenqueue("kept")
    with pytest.raises(Undone):
        await sync_to_async(undo)()
    return JsonResponse({"id": kept.id, "status": kept.status})


urlpatterns = [path("enqueue", enqueueing)]


@override_settings(ROOT_URLCONF=__name__)
class TestInAnAsyncView(TransactionTestCase):
    """A view that runs on an event loop."""

    async def test_an_async_view_enqueues_and_what_it_undoes_leaves_nothing(self) -> None:
        answer: Any = await AsyncClient().get("/enqueue")
        assert answer.json()["status"] == "READY"
        jobs = [str(job.pk) async for job in Job.objects.all()]
        assert jobs == [answer.json()["id"]]
        assert await Event.objects.acount() == 1
