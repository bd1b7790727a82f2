"""The pace of a child: what it fetches ahead, and how long it keeps from claiming."""

from __future__ import annotations

from django_relay.pace import ABSTAIN, Pace


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
