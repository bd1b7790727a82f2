"""Several runs of an experiment put together: what is added up, what is a median, what holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.management.base import CommandError

from django_relay.lab import repeats, soak
from django_relay.lab.management.commands.relay_lab import EXPERIMENTS, Command
from django_relay.lab.repeats import joined, total, typical
from django_relay.lab.stage import Stage


def test_figures_of_several_runs_go_by_their_rules() -> None:
    runs: list[dict[str, Any]] = [
        {"seconds": 3.0, "jobs": 2, "held": True, "verbs": ["b"], "by": {"x": 1}},
        {"seconds": 1.0, "jobs": 3, "held": False, "verbs": ["a"], "by": {"x": 1, "y": 2}},
        {"seconds": 2.0, "jobs": 4, "held": True, "verbs": ["b"], "by": {}},
    ]
    rules = {"seconds": typical, "jobs": total, "held": all, "verbs": joined, "by": total}
    assert repeats.figures(runs, rules, measure="seconds") == {
        "seconds": 2.0,
        "jobs": 9,
        "held": False,
        "verbs": ["a", "b", "b"],
        "by": {"x": 2, "y": 2},
        "repeats": 3,
        "distribution": {"p50": 2.0, "p95": 3.0, "p99": 3.0, "max": 3.0},
        "runs": [3.0, 1.0, 2.0],
    }


def test_the_figures_of_one_run_are_its_own() -> None:
    assert repeats.figures([{"seconds": 1.23456}], {"seconds": typical}, measure="seconds") == {
        "seconds": 1.23456
    }


def test_measures_by_name_have_a_median_and_a_spread_each() -> None:
    values = [{"fast": n * 1.0, "immediate": n * 10.0} for n in (3, 1, 2)]
    assert typical(values) == {"fast": 2.0, "immediate": 20.0}
    assert repeats.distribution(values)["immediate"]["max"] == 30.0


def test_problems_name_their_run_where_there_are_several() -> None:
    assert repeats.problems([["lost"]]) == ("lost",)
    assert repeats.problems([[], ["lost", "odd"]]) == ("run 2: lost", "run 2: odd")


def test_the_run_that_went_wrong_is_the_one_to_record() -> None:
    assert repeats.worth_recording(["a", "b", "c"], [[], ["lost"], ["odd"]]) == "b"
    assert repeats.worth_recording(["a", "b"], [[], []]) == "a"


def test_a_run_is_told_when_it_is_over(tmp_path: Path) -> None:
    said: list[str] = []
    stage: Any = Stage(None, tmp_path, None, said.append)  # type: ignore[arg-type]
    numbers = iter((5, 7))
    assert repeats.repeated(stage, 2, lambda: next(numbers), str) == [5, 7]
    assert said == ["1 of 2: 5", "2 of 2: 7"]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_takes_the_options_that_make_sense_for_it(name: str) -> None:
    parser = Command().create_parser("manage.py", "relay_lab")
    common = ["--format", "json", "--record", "a", "--html", "b"]
    assert vars(parser.parse_args([name, *common]))["html"] == Path("b")
    # A soak lasts as long as it is told to; that is its way to be repeated.
    if EXPERIMENTS[name] is soak:
        with pytest.raises(CommandError):
            parser.parse_args([name, "--repeat", "2"])
    else:
        assert vars(parser.parse_args([name, "--repeat", "2"]))["repeat"] == 2
