"""The document: what a recording holds, how it is written, and what is taken back.

``load`` takes back what ``dump`` gave and refuses anything else in plain words, before any page is
made of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

FORMAT = "django_relay.recording"
VERSION = 1

LABEL = "A single local run on one machine, not a capacity figure."


class NotARecording(ValueError):
    """A document that ``load`` cannot take; the text says why."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One event of a job. ``lease`` is the letter of the lease it is about, if of one."""

    ms: float
    job: int
    kind: str
    claim: int | None = None
    lease: str | None = None
    worker: str | None = None
    actor: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sight:
    """A lease as seen at a moment: until when it would hold, and how often it was renewed."""

    ms: float
    job: int
    lease: str
    ends_ms: float
    renewals: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Something done to workers or the database from outside: a kill, a freeze, a restart."""

    ms: float
    what: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """A job of the recording, and the state in which it was last seen.

    ``left_out`` events of it, between its first and its last, are not among the moments.
    """

    id: int
    task: str
    queue: str
    state: str
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A whole recording. ``figures`` and ``settings`` are the experiment's own."""

    experiment: str
    jobs: tuple[RecordedJob, ...]
    moments: tuple[Moment, ...]
    sights: tuple[Sight, ...] = ()
    marks: tuple[Mark, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""
    label: str = LABEL


def dump(recording: Recording) -> str:
    """Write a recording as JSON text."""
    document = {"format": FORMAT, "version": VERSION} | asdict(recording)
    return json.dumps(document, indent=1, ensure_ascii=False)


def load(text: str) -> Recording:
    """Read what ``dump`` wrote; raise NotARecording for anything else."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotARecording(f"This is no JSON document, or only a part of one: {error}.") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise NotARecording(f"This is no recording: it does not say format {FORMAT!r}.")
    version = document.pop("version", None)
    if version != VERSION:
        raise NotARecording(
            f"This recording has version {version!r}, and this django_relay reads {VERSION}. "
            "Use the version of django_relay that made it."
        )
    del document["format"]
    lists = {"jobs": RecordedJob, "moments": Moment, "sights": Sight, "marks": Mark}
    try:
        for key, kind in lists.items():
            document[key] = tuple(_checked(kind(**each)) for each in document.get(key, ()))
        made = Recording(**document)
        _checked(made)
    except (TypeError, KeyError) as error:
        raise NotARecording(f"This recording is incomplete or has been changed: {error}.") from None
    return made


_KINDS: dict[str, tuple[type, ...]] = {
    "float": (int, float),
    "int": (int,),
    "str": (str,),
    "dict": (dict,),
    "Mapping": (dict,),
    "tuple": (tuple,),
    "None": (type(None),),
}


def _checked(part: Any) -> Any:
    """Return a part of a document, or raise TypeError naming the field of the wrong type."""
    for name, hint in type(part).__annotations__.items():
        value = getattr(part, name)
        kinds = tuple(k for word in hint.split(" | ") for k in _KINDS[word.partition("[")[0]])
        finite = not isinstance(value, float) or math.isfinite(value)
        if not isinstance(value, kinds) or isinstance(value, bool) or not finite:
            raise TypeError(f"{type(part).__name__} has {name} {value!r:.40}")
    return part
