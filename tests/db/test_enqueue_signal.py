"""The signal of an enqueue: receivers neither lose nor double the job, nor break it in silence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError

from django_relay import compat
from django_relay.backend import RelayBackend
from django_relay.models import Job
from tests import tasks


def jobs() -> list[Job]:
    return list(Job.objects.order_by("pk"))


@pytest.fixture
def receive() -> Iterator[Callable[[Any], Any]]:
    connected = []

    def connect(receiver: Any) -> Any:
        compat.task_enqueued.connect(receiver)
        connected.append(receiver)
        return receiver

    yield connect
    for receiver in connected:
        compat.task_enqueued.disconnect(receiver)


@pytest.mark.django_db
def test_receivers_are_told_once_with_the_backend_as_sender(receive: Any) -> None:
    seen = []

    @receive
    def receiver(sender: Any, task_result: Any, **kwargs: Any) -> None:
        assert Job.objects.filter(pk=task_result.id).exists()
        seen.append((sender, task_result))

    result = tasks.echo.enqueue()
    assert seen == [(RelayBackend, result)]


@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_raises_neither_loses_nor_doubles_the_job(
    receive: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @receive
    def clumsy(**kwargs: Any) -> None:
        raise ValueError

    tasks.echo.enqueue()
    with transaction.atomic():
        tasks.echo.enqueue()
    assert len(jobs()) == 2
    ours = [each.getMessage() for each in caplog.records if each.name.startswith("django_relay")]
    assert len(ours) == 2
    assert all("clumsy" in message for message in ours)


def _fail_in_sql(**kwargs: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 / 0")


def _fail_in_sql_silently(**kwargs: Any) -> None:
    try:
        _fail_in_sql()
    except Exception:
        return


def _fail_in_an_inner_block(**kwargs: Any) -> None:
    with transaction.atomic(savepoint=False):
        _fail_in_sql()


def _ask_for_a_rollback(**kwargs: Any) -> None:
    transaction.set_rollback(True)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "receiver",
    [_fail_in_sql, _fail_in_sql_silently, _fail_in_an_inner_block, _ask_for_a_rollback],
)
def test_a_receiver_that_breaks_the_transaction_is_not_passed_over_in_silence(
    receive: Any, receiver: Any
) -> None:
    receive(receiver)
    with (
        pytest.raises(TransactionManagementError, match="so the job is not stored"),
        transaction.atomic(),
    ):
        tasks.echo.enqueue()
    assert jobs() == []


@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_fails_outside_a_transaction_does_not_undo_the_job(receive: Any) -> None:
    receive(_fail_in_sql)
    tasks.echo.enqueue()
    assert len(jobs()) == 1


@pytest.mark.django_db
def test_the_framework_logs_the_enqueue(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="django_tasks" if compat.NEEDS_BACKPORT else "django.tasks")
    result = tasks.echo.enqueue()
    assert any(
        "enqueued" in each.getMessage() and f"id={result.id}" in each.getMessage()
        for each in caplog.records
    )
