"""Errors, results and stored texts at the edges: enormous, misleading, or beyond what Python reads.

What is accepted and refused is in ``test_storable.py``.
"""

from __future__ import annotations

import linecache
from types import MappingProxyType
from typing import Any

import pytest

from django_relay import storable
from tests.pages import DOCS

from .test_storable import GOOD, Loud, Size, Word, _same


def test_a_message_of_any_size_keeps_its_beginning_and_its_end() -> None:
    found = storable.error(ValueError(f"begins {'x' * 20_000_000} ends"))
    assert found["message"].startswith("begins xxx")
    assert found["message"].endswith("xxx ends")
    assert len(found["message"]) <= storable.MAX_MESSAGE


def test_of_three_thousand_causes_the_first_and_the_last_are_told() -> None:
    cause: Exception | None = None
    for number in range(3_000):
        error = ValueError(f"cause {number}")
        error.__cause__ = cause
        cause = error
    assert cause is not None
    told = storable.error(cause)["traceback"]
    assert "ValueError: cause 0\n" in told
    assert told.endswith("ValueError: cause 2999\n")
    assert len(told) <= storable.MAX_TRACEBACK


def _of_a_line_that_cannot_be_shown() -> BaseException:
    source = "raise ValueError('by a line')  # \ud800 \x00\n"
    linecache.cache["<odd>"] = (len(source), None, [source], "<odd>")
    try:
        exec(compile("raise ValueError('by a line')", "<odd>", "exec"))
    except ValueError as raised:
        return raised
    raise AssertionError


def test_a_source_line_that_cannot_be_shown_costs_the_source_lines_alone() -> None:
    told = storable.error(_of_a_line_that_cannot_be_shown())["traceback"]
    assert "UnicodeEncodeError" in told.splitlines()[0]
    assert '  File "<odd>", line 1, in <module>\n' in told
    assert told.endswith("builtins.ValueError: by a line\n")


class _NoFrames(Exception):
    """Raises wherever it is looked at for where it came from."""

    @property
    def __traceback__(self) -> Any:  # type: ignore[override]
        raise SystemExit("no")


def test_an_error_that_does_not_tell_where_it_came_from_is_stored_all_the_same() -> None:
    found = storable.error(_NoFrames("x"))
    assert found["message"] == "x"
    assert found["traceback"] == "<no source lines: formatting them raised builtins.SystemExit>\n"


class _Nameless(type):
    """A class that does not tell its module."""

    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise ValueError("no")


def test_a_class_that_does_not_tell_its_name_is_a_base_exception() -> None:
    error = _Nameless("Odd", (Exception,), {})("x")
    found = storable.error(error)
    assert found["class"] == "builtins.BaseException"
    assert found["importable"] == "builtins.Exception"


def test_an_interrupt_while_a_result_is_read_is_one() -> None:
    class Interrupted(list[int]):
        def __iter__(self) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        storable.result(Interrupted())


class Fraction(float):
    """A subclass of float."""


def test_values_of_other_classes_are_kept_as_what_they_stand_for() -> None:
    view = MappingProxyType({Word.YES: Loud("x")})
    assert storable.result([Fraction(0.5), Size.SMALL, view]) == ('[0.5,1,{"yes":"x"}]')


@pytest.mark.parametrize("value", [*GOOD[:-1], [1, [2, {"a": []}]]], ids=lambda v: str(v)[:12])
def test_what_was_stored_can_be_read(value: Any) -> None:
    assert _same(storable.reading(storable.arguments([value], {})[0]), [value])


@pytest.mark.parametrize(
    "text", ["[" * 103 + "]" * 103, '{"a":' * 900 + "1" + "}" * 900, "9" * 5_000, "{broken", ""]
)
def test_what_python_cannot_bear_is_read_as_its_text(text: str) -> None:
    assert storable.reading(text) == text


def test_the_sizes_are_told() -> None:
    told = " ".join((DOCS / "reference" / "task-options.md").read_text(encoding="utf-8").split())
    assert f"its class's path ({storable.MAX_CLASS} characters)" in told
    assert f"its message ({storable.MAX_MESSAGE:,})" in told
    assert f"its traceback ({storable.MAX_TRACEBACK:,})" in told
    assert f"more than {storable.MAX_DEPTH} levels" in told
    assert f"more than {storable.MAX_SIZE // 2**20} million characters" in told
