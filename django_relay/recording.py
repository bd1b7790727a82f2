"""What happened to a job, or in an experiment, as one JSON document that outlives the database.

A recording names its format and version, the software and the machine in general words; times are
milliseconds since the first job was enqueued, leases have letters in place of tokens. ``load``
takes back what ``dump`` gave and refuses anything else in plain words. Arguments and results are
left out.
"""

from __future__ import annotations

import json
import os
import platform
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import django

from . import __version__
from .transitions import Session

FORMAT = "django_relay.recording"
VERSION = 1

LABEL = "A single local run on one machine, not a capacity figure."

# Locks nothing. Milliseconds from the enqueueing of the first of the jobs, on the database's clock.
EVENTS = """
SELECT
  v.job_id,
  EXTRACT(EPOCH FROM
    v.at - (SELECT min(enqueued_at) FROM django_relay_job WHERE id = ANY (%(ids)s))
  )::float8 * 1000,
  v.kind, v.claim, v.token::text, v.worker, v.actor, v.data - 'error',
  v.data->'error'->>'class', v.data->'error'->>'message'
FROM django_relay_event AS v
WHERE v.job_id = ANY (%(ids)s)
ORDER BY v.id
"""
JOBS = "SELECT id, task, queue, state FROM django_relay_job WHERE id = ANY (%(ids)s) ORDER BY id"
SERVER = "SELECT current_setting('server_version')"


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
    """A job of the recording, and the state in which it was last seen."""

    id: int
    task: str
    queue: str
    state: str


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


def letter(number: int) -> str:
    """Return A for the first lease of a job, B for the second, AA after Z."""
    letters = ""
    while number >= 0:
        number, place = divmod(number, 26)
        letters = string.ascii_uppercase[place] + letters
        number -= 1
    return letters


def record(
    connection: Session,
    job_ids: Sequence[int],
    *,
    experiment: str = "job",
    seen: Iterable[tuple[float, int, str, float, int]] = (),
    marks: Iterable[Mark] = (),
    settings: Mapping[str, Any] | None = None,
    figures: Mapping[str, Any] | None = None,
) -> Recording:
    """Read the history of jobs from the database.

    ``seen`` are leases as sampled meanwhile: (ms, job id, token, ms of its end, renewals). Raises
    LookupError when none of the jobs exists.
    """
    with connection.cursor() as cursor:
        cursor.execute(JOBS, {"ids": list(job_ids)})
        jobs = tuple(RecordedJob(*row) for row in cursor.fetchall())
        if not jobs:
            raise LookupError(f"none of the jobs {list(job_ids)} exists")
        cursor.execute(EVENTS, {"ids": [job.id for job in jobs]})
        rows = cursor.fetchall()
        cursor.execute(SERVER)
        server = cursor.fetchone()[0]
    letters = _letters(rows)
    return Recording(
        experiment=experiment,
        jobs=jobs,
        moments=tuple(_moment(row, letters) for row in rows),
        sights=tuple(
            Sight(round(ms, 3), job, letters[token], round(ends, 3), renewals)
            for ms, job, token, ends, renewals in seen
            if token in letters
        ),
        marks=tuple(marks),
        settings=dict(settings or {}),
        figures=dict(figures or {}),
        software=software(server),
        machine=machine(),
    )


def _letters(rows: Iterable[Sequence[Any]]) -> dict[str, str]:
    """Give each lease of a job its letter, in the order of the claims."""
    letters: dict[str, str] = {}
    count: dict[int, int] = {}
    for job_id, _, kind, _, token, *_ in rows:
        if kind == "claimed" and token is not None:
            letters[token] = letter(count.get(job_id, 0))
            count[job_id] = count.get(job_id, 0) + 1
    return letters


def _moment(row: Sequence[Any], letters: Mapping[str, str]) -> Moment:
    job_id, ms, kind, claim, token, worker, actor, data, error, message = row
    data = json.loads(data) if isinstance(data, str) else dict(data or {})
    if error is not None:
        data["error"] = {"class": error, "message": message or ""}
    return Moment(
        ms=round(ms, 3),
        job=job_id,
        kind=kind,
        claim=claim,
        lease=letters.get(token),
        worker=worker,
        actor=actor,
        data=data,
    )


def software(postgresql: str) -> dict[str, str]:
    """Name the versions that a recording was made with."""
    return {
        "django_relay": __version__,
        "django": django.get_version(),
        "python": platform.python_version(),
        "postgresql": postgresql,
    }


def machine() -> str:
    """Describe this machine in general words."""
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"


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
            document[key] = tuple(kind(**each) for each in document.get(key, ()))
        return Recording(**document)
    except (TypeError, KeyError) as error:
        raise NotARecording(f"This recording is incomplete or has been changed: {error}.") from None
