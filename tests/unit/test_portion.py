"""How many endings, and of what size, go into one statement."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from django_relay import outcomes
from django_relay.hand import Hand
from django_relay.outcomes import Verb
from django_relay.portion import MOST, SIZE, TRIES, Portion, give_up

SLOW = psycopg.errors.QueryCanceled("too slow")


def ended(size: int = 10) -> Hand:
    nothing: Any = SimpleNamespace()
    hand = Hand(nothing, nothing, (), 0.0)
    hand.outcome = outcomes.succeeded("x" * size)
    return hand


def test_usually_all_go_out() -> None:
    hands = [ended() for _ in range(200)]
    assert Portion().split(hands) == (hands, [])


def test_large_ones_go_out_a_few_at_a_time_and_the_largest_alone() -> None:
    hands = [ended(SIZE // 2), ended(SIZE // 2), ended(), ended(3 * SIZE), ended()]
    now, later = Portion().split(hands)
    assert (now, later) == (hands[:2], hands[2:])
    now, later = Portion().split(later)
    assert (now, later) == (hands[2:3], hands[3:])
    now, later = Portion().split(later)
    assert (now, later) == (hands[3:4], hands[4:])


def test_after_each_failure_half_as_many_go_out_and_twice_as_many_when_it_goes_well() -> None:
    portion = Portion()
    sizes = []
    for _ in range(4):
        portion.failed(8 if not sizes else sizes[-1])
        sizes.append(len(portion.split([ended() for _ in range(8)])[0]))
    assert sizes == [4, 2, 1, 1]
    for _ in range(10):
        portion.went_well()
    assert portion.most == MOST


def test_what_has_failed_alone_goes_last() -> None:
    portion = Portion()
    bad, good = ended(), ended()
    portion.failed(1)
    give_up(bad, SLOW)
    assert portion.split([bad, good]) == ([good], [bad])


@pytest.mark.parametrize(
    ("size", "error", "given_up"),
    [(SIZE + 1, SLOW, True), (10, SLOW, False), (SIZE + 1, psycopg.OperationalError("x"), False)],
    ids=["large and slow", "small and slow", "large, and no database"],
)
def test_only_what_is_large_and_slow_alone_becomes_a_failed_attempt(
    size: int, error: Exception, given_up: bool
) -> None:
    hand = ended(size)
    for _ in range(TRIES):
        assert hand.outcome
        assert hand.outcome.verb == Verb.SUCCEED
        give_up(hand, error)
    assert hand.outcome
    assert (hand.outcome.verb == Verb.RETRY) is given_up
