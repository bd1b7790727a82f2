"""A history is played through the machine, event by event, and the first that cannot be is told."""

from __future__ import annotations

from itertools import pairwise

import pytest

from django_relay.states import (
    FINAL,
    TRANSITIONS,
    WAITING,
    EventKind,
    IllegalHistory,
    State,
    replay,
)

LIFE = [
    ("enqueued", "scheduled"), ("claimed", None), ("retried", "scheduled"), ("claimed", None),
    ("cancel_requested", "running"), ("rescued", "ready"), ("refused", None), ("claimed", None),
    ("failed", "failed"), ("refused", None), ("requeued", "ready"), ("moved", "ready"),
    ("rescheduled", "scheduled"), ("claimed", None), ("succeeded", "successful"),
]  # fmt: skip


def test_a_legal_history_leads_where_its_last_event_says() -> None:
    assert replay(LIFE) == {State.SUCCESSFUL}
    assert replay(LIFE[:1]) == {State.SCHEDULED}
    assert replay([("enqueued", None)]) == WAITING
    assert replay([]) == frozenset()


def test_an_event_that_does_not_say_where_it_led_may_have_led_to_each_of_its_targets() -> None:
    assert replay([*LIFE[:2], ("rescued", None)]) == {State.READY, State.SCHEDULED}
    assert replay([*LIFE[:2], ("rescued", "nowhere")]) == {State.READY, State.SCHEDULED}


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([("refused", None)], "event 1: refused before enqueued"),
        ([("claimed", None)], "event 1: claimed cannot follow None"),
        ([*LIFE, ("succeeded", None)], "event 16: succeeded cannot follow successful"),
        ([*LIFE[:2], ("claimed", None)], "event 3: claimed cannot follow running"),
        ([("enqueued", "ready"), ("blessed", None)], "event 2: unknown kind 'blessed'"),
        ([("enqueued", "ready"), ("enqueued", "ready")], "event 2: enqueued cannot follow ready"),
    ],
)
def test_the_first_event_that_cannot_be_is_told(events: list[tuple[str, str]], why: str) -> None:
    with pytest.raises(IllegalHistory, match=why):
        replay(events)


def test_every_state_is_reached_and_left_by_some_transition() -> None:
    assert {state for row in TRANSITIONS for state in row.target} == {*State, None}
    assert {state for row in TRANSITIONS for state in row.source} == {*State, None}
    assert not WAITING & FINAL
    assert {kind for row in TRANSITIONS for kind in row.kinds} == set(EventKind)
    assert all(row.verb != after.verb for row, after in pairwise(TRANSITIONS))
