"""One job of a recording as what the page shows: beats, lanes, leases, waits, and a scale.

Everything is reckoned here, so that the script only draws. The beats are the events, what was done
from outside, and the ends of leases that ran out, in one order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.utils.translation import gettext as _

from django_relay.recording import Mark, Moment, RecordedJob, Recording, Sight

from . import excerpt, layout, leases, wording
from .excerpt import EVENTS, Excerpt
from .leases import Span


@dataclass(frozen=True, slots=True)
class Beat:
    """One line of the list. ``lane`` is the place of its worker among the lanes, or None.

    ``ms`` is its place in the order, ``time`` what the clock showed.
    """

    ms: float
    time: str
    kind: str
    tone: str
    title: str
    note: str
    lease: str | None = None
    lane: int | None = None
    worker: str = ""

    @property
    def hue(self) -> str:
        """Which of the style sheet's colours its lease has."""
        return layout.hue(self.lease or "")


@dataclass(frozen=True, slots=True)
class Story:
    """A job to be followed. ``scale`` are pairs: a recorded time, its place on the page in ms.

    ``end`` is how far it is known.
    """

    job: RecordedJob
    excerpt: Excerpt
    beats: list[Beat]
    lanes: list[str]
    leases: list[Span]
    waits: list[tuple[float, float | None, str]]
    states: list[tuple[float, str]]
    scale: list[tuple[float, float]]
    end: float

    def data(self) -> dict[str, Any]:
        """Return what the script needs."""
        return {
            "id": self.job.id,
            "lanes": self.lanes,
            "beats": [[b.ms, b.kind, b.tone, b.title, b.note, b.lease, b.lane] for b in self.beats],
            "leases": [
                [
                    s.letter,
                    layout.hue(s.letter),
                    s.lane,
                    s.start,
                    s.until,
                    s.ended,
                    s.silent,
                    s.ends,
                ]
                for s in self.leases
            ],
            "waits": self.waits,
            "states": self.states,
            "scale": self.scale,
            "end": self.end,
        }


def tell(recording: Recording, job: RecordedJob) -> Story:
    """Make the story of one job of a recording; its times count from its own enqueue."""
    chosen = excerpt.choose(recording.moments, job)
    moments = chosen.moments
    names, lanes = layout.lanes(moments)
    sights = _sights(recording, job, chosen.start)
    marks = _marks(recording.marks, chosen.start, moments)
    held = leases.spans(chosen, sights, marks, lanes=lanes)
    beats = [*_of_events(chosen, lanes), *_of_marks(marks, lanes), *_of_leases(held)]
    beats.sort(key=lambda beat: beat.ms)
    running = any(span.until is None for span in held)
    promised = [end for span in held if span.until is None for _seen, end in span.ends]
    known = [*(beat.ms for beat in beats), *(sight.ms for sight in sights)]
    scale = layout.scale([*known, *promised])
    return Story(
        job=job,
        excerpt=chosen,
        beats=beats,
        lanes=names,
        leases=held,
        waits=_waits(chosen),
        states=_states(moments),
        scale=scale,
        end=max(known) if running else scale[-1][0],
    )


def _sights(recording: Recording, job: RecordedJob, start: float) -> list[Sight]:
    return [
        replace(sight, ms=sight.ms - start, ends_ms=sight.ends_ms - start)
        for sight in recording.sights
        if sight.job == job.id
    ]


def _marks(marks: Sequence[Mark], start: float, moments: Sequence[Moment]) -> list[Mark]:
    """Keep what was done to this job's workers, or to all, while it was under way."""
    workers = {moment.worker for moment in moments}
    first, end = (moments[0].ms, moments[-1].ms) if moments else (0.0, 0.0)
    shifted = (replace(mark, ms=mark.ms - start) for mark in marks)
    return [
        mark
        for mark in shifted
        if first <= mark.ms <= end
        and (not mark.target or any(leases.hit(mark, worker) for worker in workers))
    ][:EVENTS]


def _of_events(chosen: Excerpt, lanes: Mapping[str, int]) -> list[Beat]:
    beats = []
    for part in chosen.parts:
        for moment, told in zip(part.moments, part.told, strict=True):
            own = moment.worker or ""
            beats.append(
                Beat(
                    ms=moment.ms,
                    time=wording.clock(told),
                    kind=moment.kind,
                    tone=wording.TONES.get(moment.kind, "plain"),
                    title=wording.title(moment),
                    note=wording.whole_note(moment),
                    lease=moment.lease,
                    lane=lanes.get(own),
                    worker=wording.worker(own, list(lanes)) if own else "",
                )
            )
        if part is not chosen.parts[-1]:
            beats.append(Beat(part.end, "", "gap", "plain", _("Events are left out here"), ""))
    return beats


def _of_marks(marks: Sequence[Mark], lanes: Mapping[str, int]) -> list[Beat]:
    beats = []
    for mark in marks:
        word = mark.what.partition(" ")[0].lower()
        whom = next((own for own in lanes if mark.target and leases.hit(mark, own)), "")
        beats.append(
            Beat(
                ms=mark.ms,
                time=wording.clock(mark.ms),
                kind=word,
                tone="bad" if word == "sigkill" else "odd",
                title=wording.mark(mark),
                note=wording.mark_note(mark),
                lane=lanes.get(whom),
                worker=wording.worker(whom, list(lanes)) if whom else "",
            )
        )
    return beats


def _of_leases(held: Sequence[Span]) -> list[Beat]:
    note = _("By the database's clock; from here on it is no lease.")
    return [
        Beat(
            ms=span.over,
            time=wording.clock(span.over),
            kind="over",
            tone="odd",
            title=_("Lease %(lease)s runs out") % {"lease": span.letter},
            note=note,
            lease=span.letter,
            lane=span.lane,
        )
        for span in held
        if span.over is not None
    ]


def _waits(chosen: Excerpt) -> list[tuple[float, float | None, str]]:
    """Tell when the job waited, for what; a wait without an end goes on."""
    waits: list[tuple[float, float | None, str]] = []

    def close(ms: float) -> None:
        if waits and waits[-1][1] is None:
            waits[-1] = (waits[-1][0], ms, waits[-1][2])

    for part in chosen.parts:
        for moment in part.moments:
            state = moment.data.get("state")
            if moment.kind == "claimed" or state:
                close(moment.ms)
            if state in ("ready", "scheduled", "blocked"):
                waits.append((moment.ms, None, str(state)))
        if part is not chosen.parts[-1]:
            close(part.end)
    return waits


def _states(moments: Sequence[Moment]) -> list[tuple[float, str]]:
    return [
        (moment.ms, "running" if moment.kind == "claimed" else str(moment.data["state"]))
        for moment in moments
        if moment.kind == "claimed" or "state" in moment.data
    ]
