"""The check of the server itself, which runs when a database is asked about."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.core.checks import run_checks
from django.db import connections
from django.db.utils import NotSupportedError, OperationalError

from django_relay import checks

from .stage import Stage


def messages(*databases: str) -> list[str]:
    found = [each for each in run_checks(databases=databases) if "django_relay" in (each.id or "")]
    return [f"{each.id} {each.msg} {each.hint}" for each in found]


@pytest.mark.django_db
def test_a_sound_server_gives_no_message() -> None:
    assert messages("default") == []
    assert messages() == []


@pytest.mark.django_db
def test_a_server_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MIN_POSTGRESQL", 99)
    (message,) = messages("default")
    assert "E008" in message
    assert "which is too old. Use PostgreSQL 99 or newer" in message


@pytest.mark.parametrize(
    ("error", "count"), [(NotSupportedError("needs 15"), 1), (OperationalError("gone"), 0)]
)
def test_what_django_refuses_is_passed_on_and_a_missing_server_is_not_ours_to_report(
    monkeypatch: pytest.MonkeyPatch, error: Exception, count: int
) -> None:
    def refuse() -> Any:
        raise error

    monkeypatch.setattr(connections["default"], "cursor", refuse)
    found = checks.check_databases(databases=["default"])
    assert len(found) == count
    assert all("needs 15" in each.msg for each in found)


def test_a_database_that_cannot_hold_every_text_is_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "relay_check_ascii"
    stage.db.execute(f"DROP DATABASE IF EXISTS {name}")
    stage.db.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0")
    info = stage.db.info
    there = {**info.get_parameters(), "password": info.password, "dbname": name}
    session = psycopg.connect(**there, client_encoding="utf8")
    try:
        with monkeypatch.context() as patch:
            patch.setattr(connections["default"], "cursor", session.cursor)
            (message,) = checks.check_databases(databases=["default"])
        assert "SQL_ASCII" in message.msg
    finally:
        session.close()
        stage.db.execute(f"DROP DATABASE {name}")
