"""OPTIONS: each fault is found and said with its remedy; policy goes by who said it."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from typing import Any

import pytest

from django_relay.backoff import Backoff
from django_relay.options import UNSET, BadOptions, Options, PartialPolicy

second = timedelta(seconds=1)


def problems(given: Any) -> list[str]:
    with pytest.raises(BadOptions) as bad:
        Options.parse(given)
    assert all(each.hint for each in bad.value.problems)
    return [f"{each.message} {each.hint}" for each in bad.value.problems]


def test_nothing_said_gives_the_defaults() -> None:
    options = Options.parse({})
    assert options == Options()
    assert (options.lease, options.poll, options.grace) == (30 * second, second, 25 * second)
    assert (options.max_attempts, options.prefetch) == (3, "auto")
    assert options.silence == 300 * second


def test_every_default_is_acceptable_as_a_setting_and_documented() -> None:
    defaults = {each.name: getattr(Options(), each.name) for each in fields(Options)}
    assert Options.parse(defaults) == Options()
    assert all(each.metadata["doc"].strip() for each in fields(Options))


def test_it_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Options().lease = second  # type: ignore[misc]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"leese": second}, "'leese'] is unknown. Did you mean 'lease'?"),
        ({"maxattempts": 3}, "Did you mean 'max_attempts'?"),
        ({"zzz": 3}, "is unknown. Use one of backoff,"),
        ({7: 3}, "OPTIONS[7] is unknown"),
        ({"lease": 30}, "bare number 30, which has no unit. Write timedelta(seconds=30)"),
        ({"lease": "30s"}, "of type str"),
        ({"lease": True}, "of type bool"),
        ({"lease": timedelta(0)}, "Use a timedelta from 0:00:01"),
        ({"lease": timedelta.max}, "Use a timedelta from"),
        ({"grace": -second}, "Use a timedelta from"),
        ({"poll": None}, "of type NoneType"),
        ({"max_attempts": 0}, "max_attempts is 0. Use a whole number of at least 1"),
        ({"max_attempts": True}, "of type bool"),
        ({"max_attempts": 2.0}, "of type float"),
        ({"max_attempts": 10**10}, "Use a whole number"),
        ({"backoff": 5}, "of type int. Use a Backoff"),
        ({"backoff": -1}, "of type int"),
        ({"backoff": math.nan}, "of type float"),
        ({"backoff": 1e9}, "of type float"),
        ({"backoff": timedelta(0)}, "base must lie between"),
        ({"notify": 1}, "Use True or False"),
        ({"database": ""}, "alias from DATABASES"),
        ({"database": 5}, "alias from DATABASES"),
        ({"prefetch": -1}, "Use 'auto'"),
        ({"prefetch": "all"}, "Use 'auto'"),
        ({"prefetch": True}, "Use 'auto'"),
        ({"stuck_after": second}, "shorter than the lease"),
        ({"tasks": []}, "of type list"),
        ({"tasks": {"a.b": 3}}, "map paths of tasks to dictionaries"),
        ({"tasks": {"a.b": {"max_attemps": 3}}}, "Did you mean 'max_attempts'?"),
        ({"tasks": {"a.b": {"max_attempts": -1}}}, "'a.b'. max_attempts is -1"),
        ({"tasks": {"a.b": {"backoff": 5}}}, "backoff is of type int"),
        ([], "OPTIONS is of type list. Use a dictionary."),
        (None, "OPTIONS is of type NoneType"),
    ],
)
def test_a_wrong_option_is_named_with_its_remedy(given: Any, words: str) -> None:
    (said,) = problems(given)
    assert words in said


def test_all_faults_are_told_at_once() -> None:
    assert len(problems({"lease": 30, "pol": second, "max_attempts": 0})) == 3


def test_every_right_form_is_accepted() -> None:
    options = Options.parse(
        {
            "database": "queue",
            "lease": 6 * second,
            "poll": second / 4,
            "grace": timedelta(0),
            "stuck_after": 20 * second,
            "max_attempts": None,
            "backoff": timedelta(seconds=2),
            "prefetch": 0,
            "pooled": True,
        }
    )
    assert options.max_attempts is None
    assert options.backoff == Backoff(base=2 * second)
    assert options.silence == 20 * second


POLICED = Options.parse(
    {
        "max_attempts": 4,
        "tasks": {
            "shop.*": {"max_attempts": 5, "backoff": timedelta(seconds=7)},
            "shop.tasks.send": {"max_attempts": None},
            "shop.tasks.*": {"max_attempts": 6},
        },
    }
)


@pytest.mark.parametrize(
    ("path", "said", "attempts", "base"),
    [
        ("other.tasks.send", PartialPolicy(), 4, 5),
        ("shop.views.send", PartialPolicy(), 5, 7),
        ("shop.tasks.pack", PartialPolicy(), 6, 7),
        ("shop.tasks.send", PartialPolicy(), None, 7),
        ("shop.tasks.send", PartialPolicy(max_attempts=2), 2, 7),
        ("shop.tasks.pack", PartialPolicy(max_attempts=None), None, 7),
        ("shop.tasks.pack", PartialPolicy(backoff=Backoff(base=9 * second)), 6, 9),
        ("Shop.tasks.pack", PartialPolicy(), 4, 5),
    ],
)
def test_the_task_comes_before_its_pattern_and_that_before_the_rest(
    path: str, said: PartialPolicy, attempts: int | None, base: int
) -> None:
    policy = POLICED.policy(path, said)
    assert policy.max_attempts == attempts
    assert policy.backoff.base == base * second


def test_unset_is_neither_none_nor_a_number() -> None:
    assert PartialPolicy() == PartialPolicy(UNSET, UNSET)
    assert PartialPolicy(max_attempts=None) != PartialPolicy()
    assert repr(UNSET) == "UNSET"
