"""Durations, moments and leases in the words of the admin's pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_relay.admin import counts, values, words
from django_relay.admin.readonly import key_of
from django_relay.replay import wording

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-5, "0 ms"),
        (0.0004, "0 ms"),
        (0.34, "340 ms"),
        (0.9996, "1 s"),
        (3.24, "3.2 s"),
        (59.94, "59.9 s"),
        (60, "1 min"),
        (125, "2 min 5 s"),
        (3599.6, "1 h"),
        (11_520, "3 h 12 min"),
        (86_399.7, "1 day"),
        (86_400 * 3 + 7_200, "3 days 2 h"),
        (86_400 * 2_000, "2,000 days"),
        (1e12, "11,574,074 days"),
    ],
)
def test_a_duration_is_told_in_two_units_at_most(seconds: float, said: str) -> None:
    assert words.duration(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "now"), (0.4, "now"), (4, "in 4 s"), (-90, "1 min 30 s ago"), (7_200, "in 2 h")],
)
def test_a_moment_is_told_as_seen_from_the_databases_now(seconds: float, said: str) -> None:
    moment = words.moment(NOW + timedelta(seconds=seconds), NOW)
    assert moment is not None
    assert moment.ago == said


def test_a_moment_keeps_its_milliseconds_and_its_zone() -> None:
    moment = words.moment(NOW + timedelta(milliseconds=7), NOW)
    assert moment is not None
    assert moment.exact == "2026-03-01 12:00:00.007 UTC"
    assert moment.short == "12:00:00"
    assert words.short(NOW - timedelta(days=1), NOW) == "2026-02-28 12:00:00"


def test_times_without_a_zone_are_told_without_one() -> None:
    naive = NOW.replace(tzinfo=None)
    assert words.exact(naive) == "2026-03-01 12:00:00.000"


@pytest.mark.parametrize(
    ("claim", "letter"),
    [(None, ""), (0, ""), (1, "A"), (26, "Z"), (27, "AA"), (702, "ZZ"), (703, "AAA")],
)
def test_a_lease_is_named_by_the_claim_it_came_with(claim: int | None, letter: str) -> None:
    assert words.letter(claim) == letter


@pytest.mark.parametrize(
    ("text", "line"),
    [(None, ""), ("", ""), ("\n\n  first \nsecond", "first"), ("x" * 300, "x" * 199 + "…")],
)
def test_of_an_error_the_first_line_is_shown(text: str | None, line: str) -> None:
    assert wording.first_line(text) == line


@pytest.mark.parametrize(
    ("name", "said"), [("17 ada", "ada"), ("a cron job", "a cron job"), (None, ""), ("17", "17")]
)
def test_of_an_actor_the_name_is_shown(name: str | None, said: str) -> None:
    assert wording.actor(name) == said


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (-1, "more than 10,000"),
        (12_345, "about 12,300"),
        (999_999, "about 1,000,000"),
        (2_345_678, "about 2,350,000"),
    ],
)
def test_an_estimate_claims_no_more_than_it_knows(rows: int, said: str) -> None:
    assert counts.about(rows) == said


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("17", 17),
        (" #17 ", 17),
        (str(2**63 - 1), 2**63 - 1),
        (str(2**63), None),
        ("0", None),
        ("-1", None),
        ("1.0", None),
        ("\N{ARABIC-INDIC DIGIT THREE}", None),
        ("\N{SUPERSCRIPT TWO}", None),
        (None, None),
    ],
)
def test_only_what_can_be_a_key_is_taken_for_one(text: str | None, key: int | None) -> None:
    assert key_of(text) == key


@pytest.mark.parametrize("text", ["1e400", "[" * 5000, "1" * 5000, "{", '"\\ud800"', "NaN"])
def test_json_that_python_cannot_bear_is_left_as_it_is(text: str) -> None:
    assert values.indented(text).encode()
    assert values.indented(text).strip('"') == text.strip('"')
