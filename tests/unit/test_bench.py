"""The measurements of tests/bench, which pytest does not run, are named on the page about them."""

from __future__ import annotations

import inspect
import re
from importlib import import_module

import pytest

from tests.bench.__main__ import NAMES
from tests.pages import DOCS

PAGE = DOCS / "explanation" / "performance.md"


def test_the_page_says_how_to_repeat_every_measurement() -> None:
    assert set(re.findall(r"-m tests\.bench (\w+)", PAGE.read_text())) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_keyword_of_a_measurement_can_be_a_flag(name: str) -> None:
    run = import_module(f"tests.bench.{name}").run
    assert run.__doc__
    for parameter in inspect.signature(run).parameters.values():
        assert parameter.kind is parameter.KEYWORD_ONLY
        assert isinstance(parameter.default, int | float | str)
