"""The page: a story's template filled in, and everything it needs put into one file where asked.

The file forbids itself, by a policy with the sums of its own script and style, to load or run
anything else. Templates and static files are read from the package, so no setting of a project
matters but its language.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.template import Context, Engine
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_relay.recording import RecordedJob, Recording

from . import bursts, story
from .story import Story
from .wording import Words

PACKAGE = Path(__file__).resolve().parent.parent
TEMPLATES, STATIC = PACKAGE / "templates", PACKAGE / "static" / "django_relay"

#: A page follows at most so many jobs.
JOBS = 24

_FOLLOWED = gettext_lazy(
    "A replay of recorded events, not a live service. Times are relative to enqueue, by the "
    "database's clock."
)
_MEASURED = gettext_lazy(
    "Throughput of a burst of jobs, submission and queue drain included, beside what the same "
    "handler reaches with no queue; and how long the jobs queued. %(trials)s These are not "
    "production capacity figures."
)
_TITLES: dict[str, Words] = {
    "crash": gettext_lazy("A job after a crash"),
    "zombie": gettext_lazy("A worker that came back late"),
    "restart": gettext_lazy("The database went away"),
    "soak": gettext_lazy("A schedule of faults"),
    "burst": gettext_lazy("More execution slots"),
    "job": gettext_lazy("One job"),
}
#: What the script says; it fills the patterns in.
_SCRIPT: dict[str, Words] = {
    "play": gettext_lazy("Play"),
    "pause": gettext_lazy("Pause"),
    "seconds": gettext_lazy("%(n)s s"),
    "minutes": gettext_lazy("%(n)s min %(m)s s"),
    "hours": gettext_lazy("%(n)s h %(m)s min"),
    "days": gettext_lazy("%(n)s d %(m)s h"),
    "queue": gettext_lazy("In the queue"),
    "lanes": gettext_lazy(
        "Lanes of %(n)s workers with the leases of job %(job)s. The list tells the same."
    ),
    "until": gettext_lazy("until %(time)s"),
    "over": gettext_lazy("run out"),
    "refused": gettext_lazy("%(lease)s refused"),
    "before": gettext_lazy("Not enqueued yet."),
    "nobody": gettext_lazy("nobody"),
    "valid": gettext_lazy("token = %(lease)s · lease is valid"),
    "silent": gettext_lazy("token = %(lease)s · lease is valid, nobody renews it"),
    "expired": gettext_lazy("token = %(lease)s · lease has run out"),
}


def context(recording: Recording) -> dict[str, Any]:
    """Return what the template ``django_relay/replay/body.html`` needs."""
    jobs = _worth_following(recording)
    stories = [story.tell(recording, job) for job in jobs]
    title = str(_TITLES.get(recording.experiment, recording.experiment.capitalize()))
    burst = recording.experiment == "burst"
    return {
        "experiment": recording.experiment,
        "title": title,
        "heading": f"{title if burst else _('Follow one job')}.",
        "lede": _measured(recording) if burst else f"{title}. {_FOLLOWED}",
        "stories": stories,
        "notes": _notes(recording, stories),
        "data": {
            "stories": [each.data() for each in stories],
            "words": {name: str(said) for name, said in _SCRIPT.items()},
        },
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
    engine = Engine(dirs=[str(TEMPLATES)], libraries={"i18n": "django.templatetags.i18n"})
    page = engine.get_template("django_relay/replay/page.html")
    filled = context(recording) | {"style": style, "script": script, "policy": policy}
    # A number in a drawing has a point, whatever the language writes.
    return page.render(Context(filled, use_l10n=False))


def _sum(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _measured(recording: Recording) -> str:
    """Say what the figures of a burst are: of one run each, or medians of several."""
    times = recording.settings.get("repeat")
    trials = _("One local trial each.")
    if isinstance(times, int) and times > 1:
        trials = _("Medians of %(n)s local trials each.") % {"n": times}
    return _MEASURED % {"trials": trials}


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
        notes.append(_("This recording holds no job to follow, only figures."))
    if len(recording.jobs) > len(stories):
        pattern = _(
            "The recording has %(jobs)s jobs; this page follows the %(n)s with the most events."
        )
        notes.append(pattern % {"jobs": f"{len(recording.jobs):,}", "n": len(stories)})
    cut = _("Job %(job)s has %(events)s events; this page shows the first and the last %(n)s.")
    for each in stories:
        excerpt = each.excerpt
        if excerpt.left_out:
            shown = len(excerpt.moments) // 2
            notes.append(cut % {"job": each.job.id, "events": excerpt.how_many, "n": shown})
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
