"""Which errors of an ending are about its values, and which are the database's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django.db
import psycopg
import pytest

from django_relay import outcomes, transitions
from django_relay.outcomes import Ending
from django_relay.transitions import Quarantine
from django_relay.transitions.halves import is_about_data, said

TOKEN = "00000000-0000-4000-8000-000000000000"


class Refusing:
    """A session that refuses statements, as it was told to beforehand, and then answers: that the
    lease has been ended."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.answers: list[list[tuple[int, ...]]] = [[(1,)]]

    @contextmanager
    def cursor(self) -> Iterator[Any]:
        yield self

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        if self.errors:
            raise self.errors.pop(0)

    def fetchall(self) -> list[tuple[int, ...]]:
        return self.answers.pop(0)


def settle(*errors: Exception) -> Any:
    ending = Ending(1, TOKEN, outcomes.succeeded("1"), 1.0)
    return transitions.settle(Refusing(*errors), [ending])  # type: ignore[arg-type]


def test_a_database_that_goes_away_over_a_bad_value_is_not_taken_for_the_values_fault() -> None:
    with pytest.raises(psycopg.OperationalError):
        settle(psycopg.DataError("bad"), psycopg.DataError("row"), psycopg.OperationalError("gone"))
    with pytest.raises(psycopg.OperationalError):
        settle(psycopg.OperationalError("gone"))


def test_what_cannot_even_be_failed_is_told_as_unstorable() -> None:
    bad, row = psycopg.DataError("bad"), psycopg.DataError("row")
    answers = settle(bad, row, bad, UnicodeError("worse"))
    assert answers[TOKEN].reason == "unstorable"


def _caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "is_so"),
    [
        (psycopg.DataError("x"), True),
        (django.db.DataError("x"), True),
        (UnicodeError("x"), True),
        (psycopg.errors.CheckViolation("x"), True),
        (psycopg.errors.ProgramLimitExceeded("x"), True),
        (_caused(django.db.IntegrityError("x"), psycopg.errors.CheckViolation("x")), True),
        (psycopg.errors.RaiseException("x"), True),
        (psycopg.errors.SerializationFailure("x"), False),
        (psycopg.errors.LockNotAvailable("x"), False),
        (psycopg.errors.QueryCanceled("x"), False),
        (psycopg.errors.InsufficientPrivilege("x"), False),
        (psycopg.OperationalError("x"), False),
        (psycopg.errors.ReadOnlySqlTransaction("x"), False),
        (django.db.OperationalError("x"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_about_a_value_are_told_from_errors_of_the_database(
    error: Exception, is_so: bool
) -> None:
    assert is_about_data(error) is is_so


def test_what_is_said_of_a_rejection_is_its_kind_and_never_its_message() -> None:
    assert said(UnicodeError("a secret")) == "UnicodeError"
    cause = psycopg.errors.CheckViolation("a secret")
    assert said(_caused(django.db.IntegrityError("a secret"), cause)) == "CheckViolation"


def test_a_database_that_goes_away_before_anything_has_moved_is_told() -> None:
    def away(only: object) -> None:
        raise psycopg.DataError("bad") if only is None else psycopg.OperationalError("gone")

    session: Any = Refusing()
    with pytest.raises(psycopg.OperationalError):
        Quarantine().move(session, away, lambda: [1])
    with pytest.raises(psycopg.DataError):
        Quarantine().move(session, away, list)
