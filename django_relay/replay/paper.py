"""The page: a story's template filled in, and everything it needs put into one file where asked.

The file forbids itself, by a policy with the sums of its own script and style, to load or run
anything else. Templates and static files are read from the package, so no setting of a project
matters.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.template import Context, Engine

from django_relay.recording import RecordedJob, Recording

from . import bursts, story
from .story import Story

PACKAGE = Path(__file__).resolve().parent.parent
TEMPLATES, STATIC = PACKAGE / "templates", PACKAGE / "static" / "django_relay"

#: A page follows at most so many jobs.
JOBS = 24

_FOLLOWED = (
    "A replay of recorded events, not a live service. Times are relative to enqueue, by the "
    "database's clock."
)
_MEASURED = (
    "Throughput of a burst of jobs, submission and queue drain included, beside what the same "
    "handler reaches with no queue; and how long the jobs queued. One local trial each. These are "
    "not production capacity figures."
)
_TITLES = {
    "crash": "A job after a crash",
    "zombie": "A worker that came back late",
    "restart": "The database went away",
    "soak": "A schedule of faults",
    "burst": "More execution slots",
    "job": "One job",
}


def context(recording: Recording) -> dict[str, Any]:
    """Return what the template ``django_relay/replay/body.html`` needs."""
    jobs = _worth_following(recording)
    stories = [story.tell(recording, job) for job in jobs]
    title = _TITLES.get(recording.experiment, recording.experiment.capitalize())
    burst = recording.experiment == "burst"
    return {
        "experiment": recording.experiment,
        "title": title,
        "heading": f"{title}." if burst else "Follow one job.",
        "lede": _MEASURED if burst else f"{title}. {_FOLLOWED}",
        "stories": stories,
        "notes": _notes(recording, stories),
        "data": [each.data() for each in stories],
        "figures": _rows(recording.figures),
        "settings": _rows(recording.settings),
        "software": dict(recording.software),
        "machine": recording.machine,
        "label": recording.label,
        "burst": bursts.context(recording) if burst else None,
    }


def self_contained(recording: Recording) -> str:
    """Return a whole page in one text, which plays the recording without anything else."""
    style = (STATIC / "replay.css").read_text(encoding="utf-8")
    script = (STATIC / "replay.js").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; style-src '{_sum(style)}'; script-src '{_sum(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    engine = Engine(dirs=[str(TEMPLATES)])
    page = engine.get_template("django_relay/replay/page.html")
    filled = context(recording) | {"style": style, "script": script, "policy": policy}
    return page.render(Context(filled))


def _sum(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _worth_following(recording: Recording) -> list[RecordedJob]:
    """Choose the jobs with the most to tell, those first."""
    counts: dict[int, int] = {}
    for moment in recording.moments:
        counts[moment.job] = counts.get(moment.job, 0) + 1
    return sorted(recording.jobs, key=lambda job: (-counts.get(job.id, 0), job.id))[:JOBS]


def _notes(recording: Recording, stories: list[Story]) -> list[str]:
    """Say what the page leaves out."""
    notes = []
    if not recording.jobs and recording.experiment != "burst":
        notes.append("This recording holds no job to follow, only figures.")
    if len(recording.jobs) > len(stories):
        notes.append(
            f"The recording has {len(recording.jobs):,} jobs; this page follows the "
            f"{len(stories)} with the most events."
        )
    notes += [
        f"Job {each.job.id} has {each.left_out + len(each.beats):,} events; this page shows the "
        f"first and the last {len(each.beats) // 2}."
        for each in stories
        if each.left_out
    ]
    return notes


def _rows(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(_words(name), _value(value)) for name, value in values.items() if value is not None]


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{_words(str(k)).lower()}: {_value(v)}" for k, v in value.items()) or "-"
    if isinstance(value, list | tuple):
        shown = ", ".join(_value(each) for each in value[:24])
        return f"{shown}, and {len(value) - 24} more" if len(value) > 24 else shown
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.10g}" if isinstance(value, int | float) else str(value)
