"""What goes into the database is what comes out, or it is refused; errors always fit."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import math
import socket
import threading
import uuid
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import given
from hypothesis import strategies as st

from django_relay import storable


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


class Word(enum.StrEnum):
    YES = "yes"


@dataclasses.dataclass
class Point:
    x: int = 1


class Loud(str):
    """A subclass of str."""


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def _own_parent() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


GOOD = [
    None, True, False, 0, -1, 2**63, 2**100, -(10**4000), 0.0, -0.0, 1e16, 1e308, 5e-324, "", "a",
    "äß €🎈", "\t\n\x01\u2028", [], {}, [[]], {"": None}, {"1": "a", "ä": [1, {"b": 2.5}]},
    _nested(100), "x" * 5_000_000,
]  # fmt: skip

BAD: list[tuple[Any, str]] = [
    ((1, 2), "would arrive as a list"),
    ({1}, "of type set"),
    (frozenset(), "of type frozenset"),
    (b"raw", "of type bytes"),
    (bytearray(b"raw"), "of type bytearray"),
    (datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC), r"\.isoformat\(\)"),
    (datetime.datetime(2030, 1, 1), r"\.isoformat\(\)"),  # noqa: DTZ001
    (datetime.date(2030, 1, 1), r"\.isoformat\(\)"),
    (datetime.timedelta(1), "of type timedelta"),
    (decimal.Decimal("1.5"), "of type Decimal"),
    (uuid.UUID(int=1), "of type UUID"),
    (Colour.RED, "of type Colour"),
    (Size.SMALL, "of type Size"),
    (Word.YES, "of type Word"),
    (Loud("x"), "of type Loud"),
    (gettext_lazy("hello"), "of type"),
    (User(pk=3), "Pass its primary key"),
    (Point(), "of type Point"),
    (object(), "of type object"),
    (range(3), "of type range"),
    ({1: "a"}, "a key of type int"),
    ({1: "a", "1": "b"}, "a key of type int"),
    ({None: 0}, "a key of type NoneType"),
    ({(1, 2): 0}, "a key of type tuple"),
    (math.nan, "NaN or infinite"),
    (math.inf, "NaN or infinite"),
    (-math.inf, "NaN or infinite"),
    ("\x00", "a NUL character"),
    ({"\x00": 1}, "a NUL character"),
    ("\ud800", "half of a surrogate pair"),
    ({"\udfff": 1}, "half of a surrogate pair"),
    (10**5000, "digits"),
    (_nested(101), "100 levels deep"),
    (_nested(2000), "100 levels deep"),
    (_own_parent(), "contains itself"),
    (["x" * 1_000_000] * 17, "16 million characters"),
]


def _same(one: Any, other: Any) -> bool:
    """Equal in type and value, all the way down; 0.0 and -0.0 differ."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(_same, one.values(), other.values()))
    return repr(one) == repr(other) if isinstance(one, float) else bool(one == other)


@pytest.mark.parametrize("value", GOOD, ids=lambda value: type(value).__name__)
def test_an_argument_arrives_equal_in_type_and_value(value: Any) -> None:
    args, kwargs = storable.arguments([value], {"named": value})
    assert _same(json.loads(args), [value])
    assert _same(json.loads(kwargs), {"named": value})
    assert args.isascii()


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abcä"), inner),
)


@given(plain)
def test_any_plain_value_arrives_unchanged(value: Any) -> None:
    assert _same(json.loads(storable.arguments([value], {})[0])[0], value)
    assert _same(json.loads(storable.result(value)), value)


@pytest.mark.parametrize(("value", "why"), BAD, ids=lambda value: type(value).__name__)
def test_an_argument_that_would_change_is_refused_by_name(value: Any, why: str) -> None:
    with pytest.raises((TypeError, ValueError), match=why) as first:
        storable.arguments([1, value], {})
    with pytest.raises((TypeError, ValueError), match=why) as second:
        storable.arguments([], {"order": value})
    assert "argument 2" in str(first.value)
    assert "argument 'order'" in str(second.value)


def test_a_refusal_tells_the_place_and_not_the_data() -> None:
    with pytest.raises(TypeError) as refusal:
        storable.arguments([], {"order": {"secret key": [1, {"x": b"secret"}]}})
    assert "argument 'order'[...][1][...] is of type bytes" in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_a_rendered_template_arrives_as_plain_text() -> None:
    args, _ = storable.arguments([mark_safe("<b>")], {})
    assert json.loads(args) == ["<b>"]


