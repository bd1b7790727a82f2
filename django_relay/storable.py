"""Errors, results and arguments as JSON that PostgreSQL keeps and gives back unchanged.

``error`` and ``text`` accept whatever a handler can raise and cannot raise themselves.
``arguments`` is strict: what comes out at the handler is equal in type and value, or it is refused.
``result`` turns what Django turns (tuples into lists, other mappings into dicts) and refuses the
rest. No value ever appears in a message, for messages end up in logs.
"""

from __future__ import annotations

import json
import math
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.utils.safestring import SafeString

MAX_DEPTH = 100
#: Characters of text, before JSON's escapes, and 16 for each value: so a million values at most.
MAX_SIZE = 16 * 1024 * 1024
VALUE_SIZE = 16
#: An integer of more digits cannot be read back from JSON by Python's defaults.
MAX_INT_BITS = 14_000
MAX_CLASS = 255
MAX_MESSAGE = 2_000
MAX_TRACEBACK = 20_000


class Unstorable(TypeError):
    """A task returned something that cannot be kept as JSON; the message says what."""


def arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, str]:
    """Encode a task's arguments as two JSON texts, a list and an object.

    Accepted are exactly str, int, float, bool, None, list, and dict with str keys; a template's
    SafeString arrives as plain str. Anything else raises TypeError, and a value that JSON or
    PostgreSQL cannot hold raises ValueError; both name the argument.
    """
    encoder = _Encoder(exact=True)
    kept_args = [encoder.encode(value, f"argument {n}") for n, value in enumerate(args, 1)]
    kept_kwargs = {
        encoder.key(name, "the arguments"): encoder.encode(value, f"argument {name!r}")
        for name, value in kwargs.items()
    }
    return _dumps(kept_args), _dumps(kept_kwargs)


def result(value: Any) -> str:
    """Encode what a task returned as JSON text, or raise ``Unstorable`` saying why not."""
    if value is None:  # what most tasks return
        return "null"
    try:
        return _dumps(_Encoder(exact=False).encode(value, "the result"))
    except KeyboardInterrupt:
        raise
    except BaseException as reason:  # the value's own methods may raise anything
        said = text(reason) if type(reason) in (TypeError, ValueError) else type(reason).__name__
        raise Unstorable(f"The task's return value cannot be stored as JSON. {said}") from None


def reading(value: str) -> Any:
    """Decode JSON text; give back the text where Python cannot bear it: too deep, too many digits.

    Nothing that was encoded here is so; somebody's own SQL may be.
    """
    try:
        decoded = json.loads(value)
    except (ValueError, RecursionError):
        return value
    level = [decoded]
    for _ in range(MAX_DEPTH + 2):  # the arguments' own list, and what the deepest holds
        level = [each for held in level for each in _members(held)]
        if not level:
            return decoded
    return value


