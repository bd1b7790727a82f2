"""What a claim costs after 100,000 jobs have come and gone under a snapshot that stays open.

The snapshot keeps vacuum, and the indexes themselves, from forgetting the rows that were claimed.
An untouched database beside it takes turns with the churned one, claim by claim.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import psycopg

from . import ground
from .claims import Claimer

#: A ratio is of so many claims on either side.
SAMPLE = 200


def run(
    *, jobs: int = 100_000, hold: float = 300.0, within: float = 120.0, limit: int = 8
) -> dict[str, Any]:
    """Churn through jobs under a snapshot open for ``hold`` seconds, then see how claims recover.

    ``back_after_s`` is when, after the snapshot's end, the ratio was first at most 1.5 and stayed
    so for the next look; null: not ``within`` so many seconds.
    """
    aliases = ("default", "churned")
    with (
        ground.databases(*aliases),
        ground.session(hot=True) as one,
        ground.session("churned", hot=True) as other,
    ):
        calm, churned = Claimer(one, "default"), Claimer(other, "churned")
        before = _compare(calm, churned, limit)
        snapshot = _open_snapshot()
        began = time.monotonic()
        early = _churn(churned, jobs, limit)
        churn_seconds = time.monotonic() - began
        after_churn = _compare(calm, churned, limit)
        while time.monotonic() - began < hold:
            time.sleep(1)
        held = _compare(calm, churned, limit)
        snapshot.close()
        recovery = _recover(calm, churned, limit, within)
    return {
        "before": before,
        "churn_seconds": round(churn_seconds, 1),
        "claims_in_churn_ms": early,
        "after_churn": after_churn,
        "held": held,
        "after_end": recovery,
        "back_after_s": _back(recovery),
    }


def _open_snapshot() -> psycopg.Connection[Any]:
    snapshot = ground.connect("churned")
    snapshot.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    snapshot.execute("SELECT count(*) FROM django_relay_job")
    return snapshot


def _churn(claimer: Claimer, jobs: int, limit: int) -> list[dict[str, float]]:
    """Enqueue and drain in rounds, as a queue that keeps up; return percentiles by tenths."""
    times, tenths = [], []
    for number in range(jobs // limit):
        times.append(claimer.once(limit, number))
        if len(times) >= jobs // limit // 10:
            tenths.append(ground.rank(times, 50, 95))
            times = []
    return tenths


def _compare(calm: Claimer, churned: Claimer, limit: int) -> dict[str, Any]:
    times: dict[str, list[float]] = {"calm": [], "churned": []}
    for number in range(SAMPLE):
        times["calm"].append(calm.once(limit, number))
        times["churned"].append(churned.once(limit, number))
    ranks = {name: ground.rank(values, 50, 95) for name, values in times.items()}
    return {**ranks, "p95_ratio": round(ranks["churned"]["p95"] / ranks["calm"]["p95"], 3)}


def _recover(calm: Claimer, churned: Claimer, limit: int, within: float) -> list[dict[str, Any]]:
    began, seen = time.monotonic(), []
    while (after := time.monotonic() - began) < within:
        seen.append({"after_s": round(after, 1), **_compare(calm, churned, limit)})
        if _back(seen) is not None:
            break
        time.sleep(5)
    return seen


def _back(seen: list[dict[str, Any]]) -> float | None:
    for one, other in pairwise(seen):
        if one["p95_ratio"] <= 1.5 and other["p95_ratio"] <= 1.5:
            return float(one["after_s"])
    return None
