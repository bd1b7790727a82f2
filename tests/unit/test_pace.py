"""The pace of a child: what it fetches ahead, and how long it keeps from claiming."""

from __future__ import annotations

import time

import pytest

from django_relay.pace import ABSTAIN, COALESCE, FRESH, GATHER, MOMENT, QUICK, SHORT, Pace


def test_jobs_that_go_back_again_and_again_make_a_child_wait_longer_each_time() -> None:
    pace = Pace(None)
    pauses = []
    for _ in range(6):
        pace.fetched_in_vain()
        pauses.append(round(pace.pause, 1))
    assert pauses == [0.5, 1.0, 2.0, 4.0, ABSTAIN, ABSTAIN]


def test_a_handler_that_ends_makes_it_claim_at_once_and_fetch_ahead_again() -> None:
    pace = Pace(3)
    pace.fetched_in_vain()
    assert pace.ahead(8) == 0
    pace.ran(0.01)
    assert pace.pause <= 0
    assert pace.ahead(8) == 3
    pace.fetched_in_vain()
    assert round(pace.pause, 1) == 0.5


@pytest.mark.parametrize(
    ("seconds", "waiting", "looking", "gather"),
    [
        (0.2, True, False, 0.0),
        (0.2, False, False, 0.0),
        (0.01, True, True, 0.01),
        (0.08, True, True, GATHER),
        (0.01, False, False, COALESCE),
        (0.01, False, True, 0.0),
        (0.001, True, True, MOMENT),
        (0.001, False, True, MOMENT),
    ],
)
def test_an_ending_waits_for_others_and_for_the_next_claim(
    seconds: float, waiting: bool, looking: bool, gather: float
) -> None:
    pace = Pace(None)
    for _ in range(90):
        pace.ran(seconds)
    assert pace.gather(waiting=waiting, looking=looking) == pytest.approx(gather, rel=0.1)


def test_an_ending_goes_with_the_claim_that_waits_for_jobs_to_gather() -> None:
    pace = Pace(None)
    for _ in range(90):
        pace.ran(0.01)
    pace.claimed(full=True)
    assert pace.gather(waiting=False, looking=True) == 0.0
    pace._not_before = time.monotonic() + 60
    assert pace.gather(waiting=False, looking=True) == COALESCE


def test_the_first_jobs_tell_at_once_how_long_they_take() -> None:
    pace = Pace(None)
    pace.claimed(full=True)
    assert pace.ahead(4) == 0
    pace.ran(0.03)
    assert pace.ahead(4) == 4
    for _ in range(20):
        pace.ran(0.03)
    pace.ran(0.9)
    assert pace.ahead(4) == 0, "one long job among short ones"


@pytest.mark.parametrize(
    ("seconds", "ahead"), [(MOMENT / 2, 8), (QUICK / 2, 8), (QUICK * 2, 4), (SHORT * 2, 0)]
)
def test_jobs_are_fetched_ahead_only_while_no_slot_elsewhere_can_want_them(
    seconds: float, ahead: int
) -> None:
    pace = Pace(None)
    pace.claimed(full=True)
    pace.ran(seconds)
    assert pace.ahead(4) == ahead
    assert pace.ahead(20) == (20 if ahead else 0), "many slots hold enough"
    pace.claimed(full=True)
    assert pace.ahead(4) == 0, "what has come now may be long, and others may have free slots"
    pace.ran(seconds)
    assert pace.ahead(4) == ahead
    pace.claimed(full=False)
    pace.ran(seconds)
    assert pace.ahead(4) == 0, "others may have free slots"


def test_what_handlers_took_a_while_ago_says_nothing_of_the_next_ones() -> None:
    pace = Pace(None)
    pace.claimed(full=True)
    for _ in range(90):
        pace.ran(0.001)
    assert pace.ahead(4) == 8
    pace._ran_at -= 2 * FRESH
    assert pace.ahead(4) == 0
    pace.ran(0.05)
    assert pace.ahead(4) == 4
    pace._ran_at -= 2 * FRESH
    pace.ran(3.0)
    assert pace.ahead(4) == 0, "the new one counts alone"