def test_a_value_that_holds_itself_many_times_is_refused_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storable, "MAX_SIZE", 2**20)  # a second of work becomes a moment
    value: list[Any] = []
    for _ in range(90):  # two to the power of ninety leaves
        value = [value, value]
    with pytest.raises(ValueError, match="a million values"):
        storable.arguments([value], {})


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ((1, (2,)), [1, [2]]),
        (range(3), [0, 1, 2]),
        (Size.SMALL, 1),
        (Word.YES, "yes"),
        (Loud("x"), "x"),
        ({"a": (1,)}, {"a": [1]}),
        (mark_safe("<b>"), "<b>"),
    ],
)
def test_a_result_is_turned_as_the_framework_turns_it(value: Any, kept: Any) -> None:
    assert _same(json.loads(storable.result(value)), kept)


class _Hostile(list[int]):
    def __iter__(self) -> Any:
        raise SystemExit(3)


LENIENT = (tuple, range, Size, Word, Loud)
UNSTORABLE = [(value, why) for value, why in BAD if not isinstance(value, LENIENT)]


@pytest.mark.parametrize(
    ("value", "why"),
    [*UNSTORABLE, (_Hostile(), "SystemExit"), ((n for n in []), "generator"), (b"", "bytes")],
    ids=lambda value: type(value).__name__,
)
def test_a_result_that_cannot_be_stored_says_so(value: Any, why: str) -> None:
    with pytest.raises(storable.Unstorable, match=why) as refusal:
        storable.result(value)
    assert "return value cannot be stored" in str(refusal.value)


# ------------------------------------------------------------------------------------- errors


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class ExitText(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


class NumberText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


class NoRepr(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no")


class TwoArguments(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def _own_cause() -> BaseException:
    error = ValueError("mine")
    error.__cause__ = error
    return error


def _of_a_function() -> BaseException:
    class Inner(KeyError):
        pass

    return Inner("x")


def _badly_named() -> BaseException:
    class Bad(ValueError):
        pass

    Bad.__qualname__ = "Bad\x00Name\ud800"
    return Bad("x\x00\ud800")


class Own(BaseException):
    pass


ERRORS: list[tuple[BaseException, str, str]] = [
    (ValueError("it broke"), "builtins.ValueError", "it broke"),
    (SystemExit(0), "builtins.SystemExit", "0"),
    (KeyboardInterrupt(), "builtins.KeyboardInterrupt", ""),
    (GeneratorExit(), "builtins.GeneratorExit", ""),
    (Own("mine"), f"{__name__}.Own", "mine"),
    (NoText(), f"{__name__}.NoText", "<no text: its __str__ raised builtins.RuntimeError>"),
    (ExitText(), f"{__name__}.ExitText", "<no text: its __str__ raised builtins.SystemExit>"),
    (NumberText(), f"{__name__}.NumberText", "<no text: its __str__ raised builtins.TypeError>"),
    (NoRepr("x"), f"{__name__}.NoRepr", "x"),
    (TwoArguments(1, 2), f"{__name__}.TwoArguments", "1 and 2"),
    (_own_cause(), "builtins.ValueError", "mine"),
    (ExceptionGroup("all", [ValueError("a"), KeyError("b")]), "builtins.ExceptionGroup", "all"),
    (_of_a_function(), f"{__name__}._of_a_function.<locals>.Inner", "'x'"),
    (_badly_named(), f"{__name__}.Bad\\x00Name\\ud800", "x\\x00\\ud800"),
    (ValueError("a\x00b\ud800c"), "builtins.ValueError", "a\\x00b\\ud800c"),
    (ValueError("x" * 1_000_000), "builtins.ValueError", "[...]"),
    (ValueError(socket.socket(), threading.Lock()), "builtins.ValueError", "lock"),
]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("exc", "cls", "message"), ERRORS, ids=lambda value: type(value).__name__)
def test_any_error_can_be_described(exc: BaseException, cls: str, message: str) -> None:
    try:
        raise exc
    except BaseException as raised:
        found = storable.error(raised)
    assert found["class"] == cls
    assert message in found["message"]
    assert "Traceback" in found["traceback"]
    text = json.dumps(found)
    assert "\\u0000" not in text
    assert "".join(found.values()).encode()
    assert len(text) < 60_000


def test_a_class_that_cannot_be_imported_names_an_ancestor_that_can() -> None:
    assert storable.error(_of_a_function())["importable"] == "builtins.KeyError"
    assert "importable" not in storable.error(ValueError())


def test_a_long_traceback_keeps_its_beginning_and_its_end() -> None:
    try:
        raise ValueError("y" * 100_000)
    except ValueError as raised:
        found = storable.error(raised)
    assert found["traceback"].startswith("Traceback")
    assert found["traceback"].endswith("y\n")
    assert len(found["traceback"]) <= storable.MAX_TRACEBACK
