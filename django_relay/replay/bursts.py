"""The burst page: throughput by configuration against its ceiling, latency by percentile, as SVG.

All geometry is reckoned here and all colours are the style sheet's, so the drawing needs no script.
Each is drawn twice, for a wide page and for a narrow one; the style sheet shows one of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_relay.recording import Recording

PERCENTILES = ("p50", "p95", "p99")
KINDS = ("start", "finish")
_KINDS = {"start": gettext_lazy("start"), "finish": gettext_lazy("finish")}


@dataclass(frozen=True, slots=True)
class Paper:
    """A drawing's size in its own units: its width, where bars begin, a row's height.

    ``above``: names stand above their row, because there is no room beside it.
    """

    kind: str
    width: int
    left: int
    row: int
    above: int


WIDE = Paper("wide", 720, 170, 62, 0)
NARROW = Paper("narrow", 350, 0, 84, 20)


def context(recording: Recording) -> dict[str, Any]:
    """Return what the template ``django_relay/replay/burst.html`` needs."""
    found = recording.figures.get("configurations")
    rows = [row for row in found if _is_row(row)] if isinstance(found, list | tuple) else []
    return {
        "rows": [
            row | {"name": name(row), "percent": f"{100 * row['share']:.0f} %"} for row in rows
        ],
        "throughput": [_throughput(rows, paper) for paper in (WIDE, NARROW)],
        "latency": [_latency(rows, paper) for paper in (WIDE, NARROW)],
    }


def _is_row(row: Any) -> bool:
    try:
        values = [row[k] for k in ("processes", "slots", "jobs_per_second", "share")]
        values += [row["ceiling_jobs_per_second"]]
        values += [row[f"{kind}_ms"][p] for kind in KINDS for p in PERCENTILES]
    except (KeyError, TypeError):
        return False
    return all(isinstance(each, int | float) and each >= 0 for each in values)


def name(row: dict[str, Any]) -> str:
    """Name a configuration as one says it: twelve slots across three processes."""
    total = row["slots"] * row["processes"]
    slots = ngettext("%(n)s slot", "%(n)s slots", total) % {"n": total}
    if row["processes"] == 1:
        return slots
    return _("%(slots)s, %(n)s processes") % {"slots": slots, "n": row["processes"]}


def _throughput(rows: list[dict[str, Any]], paper: Paper) -> dict[str, Any]:
    tops = [row[key] for row in rows for key in ("ceiling_jobs_per_second", "jobs_per_second")]
    per_unit = (paper.width - paper.left - 10) / (max(tops, default=1) or 1)
    bars = []
    for place, row in enumerate(rows):
        y = 8 + place * paper.row + paper.above
        reached, ceiling = row["jobs_per_second"], row["ceiling_jobs_per_second"]
        bars.append(
            {
                "name": name(row),
                "name_y": y - 7 if paper.above else y + 19,
                "y": y,
                "width": round(max(reached * per_unit, 1), 1),
                "ceiling": round(max(ceiling * per_unit, 1), 1),
                "value": f"{reached:,.0f}/s",
                "share": _("%(share)s %% of %(ceiling)s/s with no queue")
                % {"share": f"{100 * row['share']:.0f}", "ceiling": f"{ceiling:,.0f}"},
                "below": y + 46,
            }
        )
    return _drawing(paper, rows) | {"bars": bars}


def _latency(rows: list[dict[str, Any]], paper: Paper) -> dict[str, Any]:
    """Place percentiles on a scale of powers of ten: the distance of two is a factor."""
    values = [row[f"{kind}_ms"][p] for row in rows for kind in KINDS for p in PERCENTILES]
    low = math.floor(math.log10(max(min(values, default=1), 1)))
    high = max(math.ceil(math.log10(max(max(values, default=10), 10))), low + 1)
    left, right = (paper.left + 44, 150) if not paper.above else (46, 14)
    per_decade = (paper.width - left - right) / (high - low)

    def x(value: float) -> float:
        return round(left + (math.log10(max(value, 10**low)) - low) * per_decade, 1)

    lines = []
    for place, row in enumerate(rows):
        for offset, kind in ((0, "start"), (24, "finish")):
            y = 34 + place * paper.row + paper.above + offset
            points = [(x(row[f"{kind}_ms"][p]), p, row[f"{kind}_ms"][p]) for p in PERCENTILES]
            lines.append(
                {
                    "name": name(row) if kind == "start" else "",
                    "name_y": y - 15 if paper.above else y + 4,
                    "kind": kind,
                    "word": str(_KINDS[kind]),
                    "kind_x": left - 12,
                    "y": y,
                    "text": y + 4,
                    "points": [
                        {"x": at, "said": f"{_KINDS[kind]} {p}: {milliseconds(value)}"}
                        for at, p, value in points
                    ],
                    "from": points[0][0],
                    "to": points[-1][0],
                    "said_x": points[-1][0] + 12,
                    "said": "" if paper.above else _in_a_row([value for *_, value in points]),
                }
            )
    ticks = [{"x": x(10.0**n), "name": milliseconds(10.0**n)} for n in range(low, high + 1)]
    return _drawing(paper, rows) | {"lines": lines, "ticks": ticks}


def _drawing(paper: Paper, rows: list[dict[str, Any]]) -> dict[str, Any]:
    height = paper.row * len(rows) + 30
    return {"kind": paper.kind, "width": paper.width, "left": paper.left, "height": height}


def milliseconds(value: float) -> str:
    """Write milliseconds as one reads them: seconds from one second on."""
    return f"{value / 1000:,.3g} s" if value >= 1000 else f"{value:,.3g} ms"


def _in_a_row(values: list[float]) -> str:
    """Write three values with one unit."""
    if max(values) >= 1000:
        return " · ".join(f"{value / 1000:,.3g}" for value in values) + " s"
    return " · ".join(f"{value:,.3g}" for value in values) + " ms"
