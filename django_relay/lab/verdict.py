"""What became of the jobs, by the witness outside of the queue and by the queue's own events.

Nothing accepted may be lost, each job has one accepted outcome, and a handler that was started
again was started again for a reason that is in the events.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.management import call_command

from . import ledger, places
from .places import Place

SUCCEEDED = """
SELECT j.id, count(e.id) FROM django_relay_job AS j
LEFT JOIN django_relay_event AS e ON e.job_id = j.id AND e.kind = 'succeeded'
WHERE j.id > %(after)s AND j.queue = %(queue)s GROUP BY j.id
"""
CLAIMS = """
SELECT e.job_id, e.claim, e.kind FROM django_relay_event AS e
JOIN django_relay_job AS j ON j.id = e.job_id
WHERE j.id > %(after)s AND j.queue = %(queue)s
  AND e.kind IN ('claimed', 'succeeded', 'rescued', 'released', 'retried')
"""
REFUSED = """
SELECT e.data->>'reason', count(*) FROM django_relay_event AS e
JOIN django_relay_job AS j ON j.id = e.job_id
WHERE j.id > %(after)s AND j.queue = %(queue)s AND e.kind = 'refused' GROUP BY 1 ORDER BY 1
"""
EVENTFUL = """
SELECT e.job_id FROM django_relay_event AS e JOIN django_relay_job AS j ON j.id = e.job_id
WHERE j.id > %(after)s AND j.queue = %(queue)s
GROUP BY e.job_id ORDER BY count(*) DESC, e.job_id LIMIT 24
"""


#: The names of the figures, all of which are counts.
FIGURES = (
    "jobs",
    "lost",
    "accepted_outcomes_per_job",
    "starts",
    "duplicates_started",
    "duplicates_unexplained",
    "refusals",
    "refusals_by_reason",
    "audit_findings",
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The figures, and what is wrong in plain words."""

    figures: dict[str, Any]
    problems: tuple[str, ...]


def reach(place: Place, witness: Path, after: int, accepted: Collection[int]) -> Verdict:
    """Compare what was accepted, what the ledger tells and what the events tell."""
    queue = {"after": after, "queue": places.QUEUE}
    outcomes = dict(place.rows(SUCCEEDED, **queue))
    lost = sorted(job for job in accepted if not outcomes.get(job))
    per_job = Counter(outcomes.values())
    starts = _starts(place, witness, queue)
    refusals = dict(place.rows(REFUSED, **queue))
    findings = _audit(place)
    figures = {
        "jobs": len(outcomes),
        "lost": len(lost),
        "accepted_outcomes_per_job": {str(n): jobs for n, jobs in sorted(per_job.items())},
        **{name: len(found) for name, found in starts.items()},
        "refusals": sum(refusals.values()),
        "refusals_by_reason": refusals,
        "audit_findings": len(findings),
    }
    problems = [f"job {job} was accepted and did not succeed" for job in lost]
    problems += [f"job {job} has {n} accepted outcomes" for job, n in outcomes.items() if n > 1]
    problems += [
        f"job {job}, claim {claim} began for a reason that is in no event"
        for job, claim in starts["duplicates_unexplained"]
    ]
    problems += [f"audit: job {each['job_id']} {each['problem']}" for each in findings]
    return Verdict(figures, tuple(problems))


def eventful(place: Place, after: int) -> list[int]:
    """Return the ids of the jobs with the most events."""
    return [row[0] for row in place.rows(EVENTFUL, after=after, queue=places.QUEUE)]


def _starts(place: Place, witness: Path, queue: dict[str, Any]) -> dict[str, list[Any]]:
    """Hold the ledger's beginnings against the claims and what ended them.

    A job's successful claim explains one beginning. Any other is a duplicate, explained by the
    event that took its claim away.
    """
    events: dict[str, set[tuple[int, int]]] = {}
    for job, claim, kind in place.rows(CLAIMS, **queue):
        events.setdefault(kind, set()).add((job, claim))
    begun = Counter((line.job, line.claim) for line in ledger.read(witness) if line.mark == "begin")
    mine = {key: count for key, count in begun.items() if key[0] > queue["after"]}
    taken = set().union(*(events.get(kind, set()) for kind in ("rescued", "released", "retried")))
    duplicates = [key for key in mine if key not in events.get("succeeded", set())]
    odd = [key for key in duplicates if key not in taken]
    odd += [key for key, count in mine.items() if count > 1 or key not in events.get("claimed", ())]
    return {
        "starts": list(mine),
        "duplicates_started": duplicates,
        "duplicates_unexplained": odd,
    }


def _audit(place: Place) -> list[dict[str, Any]]:
    """Run the package's own audit over the lab's queue."""
    out = io.StringIO()
    with suppress(SystemExit):  # it ends with 1 when it finds something
        call_command(
            "relay_audit", backend=place.alias, queue=places.QUEUE, format="json", stdout=out
        )
    found: list[dict[str, Any]] = json.loads(out.getvalue())["findings"]
    return found
