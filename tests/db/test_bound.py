"""An enqueue sends its values beside the statement: they are in no text that others can read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from django.db import ProgrammingError, connection, connections, transaction

from django_relay import transitions
from django_relay.transitions import NewJob
from tests import tasks

from .stage import Stage

QUERIES = "SELECT query FROM pg_stat_activity WHERE datname = current_database()"
SECRET = "swordfish"


def one() -> None:
    tasks.echo.enqueue(SECRET)


def many() -> None:
    tasks.echo.enqueue_many([[SECRET]] * 3)


def by_hand() -> None:
    job = NewJob(
        backend="default", queue="default", task="a.b", args=json.dumps([SECRET]), kwargs="{}"
    )
    transitions.enqueue(connection, job)


@pytest.fixture
def queries(stage: Stage) -> Callable[[], list[str]]:
    return lambda: [query for (query,) in stage.all(QUERIES)]


@pytest.mark.django_db(transaction=True, available_apps=["django_relay"])
@pytest.mark.parametrize("enqueue", [one, many, by_hand])
@pytest.mark.parametrize("around", [nullcontext, transaction.atomic])
@pytest.mark.parametrize("checked", [False, True])
def test_arguments_are_in_no_text_of_a_statement(
    queries: Callable[[], list[str]], enqueue: Any, around: Any, checked: bool
) -> None:
    connection.close()
    with around():
        if checked and not connection.in_atomic_block:
            # As a request begins whose session the server has ended meanwhile.
            lose_the_session()
        for _ in range(3):
            enqueue()
            texts = [text for text in queries() if "INSERT INTO django_relay_job" in text]
            assert texts
            assert not any(SECRET in text for text in texts)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM django_relay_job WHERE args::text LIKE %s", ["%fish%"])
        assert cursor.fetchone() == (9 if enqueue is many else 3,)


def lose_the_session() -> None:
    """Have a session that is to be checked before its next use, and that is gone."""
    connection.ensure_connection()
    connection.health_check_enabled, connection.health_check_done = True, False
    with connection.connection.cursor() as cursor, pytest.raises(Exception, match="terminat"):
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    connection.health_check_enabled = False


@transaction.atomic
def one_after(statement: str) -> None:
    """Enqueue in a transaction in which the session was told something before."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
    one()


@pytest.mark.django_db(transaction=True, available_apps=["django_relay"])
def test_within_a_transaction_a_session_may_forget_what_it_likes() -> None:
    one()
    for _ in range(2):
        one_after("DEALLOCATE ALL")
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM django_relay_job")
        assert cursor.fetchone() == (3,)


@pytest.mark.django_db(transaction=True, available_apps=["django_relay"])
def test_an_error_of_another_kind_is_not_taken_for_forgetting() -> None:
    with pytest.raises(ProgrammingError, match="does not exist"):
        one_after("SET LOCAL search_path = nowhere")
    assert getattr(connections["default"].connection, "relay_direct", None) is not False
