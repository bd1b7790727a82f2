"""OPTIONS of a backend as one frozen value: each option's type, default, bounds and meaning.

The table of options is the dataclass itself; the reference page is held against it by a test.
Durations are timedelta, so that units cannot be mistaken. ``Options.parse`` finds every fault at
once and says for each what to write instead. Nothing is read from Django's settings here.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from datetime import timedelta
from enum import Enum
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final, Literal

from django.core.exceptions import ImproperlyConfigured

from .backoff import Backoff
from .states import COUNTER_LIMIT


class Unset(Enum):
    """The type of ``UNSET``, which stands for "not said": None already means "no limit"."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a setting: where, what, and what to do about it."""

    key: str
    message: str
    hint: str


class BadOptions(ImproperlyConfigured):
    """OPTIONS cannot be used; ``problems`` holds every reason."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__(" ".join(f"{each.message} {each.hint}" for each in problems))


def max_attempts(value: Any) -> int | None:
    """Return a limit of attempts, or None for no limit; raise ValueError or TypeError."""
    remedy = "Use a whole number of at least 1, or None for no limit."
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"max_attempts is of type {type(value).__name__}. {remedy}")
    if not 1 <= value <= COUNTER_LIMIT:
        raise ValueError(f"max_attempts is {value}. {remedy}")
    return int(value)


@dataclass(frozen=True, slots=True)
class Policy:
    """How often a job is tried and how long it waits in between, all questions answered."""

    max_attempts: int | None
    backoff: Backoff


@dataclass(frozen=True, slots=True)
class PartialPolicy:
    """A policy that may leave things open, for others to fill in."""

    max_attempts: int | Unset | None = UNSET
    backoff: Backoff | Unset = UNSET

    def over(self, other: Policy) -> Policy:
        """Fill what is open here from ``other``."""
        return Policy(
            other.max_attempts if self.max_attempts is UNSET else self.max_attempts,
            other.backoff if self.backoff is UNSET else self.backoff,
        )


# ------------------------------------------------------------------------------------- parsers
# They return the value or raise ValueError with two texts: what is wrong, as a sentence without its
# subject, and the remedy. Those shared with tasks raise one text of both.


def _duration(lowest: timedelta, highest: timedelta) -> Callable[[Any], timedelta]:
    def parse(value: Any) -> timedelta:
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise ValueError(
                f"is the bare number {value}, which has no unit",
                f"Write timedelta(seconds={value}), if seconds is what you mean.",
            )
        if not isinstance(value, timedelta):
            raise ValueError(
                f"is of type {type(value).__name__}", "Use a timedelta, as timedelta(seconds=30)."
            )
        if not lowest <= value <= highest:
            raise ValueError(f"is {value}", f"Use a timedelta from {lowest} to {highest}.")
        return value

    return parse


def _or_none(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else parse(value)


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"is of type {type(value).__name__}", "Use True or False.")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("is no name", "Use an alias from DATABASES, as 'default'.")
    return value


def _prefetch(value: Any) -> int | Literal["auto"]:
    if value == "auto":
        return "auto"
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1000:
        raise ValueError(f"is {value!r}", "Use 'auto', or a whole number from 0 to 1000.")
    return value


_POLICY: dict[str, Callable[[Any], Any]] = {"max_attempts": max_attempts, "backoff": Backoff.of}


def _tasks(value: Any) -> Mapping[str, PartialPolicy]:
    example = 'Write {"shop.tasks.*": {"max_attempts": 5}}.'
    if not isinstance(value, Mapping):
        raise ValueError(f"is of type {type(value).__name__}", example)
    parsed = {}
    for path, policy in value.items():
        if not isinstance(path, str) or not isinstance(policy, Mapping):
            raise ValueError("must map paths of tasks to dictionaries", example)
        for key in policy:
            if key not in _POLICY:
                raise ValueError(f"sets {key!r} for {path!r}", _nearest(key, _POLICY))
        try:
            parsed[path] = PartialPolicy(**{k: _POLICY[k](v) for k, v in policy.items()})
        except (TypeError, ValueError) as reason:
            raise ValueError(f"will not do for {path!r}", str(reason)) from None
    return MappingProxyType(parsed)


def _nearest(key: Any, known: Mapping[str, Any]) -> str:
    found = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
    if found:
        return f"Did you mean {found[0]!r}?"
    return f"Use one of {', '.join(sorted(known))}."


def _about(parse: Callable[[Any], Any], doc: str) -> dict[str, Any]:
    return {"parse": parse, "doc": doc}


_s, _h, _day = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)

# ------------------------------------------------------------------------------------- options


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """OPTIONS of one backend, checked. Each field's metadata has its ``doc``."""

    database: str | None = field(
        default=None,
        metadata=_about(
            _or_none(_name),
            "Alias of the database that holds the jobs. None: where the router would write Job.",
        ),
    )
    lease: timedelta = field(
        default=30 * _s,
        metadata=_about(
            _duration(_s, _day),
            "How long a worker may be silent before its jobs are given to others.",
        ),
    )
    poll: timedelta = field(
        default=_s,
        metadata=_about(
            _duration(_s / 100, _h), "How often an idle worker looks for jobs unasked."
        ),
    )
    grace: timedelta = field(
        default=25 * _s,
        metadata=_about(
            _duration(0 * _s, _day),
            "How long a stopping worker waits for running jobs before it gives them back.",
        ),
    )
    stuck_after: timedelta | None = field(
        default=None,
        metadata=_about(
            _or_none(_duration(_s, 10 * _day)),
            "How long a worker's child may be silent before it is killed. None: ten leases.",
        ),
    )
    max_attempts: int | None = field(
        default=3,
        metadata=_about(
            max_attempts,
            "After how many failures, or as many lost workers, a job has failed. None: never.",
        ),
    )
    backoff: Backoff = field(
        default=Backoff(),
        metadata=_about(Backoff.of, "How long a job waits before it is tried again."),
    )
    notify: bool = field(
        default=True,
        metadata=_about(_bool, "Whether enqueueing wakes sleeping workers besides their polling."),
    )
    pooled: bool = field(
        default=False,
        metadata=_about(_bool, "Whether a transaction pooler (PgBouncer) is before the database."),
    )
    prefetch: int | Literal["auto"] = field(
        default="auto",
        metadata=_about(_prefetch, "How many jobs a child takes beyond its free slots."),
    )
    tasks: Mapping[str, PartialPolicy] = field(
        default_factory=dict,
        metadata=_about(_tasks, "max_attempts and backoff by the path of tasks, or by wildcard."),
    )

    @classmethod
    def parse(cls, given: Any) -> Options:
        """Check OPTIONS as written in the settings; raise BadOptions with all that is wrong."""
        if not isinstance(given, Mapping):
            raise BadOptions(
                (
                    Problem(
                        "OPTIONS",
                        f"OPTIONS is of type {type(given).__name__}.",
                        "Use a dictionary.",
                    ),
                )
            )
        known: dict[str, Field[Any]] = {each.name: each for each in fields(cls)}
        values: dict[str, Any] = {}
        problems = []
        for key, value in given.items():
            if key not in known:
                problems.append(
                    Problem(str(key), f"OPTIONS[{key!r}] is unknown.", _nearest(key, known))
                )
                continue
            try:
                values[key] = known[key].metadata["parse"](value)
            except (TypeError, ValueError) as reason:
                problems.append(_problem(key, reason))
        if problems:
            raise BadOptions(tuple(problems))
        options = cls(**values)
        if options.silence < options.lease:
            message = f"OPTIONS['stuck_after'] is shorter than the lease ({options.lease})."
            hint = "Use at least the lease, or leave it out for ten leases."
            raise BadOptions((Problem("stuck_after", message, hint),))
        return options

    @property
    def silence(self) -> timedelta:
        """How long a child may be silent: ``stuck_after``, or ten leases."""
        return self.lease * 10 if self.stuck_after is None else self.stuck_after

    def policy(self, path: str, said: PartialPolicy) -> Policy:
        """Decide the policy of a task: what it says, else OPTIONS["tasks"], else OPTIONS.

        Among several patterns that match, the longest that says something wins; a path without
        wildcards is itself the longest.
        """
        policy = Policy(self.max_attempts, self.backoff)
        for pattern in sorted(self.tasks, key=len):
            if fnmatchcase(path, pattern):
                policy = self.tasks[pattern].over(policy)
        return said.over(policy)


def _problem(key: str, reason: Exception) -> Problem:
    if len(reason.args) == 2:
        message, hint = reason.args
    else:
        said, _, hint = str(reason).partition(". ")
        message = f"will not do: {said.rstrip('.')}"
    return Problem(key, f"OPTIONS[{key!r}] {message}.", hint or "See the reference.")
