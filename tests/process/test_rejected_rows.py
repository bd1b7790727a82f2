"""Rows that a project's own trigger rejects, met by a real worker: none stops those behind it.

What each statement makes of them is in tests/db/test_rejected_rows.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from tests.rejecting import Reject, triggers

from . import tasks, unruly
from .aftercheck import after_check
from .scene import Scene, enqueue, enqueue_many
from .waiting import let_pass, wait_until

pytestmark = pytest.mark.process


@pytest.fixture
def reject(scene: Scene) -> Iterator[Reject]:
    """Have a trigger reject rows."""
    with (
        psycopg.connect(scene.place.url, autocommit=True) as session,
        triggers(session.execute) as reject,
    ):
        yield reject


@pytest.mark.parametrize("prefetch", ["0", "auto"])
def test_a_job_that_a_trigger_rejects_stops_none_behind_it(
    scene: Scene, reject: Reject, prefetch: str
) -> None:
    """One that cannot begin, end, be given another time, be renewed, or be taken back."""
    soon = {"run_after": timedelta(seconds=1)}
    unclaimed = enqueue_many(tasks.noop, [[]] * 12)
    unended, unrenewed = enqueue(tasks.noop), enqueue(tasks.rest, 5.0)
    unpromoted = int(tasks.noop.using(**soon).enqueue().id)
    poison = enqueue(unruly.poison, "kill")
    reject(f"NEW.state = 'running' AND NEW.id <= {unclaimed[-1]}")
    reject(f"NEW.state <> 'running' AND NEW.id IN ({unended}, {poison})")
    reject(f"NEW.state = 'ready' AND NEW.id = {unpromoted}")
    reject(f"NEW.renewals > 0 AND NEW.job_id = {unrenewed}", "lease")

    flags = ["--lease", "3", "--prefetch", prefetch]
    worker = scene.start("a", processes=2, slots=3, flags=flags)
    long = enqueue(tasks.rest, 7.0)
    later = [int(tasks.noop.using(**soon).enqueue().id) for _ in range(5)]
    scene.succeeds(*enqueue_many(tasks.noop, [[]] * 20), *later, within=15)
    scene.succeeds(long, within=40)
    wait_until(lambda: scene.events(unrenewed, "rescued"), 20, what="its lease ran out")
    let_pass(3)  # in which what is rejected is let alone
    said = len(worker.said)
    scene.succeeds(enqueue(tasks.noop), within=5)
    let_pass(2)
    assert len(worker.said.splitlines()) - len(worker.said[:said].splitlines()) < 60

    assert {scene.job(job_id).state for job_id in unclaimed} == {"ready"}
    assert scene.job(unpromoted).state == "scheduled"
    assert [scene.job(job_id).state for job_id in (unended, poison)] == ["running"] * 2
    told = [f"job {each} is passed over for" for each in (*unclaimed[:5], unpromoted, poison)]
    assert all(line in worker.said for line in told)
    assert len(scene.begins(unended)) <= 1  # the poison may have been quicker
    reject.no_more()
    worker.end()
    again = scene.start("b", processes=2, slots=3, flags=flags)
    scene.succeeds(*unclaimed, unpromoted, unended, within=20)
    scene.reaches("failed", poison, within=60)
    after_check(scene, again)
