"""Several runs of one experiment as one: each figure by a rule of its own, and how measures spread.

An experiment says how often it is to be run and by which rule each of its figures is put together:
counts are added up, measures are told by their median, promises hold only if each run kept them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from .stage import Stage

T = TypeVar("T")
Rule = Callable[[Sequence[Any]], Any]


def repeated(stage: Stage, times: int, once: Callable[[], T], told: Callable[[T], str]) -> list[T]:
    """Run an experiment so often, and say what came of each run."""
    runs = []
    for number in range(1, times + 1):
        runs.append(once())
        which = f"{number} of {times}: " if times > 1 else ""
        stage.say(f"{which}{told(runs[-1])}")
    return runs


def figures(
    runs: Sequence[Mapping[str, Any]], rules: Mapping[str, Rule], *, measure: str = ""
) -> dict[str, Any]:
    """Put the figures of all runs together; of several also tell how the ``measure`` spreads."""
    found = {name: rule([run[name] for run in runs]) for name, rule in rules.items()}
    if len(runs) > 1:
        found["repeats"] = len(runs)
        if measure:
            values = [run[measure] for run in runs]
            found |= {"distribution": distribution(values), "runs": values}
    return found


def problems(runs: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Tell the problems of all runs, of several with the number of the run."""
    if len(runs) == 1:
        return tuple(runs[0])
    return tuple(f"run {n}: {each}" for n, found in enumerate(runs, start=1) for each in found)


def worth_recording(runs: Sequence[T], wrong: Sequence[Sequence[str]]) -> T:
    """Choose the run to be recorded: the first that went wrong, or else the first."""
    return next((run for run, found in zip(runs, wrong, strict=True) if found), runs[0])


def total(values: Sequence[Any]) -> Any:
    """Add up numbers, or what was counted by name."""
    if not isinstance(values[0], Mapping):
        return sum(values)
    counted: Counter[str] = Counter()
    for each in values:
        counted.update(each)
    return dict(sorted(counted.items()))


def typical(values: Sequence[Any]) -> Any:
    """Return the median of numbers, by nearest rank; of tables, of each number in them."""
    if isinstance(values[0], Mapping):
        return {key: typical([each[key] for each in values]) for key in values[0]}
    return sorted(values)[math.ceil(len(values) / 2) - 1]


def distribution(values: Sequence[Any]) -> dict[str, Any]:
    """Return how numbers spread; of tables, how each number in them does."""
    if isinstance(values[0], Mapping):
        return {key: distribution([each[key] for each in values]) for key in values[0]}
    return percentiles(values)


def joined(values: Sequence[Sequence[Any]]) -> list[Any]:
    """Put all that is in the lists into one, sorted."""
    return sorted(each for value in values for each in value)


def percentiles(values: Sequence[float], *, digits: int = 3) -> dict[str, float]:
    """Return p50, p95, p99 and max by nearest rank."""
    ordered = sorted(values)

    def rank(share: float) -> float:
        return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], digits)

    return {"p50": rank(0.5), "p95": rank(0.95), "p99": rank(0.99), "max": rank(1.0)}


def spread(values: Mapping[str, float], unit: str) -> str:
    """Put percentiles into words."""
    return ", ".join(f"{name} {value:g} {unit}" for name, value in values.items())
