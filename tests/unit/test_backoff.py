"""The delay before another attempt: it grows, ends at its cap, is spread, and never overflows."""

from __future__ import annotations

import math
from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_relay.backoff import LONGEST, Backoff

FEW = st.integers(min_value=-3, max_value=200)
MANY = st.sampled_from([16, 31, 64, 1024, 30_000, 10**9, 2**63, 10**400])
seconds = st.floats(min_value=0.001, max_value=LONGEST.total_seconds()).map(
    lambda value: min(max(timedelta(seconds=value), timedelta(milliseconds=1)), LONGEST)
)


@given(
    failures=FEW | MANY,
    spans=st.tuples(seconds, seconds),
    factor=st.floats(min_value=1, max_value=100),
    jitter=st.floats(min_value=0, max_value=1),
)
def test_no_number_of_failures_overflows_or_passes_the_cap(
    failures: int, spans: tuple[timedelta, timedelta], factor: float, jitter: float
) -> None:
    backoff = Backoff(base=min(spans), cap=max(spans), factor=factor, jitter=jitter)
    assert timedelta(0) <= backoff.delay(failures) <= backoff.cap
    assert backoff.base <= backoff.nominal(failures) <= backoff.cap


@given(failures=st.integers(min_value=1, max_value=5_000))
def test_the_nominal_delay_never_shrinks(failures: int) -> None:
    assert Backoff().nominal(failures) <= Backoff().nominal(failures + 1)


def test_the_delay_doubles_from_its_base_to_its_cap() -> None:
    backoff = Backoff(base=timedelta(seconds=5), cap=timedelta(seconds=60), jitter=0)
    assert [backoff.delay(n).total_seconds() for n in range(1, 7)] == [5, 10, 20, 40, 60, 60]


def test_a_factor_of_one_keeps_the_base() -> None:
    assert Backoff(factor=1, jitter=0).delay(10**9) == timedelta(seconds=5)


@pytest.mark.parametrize("failures", [1, 2, 5, 30, 30_000])
def test_jobs_that_failed_together_do_not_come_back_together(failures: int) -> None:
    # A fifth is the bound of the promise; by how the delays are drawn it is at most a seventh.
    delays = [Backoff().delay(failures).total_seconds() for _ in range(500)]
    _, most = Counter(math.floor(delay) for delay in delays).most_common(1)[0]
    assert most < 100


def test_the_spread_does_not_pile_up_at_the_cap() -> None:
    backoff = Backoff(base=timedelta(seconds=30), cap=timedelta(seconds=40))
    delays = [backoff.delay(3) for _ in range(500)]
    assert sum(delay == backoff.cap for delay in delays) < 5


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"base": 5}, "base must be a timedelta"),
        ({"base": timedelta(0)}, "base must lie between"),
        ({"base": -timedelta(seconds=1)}, "base must lie between"),
        ({"base": timedelta(seconds=1e9)}, "base must lie between"),
        ({"cap": timedelta.max}, "cap must lie between"),
        ({"cap": timedelta(seconds=1)}, "cap .* must not be shorter than base"),
        ({"factor": 0.5}, "factor must lie between 1 and 100"),
        ({"factor": math.nan}, "factor must lie between"),
        ({"factor": math.inf}, "factor must lie between"),
        ({"factor": True}, "factor must be a number"),
        ({"jitter": -0.1}, "jitter must lie between 0 and 1"),
        ({"jitter": math.nan}, "jitter must lie between"),
        ({"jitter": "much"}, "jitter must be a number"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(values: dict[str, object], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        Backoff(**values)  # type: ignore[arg-type]


def test_a_timedelta_stands_for_its_base() -> None:
    assert Backoff.of(timedelta(seconds=9)) == Backoff(base=timedelta(seconds=9))
    assert Backoff.of(timedelta(hours=5)).cap == timedelta(hours=5)
    for wrong in (5, "5 s", None, timedelta(0), timedelta.max):
        with pytest.raises((TypeError, ValueError), match="backoff is"):
            Backoff.of(wrong)


def test_it_survives_being_written_down() -> None:
    backoff = Backoff(base=timedelta(milliseconds=1500), factor=3, jitter=0.1)
    assert Backoff.read(backoff.data()) == backoff
    for odd in (None, 7, "x", [], {}, {"base": 1}, {"base": "x", "cap": 2}, {"base": 1e99}):
        assert Backoff.read(odd) is None
