"""How many jobs a child may claim, by the slots of both kinds."""

from __future__ import annotations

from typing import Any

import pytest

from django_relay.capacity import Capacity
from django_relay.pace import Pace

from .test_hands import plan

SYNC, ASYNC = False, True


def short_jobs(prefetch: int | None, *, seconds: float = 0.03) -> Pace:
    pace = Pace(prefetch)
    pace.claimed(full=True)
    for _ in range(90):
        pace.ran(seconds)
    return pace


def capacity(**flags: Any) -> Capacity:
    return Capacity(plan(**({"slots": 4, "async_slots": 100, "prefetch": None} | flags)))


def test_a_claim_is_for_what_the_scarcer_kind_of_slots_can_start() -> None:
    assert capacity().room(Pace(None), waiting=0, ending=0) == 4
    assert capacity(slots=9, async_slots=2).room(Pace(None), waiting=0, ending=0) == 2


def wide(**flags: Any) -> Capacity:
    """After five claims that brought nothing but async jobs."""
    made = capacity(**flags)
    for _ in range(5):
        made.came([ASYNC], full=True)
    return made


def test_while_only_async_jobs_come_each_claim_may_be_twice_the_last() -> None:
    child = capacity()
    rooms = []
    for _ in range(6):
        child.came([ASYNC, ASYNC], full=True)
        rooms.append(child.room(Pace(None), waiting=0, ending=0))
    assert rooms == [8, 16, 32, 64, 100, 100]
    child.begin(on_loop=True)
    assert child.room(Pace(None), waiting=10, ending=0) == 89


def test_after_a_claim_that_brings_too_few_the_next_is_for_half_as_many() -> None:
    child = wide()
    widths = []
    for kinds in ([ASYNC], [], [], [], []):
        child.came(kinds, full=False)
        widths.append(child.width)
    assert widths == [50, 25, 12, 6, 4]


@pytest.mark.parametrize("kinds", [[ASYNC, SYNC], [SYNC]])
def test_one_sync_job_makes_the_scarcer_kind_count_again(kinds: list[bool]) -> None:
    child = wide()
    child.came(kinds, full=True)
    assert (child.width, child.room(Pace(None), waiting=0, ending=0)) == (4, 4)


def test_short_jobs_are_fetched_ahead_for_as_many_slots_as_count() -> None:
    assert capacity().room(short_jobs(None), waiting=0, ending=0) == 8
    assert wide().room(short_jobs(None), waiting=0, ending=0) == 200
    assert wide().room(short_jobs(30), waiting=0, ending=0) == 130


@pytest.mark.parametrize(
    ("slots", "ahead"), [(1, 2), (4, 8), (8, 16), (12, 16), (16, 16), (40, 40)]
)
def test_of_jobs_of_a_moment_more_are_fetched_ahead_until_a_batch_is_full(
    slots: int, ahead: int
) -> None:
    child = capacity(slots=slots)
    moments = short_jobs(None, seconds=0.001)
    assert moments.ahead(slots) == ahead
    assert child.room(moments, waiting=0, ending=0) == child.most(moments) == slots + ahead
    assert short_jobs(slots, seconds=0.001).ahead(slots) == slots
    assert short_jobs(0, seconds=0.001).ahead(slots) == 0


def test_without_prefetching_nothing_is_claimed_that_could_not_start() -> None:
    assert wide(prefetch=0).room(short_jobs(0), waiting=0, ending=0) == 4


def test_fewer_slots_for_async_jobs_than_for_sync_ones_stay_the_scarcer_kind() -> None:
    assert wide(slots=9, async_slots=2).room(Pace(None), waiting=0, ending=0) == 2


def test_slots_in_use_make_no_negative_room_for_others() -> None:
    child = capacity(slots=1, async_slots=1)
    child.begin(on_loop=False)
    child.begin(on_loop=True)
    assert child.busy
    assert not child.on_loop
    assert child.room(Pace(None), waiting=0, ending=0) == 0
    child.end(on_loop=False)
    child.end(on_loop=True)
    assert not child.busy


@pytest.mark.parametrize("prefetch", [0, 1, 3, 4, 5, 50, 95, 1000])
def test_a_number_to_be_fetched_ahead_bounds_the_sync_jobs_that_follow_many_async_ones(
    prefetch: int,
) -> None:
    claimed = wide(prefetch=prefetch).room(short_jobs(prefetch), waiting=0, ending=0)
    assert claimed - 4 <= prefetch
    assert wide(prefetch=1000).room(short_jobs(1000), waiting=0, ending=0) == 200


def test_while_jobs_wait_for_a_slot_no_claim_is_made_for_a_few() -> None:
    child = wide()
    assert child.room(Pace(None), waiting=1, ending=50) == 0
    assert child.room(Pace(None), waiting=0, ending=51) == 49
    assert child.room(Pace(None), waiting=1, ending=49) == 50
    assert child.room(Pace(None), waiting=90, ending=90) == 0
