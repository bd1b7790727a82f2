"""What a handler leaves on its session is rolled back, or goes with the session."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connection, connections, transaction
from django.db.backends.signals import connection_created

from django_relay import hygiene

from .stage import Stage


def _execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def _close_within() -> None:
    transaction.atomic().__enter__()
    connection.close()


LEFT_OPEN: dict[str, Callable[[], object]] = {
    "begin": lambda: _execute("BEGIN"),
    "atomic": lambda: transaction.atomic().__enter__(),
    "no autocommit": lambda: connection.set_autocommit(False),
    "closed within": _close_within,
}

LASTING = [
    "SET statement_timeout = 7654",
    "SELECT set_config('search_path', 'public', false)",
    "SELECT pg_advisory_lock(7)",
    "SELECT pg_try_advisory_lock_shared(7)",
    "CREATE TEMPORARY TABLE left_behind (id integer)",
    "DECLARE left_behind CURSOR WITH HOLD FOR SELECT 1",
    "LISTEN left_behind",
    "PREPARE left_behind AS SELECT 1",
]


@pytest.fixture
def kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Sessions are watched, and kept from one job to the next."""
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 600)
    hygiene.watch()
    yield stage
    connection_created.disconnect(dispatch_uid="django_relay.hygiene")


def after(stage: Stage, leave: Callable[[], object]) -> tuple[list[str], bool]:
    """Run a handler in a thread; return where it left a transaction, and whether the next one has
    its session."""

    def session() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            pid: int = cursor.fetchone()[0]
            return pid

    def runs() -> tuple[list[str], bool]:
        try:
            hygiene.prepare()
            before = session()
            leave()
            left = hygiene.clean()
            hygiene.prepare()
            assert connection.get_autocommit()
            return left, session() == before
        finally:
            hygiene.leave_thread()

    answer: tuple[list[str], bool] = stage.start(runs).result()
    return answer


@pytest.mark.parametrize("how", LEFT_OPEN)
def test_a_transaction_that_is_left_open_is_told_and_goes_with_its_session(
    kept: Stage, how: str
) -> None:
    assert after(kept, LEFT_OPEN[how]) == (["default"], False)


@pytest.mark.parametrize("statement", LASTING)
def test_a_session_that_a_handler_changed_is_not_the_next_ones(kept: Stage, statement: str) -> None:
    assert after(kept, lambda: _execute(statement)) == ([], False)


def test_a_session_that_nobody_changed_is_kept(kept: Stage) -> None:
    assert after(kept, lambda: _execute("SELECT 1")) == ([], True)


def test_a_session_is_cleaned_though_making_it_went_wrong(kept: Stage) -> None:
    def fails_once(**kwargs: object) -> None:
        connection_created.disconnect(fails_once)
        raise ValueError("once")

    def runs() -> list[str]:
        try:
            hygiene.prepare()
            with pytest.raises(ValueError, match="once"):
                connection.ensure_connection()
            connection.set_autocommit(False)
            return hygiene.clean()
        finally:
            hygiene.leave_thread()

    receivers = list(connection_created.receivers)
    connection_created.receivers.clear()  # it comes before the one that watches
    connection_created.connect(fails_once)
    connection_created.receivers += receivers
    connection_created.sender_receivers_cache.clear()
    left: list[str] = kept.start(runs).result()
    assert left == ["default"]
