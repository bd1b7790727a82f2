"""How a story is laid out: a lane for each worker, a scale that cuts silences short, colours."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from django.utils.translation import gettext as _

from django_relay.recording import Moment

from . import wording

#: More workers than this share the last lane.
LANES = 12
#: A silence longer than this, in milliseconds, is cut to the second number on the page.
LONG, SHORT = 6000.0, 1500.0


def lanes(moments: Sequence[Moment]) -> tuple[list[str], dict[str, int]]:
    """Name the lanes, and tell the place of each worker among them.

    Where there are too many workers, those seen last have lanes of their own.
    """
    workers = list(dict.fromkeys(moment.worker for moment in moments if moment.worker))
    kept = workers
    if len(workers) > LANES:
        last = dict.fromkeys(m.worker for m in reversed(moments) if m.worker)
        own = set(list(last)[: LANES - 1])
        kept = [worker for worker in workers if worker in own]
    names = [wording.worker(worker, workers) for worker in kept]
    places = dict.fromkeys(workers, len(kept)) | {each: n for n, each in enumerate(kept)}
    return [*names, _("Other workers")] if len(workers) > LANES else names, places


def scale(times: Sequence[float]) -> list[tuple[float, float]]:
    """Lay out recorded time: true to scale, but for silences that are cut short."""
    known = sorted({0.0, *times})
    laid = [(known[0], 0.0)]
    for before, after in pairwise(known):
        gap = after - before
        laid.append((after, laid[-1][1] + (gap if gap <= LONG else SHORT)))
    last, place = laid[-1]
    pad = max(place * 0.06, 250.0)
    return [*laid, (last + pad, place + pad)]


def hue(letter: str) -> str:
    """Return which of the style sheet's six colours, A to F, a lease has: they take turns."""
    number = 0
    for each in letter:
        number = number * 26 + ord(each) - ord("A") + 1
    return "ABCDEF"[(number - 1) % 6] if letter else ""
