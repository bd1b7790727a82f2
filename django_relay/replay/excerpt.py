"""Which events of a job a page shows: all, or the first and the last of too many, in their order.

The order is that of the recording. A clock that was set back, or a time that somebody has changed,
cannot change it: such an event keeps its place behind the one before it, and tells its own time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from django.utils.translation import gettext as _

from django_relay.recording import COUNTED, Moment, RecordedJob

from . import wording

#: More events than this are not shown: the first and the last half of so many are.
EVENTS = 400

_TIMES = frozenset({"expired_ms", "run_after_ms"})


@dataclass(frozen=True, slots=True)
class Part:
    """Events that follow on each other; ``told`` is what the clock showed at each."""

    moments: list[Moment]
    told: list[float]

    @property
    def end(self) -> float:
        """The place of the last one."""
        return self.moments[-1].ms


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One part, or two with ``left_out`` events between them; no part where there are no events."""

    start: float
    parts: list[Part]
    left_out: int
    counted: bool

    @property
    def moments(self) -> list[Moment]:
        """All events that are shown."""
        return [moment for part in self.parts for moment in part.moments]

    @property
    def how_many(self) -> str:
        """Say how many events there are in all."""
        events = self.left_out + len(self.moments)
        if not self.counted and events > COUNTED:
            return _("more than %(n)s") % {"n": f"{COUNTED:,}"}
        return f"{events:,}"


def choose(moments: Sequence[Moment], job: RecordedJob) -> Excerpt:
    """Choose the events of a job, with times that count from its own enqueue."""
    found = [moment for moment in moments if moment.job == job.id]
    start = next((m.ms for m in found if m.kind == "enqueued"), found[0].ms if found else 0.0)
    left_out, cut = job.left_out, len(found) // 2 if job.left_out else len(found)
    if len(found) > EVENTS:
        cut = EVENTS // 2
        left_out += len(found) - 2 * cut
        found = found[:cut] + found[-cut:]
    told = [moment.ms - start for moment in found]
    placed = [
        replace(moment, ms=ms, data=_shifted(moment, start))
        for moment, ms in zip(found, accumulate(told, max), strict=True)
    ]
    parts = [Part(placed[:cut], told[:cut]), Part(placed[cut:], told[cut:])]
    # What the recording itself leaves out was counted up to a limit.
    return Excerpt(start, [part for part in parts if part.moments], left_out, not job.left_out)


def _shifted(moment: Moment, start: float) -> dict[str, Any]:
    data = dict(moment.data)
    for key in _TIMES & data.keys():
        value = wording.number(data, key)
        data[key] = None if value is None else value - start
    return data