def _members(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def error(exc: BaseException) -> dict[str, str]:
    """Describe an exception as ``class``, ``message`` and ``traceback``; never raises.

    Sizes are bounded, and what PostgreSQL refuses is replaced visibly. Where the class cannot be
    imported by its path (it was made inside a function), ``importable`` names its nearest ancestor
    that can.
    """
    cls = type(exc)
    found = {
        "class": _shortened(_path(cls), MAX_CLASS),
        "message": text(exc),
        "traceback": _traceback(exc),
    }
    importable = next((_path(each) for each in cls.__mro__ if _is_importable(each)), None)
    if importable is not None and importable != found["class"]:
        found["importable"] = importable
    return found


def text(exc: BaseException) -> str:
    """Tell what an exception says, in text that PostgreSQL accepts; never raises."""
    try:
        return _told([str(exc)], MAX_MESSAGE)
    except BaseException as failure:  # __str__ may raise anything, also SystemExit
        return f"<no text: its __str__ raised {_shortened(_path(type(failure)), MAX_CLASS)}>"


def clean(value: str) -> str:
    r"""Replace what PostgreSQL text cannot hold (NUL, lone surrogates) by its ``\x00`` notation."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")


#: Where a value was found: an argument's name, or what holds the value and the index in it. It is
#: put into words only for a message.
_Place = str | tuple[Any, int | None]


class _Encoder:
    """Copies a value into plain JSON types, within one budget of depth and size."""

    def __init__(self, *, exact: bool) -> None:
        self.exact = exact
        self.left = MAX_SIZE

    def encode(self, value: Any, place: _Place, depth: int = 0) -> Any:
        """Return ``value`` in plain types, or raise TypeError or ValueError naming ``place``."""
        self._spend(VALUE_SIZE, place)
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is str:
            return self._text(value, place)
        if kind is int:
            return self._int(value, place)
        if kind is float:
            return self._float(value, place)
        if kind is list:
            return self._list(value, place, depth)
        if kind is dict:
            return self._dict(value, place, depth)
        return self._other(value, place, depth)

    def key(self, key: Any, place: _Place) -> str:
        """Return the key of an object, which JSON knows only as text."""
        if type(key) is str or (not self.exact and isinstance(key, str)):
            return self._text(str.__str__(key), place)
        raise TypeError(
            f"Unsupported type: {_where(place)} has a key of type {_name(key)}; JSON keys are str. "
            "Convert the keys, or pass a list of pairs."
        )

    def _other(self, value: Any, place: _Place, depth: int) -> Any:
        """Take what is no plain JSON type, as far as it may be turned into one."""
        if isinstance(value, SafeString):
            return self._text(str.__str__(value), place)
        if not self.exact:
            if isinstance(value, str):
                return self._text(str.__str__(value), place)
            if isinstance(value, int):
                return self._int(int.__index__(value), place)
            if isinstance(value, float):
                return self._float(float.__float__(value), place)
            if isinstance(value, Mapping):
                return self._dict(value, place, depth)
            if isinstance(value, Sequence) and not isinstance(
                value, bytes | bytearray | memoryview
            ):
                return self._list(value, place, depth)
        raise TypeError(
            f"Unsupported type: {_where(place)} is of type {_name(value)}. {_remedy(value)}"
        )

    def _list(self, value: Iterable[Any], place: _Place, depth: int) -> list[Any]:
        self._descend(place, depth)
        return [self.encode(each, (place, n), depth + 1) for n, each in enumerate(value)]

    def _dict(self, value: Mapping[Any, Any], place: _Place, depth: int) -> dict[str, Any]:
        self._descend(place, depth)
        return {
            self.key(key, place): self.encode(each, (place, None), depth + 1)
            for key, each in value.items()
        }

    def _descend(self, place: _Place, depth: int) -> None:
        if depth >= MAX_DEPTH:
            raise ValueError(
                f"{_where(place)} is nested more than {MAX_DEPTH} levels deep, or contains itself."
            )

    def _text(self, value: str, place: _Place) -> str:
        self._spend(len(value), place)
        if "\x00" in value:
            raise ValueError(
                f"{_where(place)} contains a NUL character, which PostgreSQL cannot store."
            )
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ValueError(
                    f"{_where(place)} contains half of a surrogate pair, which is no valid text."
                ) from None
        return value

    def _int(self, value: int, place: _Place) -> int:
        if value.bit_length() > MAX_INT_BITS:
            raise ValueError(
                f"{_where(place)} is an integer of more than 4,200 digits; pass it as text."
            )
        self._spend(value.bit_length() // 3, place)
        return value

    def _float(self, value: float, place: _Place) -> float:
        if not math.isfinite(value):
            raise ValueError(
                f"{_where(place)} is NaN or infinite, which JSON cannot express; pass None."
            )
        return value

    def _spend(self, size: int, place: _Place) -> None:
        self.left -= size
        if self.left < 0:
            raise ValueError(
                f"{_where(place)} makes this larger than {MAX_SIZE // 2**20} million characters or "
                "a million values. Store the data elsewhere and pass its key."
            )


def _where(place: _Place) -> str:
    """Put a place into words: indexes are told, keys are not, for they are data."""
    steps = []
    while isinstance(place, tuple):
        steps.append("[...]" if place[1] is None else f"[{place[1]}]")
        place = place[0]
    if len(steps) > 6:
        steps[3:-3] = ["[...]"]
    return place + "".join(reversed(steps))


# ASCII only: what a database of any encoding accepts.
_dumps = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def _remedy(value: Any) -> str:
    if isinstance(value, tuple):
        return "It would arrive as a list: pass list(...)."
    if hasattr(type(value), "_meta") and hasattr(value, "pk"):
        return "Pass its primary key and load it in the task."
    if hasattr(type(value), "isoformat"):
        return "Pass .isoformat() and parse it in the task."
    return "Pass str, int, float, bool, None, or lists and dicts of them."


def _name(value: Any) -> str:
    return clean(type(value).__qualname__)[:MAX_CLASS]


def _path(cls: type) -> str:
    try:
        return clean(f"{cls.__module__}.{cls.__qualname__}")
    except BaseException:  # a metaclass may raise anything
        return "builtins.BaseException"


def _is_importable(cls: type) -> bool:
    try:
        # A class within a class has no path that Django could import; __main__ differs by process.
        if "." in cls.__qualname__ or cls.__module__ == "__main__":
            return False
        found = getattr(sys.modules.get(cls.__module__), cls.__qualname__, None)
        return found is cls
    except BaseException:  # module and name are only strings; anything may be there
        return False


def _told(pieces: Iterable[str], size: int) -> str:
    """Put pieces together and clean them, and never hold much more than is kept of them."""
    text = ""
    for piece in pieces:
        text += piece
        if len(text) > 4 * size:
            text = text[:size] + text[-size:]
    return _shortened(clean(text), size)


def _shortened(value: str, size: int) -> str:
    """Cut the middle out: the beginning tells where, the end tells what."""
    if len(value) <= size:
        return value
    mark = " [...] "
    tail = (size - len(mark)) * 2 // 3
    return value[: size - len(mark) - tail] + mark + value[-tail:]


def _traceback(exc: BaseException) -> str:
    try:
        lines = traceback.TracebackException(type(exc), exc, exc.__traceback__, compact=True)
        return _told(lines.format(), MAX_TRACEBACK)
    except BaseException as failure:  # a loader, a source line, a __str__ of the handler's making
        return _frames(exc, type(failure))


def _frames(exc: BaseException, failure: type[BaseException]) -> str:
    """Tell where an exception was raised, by its frames alone."""
    why = _shortened(_path(failure), MAX_CLASS)
    pieces = [f"<no source lines: formatting them raised {why}>\n"]
    try:
        for frame, line in traceback.walk_tb(exc.__traceback__):
            code = frame.f_code
            pieces.append(f'  File "{code.co_filename}", line {line}, in {code.co_name}\n')
        pieces.append(f"{_path(type(exc))}: {text(exc)}\n")
        return _told(pieces, MAX_TRACEBACK)
    except BaseException:  # what it says of itself may be anything
        return pieces[0]
