"""What a task may raise: it keeps what it was given, within the calendar."""

from __future__ import annotations

import copy
import math
import pickle
from datetime import timedelta

import pytest
from django.utils.module_loading import import_string

from django_relay import exceptions
from django_relay.exceptions import MAX_SNOOZE, Fail, Snooze


@pytest.mark.parametrize(
    ("asked", "delay"),
    [
        (timedelta(minutes=1), timedelta(minutes=1)),
        (60, timedelta(minutes=1)),
        (0.5, timedelta(milliseconds=500)),
        (0, timedelta(0)),
        (-5, timedelta(0)),
        (-timedelta(hours=1), timedelta(0)),
        (timedelta.min, timedelta(0)),
        (timedelta.max, MAX_SNOOZE),
        (math.inf, MAX_SNOOZE),
        (-math.inf, timedelta(0)),
        (1e300, MAX_SNOOZE),
        (10**400, MAX_SNOOZE),
    ],
    ids=lambda value: f"{value:.3}" if isinstance(value, float) else str(value)[:25],
)
def test_any_delay_is_brought_inside_the_calendar(
    asked: timedelta | float, delay: timedelta
) -> None:
    assert Snooze(asked).delay == delay


@pytest.mark.parametrize("wrong", ["1 min", None, True, [1]])
def test_what_is_no_delay_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError, match="timedelta or a number of seconds"):
        Snooze(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not NaN"):
        Snooze(math.nan)


def test_they_survive_copies_and_pickles() -> None:
    for error in (Snooze(5), Fail("no such customer")):
        for same in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert vars(same) == vars(error)
            assert str(same) == str(error)
    assert str(Fail("no such customer")) == "no such customer"


def test_every_exception_is_importable_by_its_path() -> None:
    for name in ("JobCancelled", "JobExpired", "JobTimeout", "LeaseLost", "WorkerLost"):
        cls = getattr(exceptions, name)
        assert import_string(f"{cls.__module__}.{cls.__qualname__}") is cls
        assert issubclass(cls, exceptions.RelayError)
