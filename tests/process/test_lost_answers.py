"""The server commits and its answer is lost: an ending counts once, a claim runs out by itself."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from django.db import connection

from . import tasks
from .aftercheck import after_check
from .proxy import Proxy
from .scene import Scene, enqueue, enqueue_many
from .waiting import wait_until

pytestmark = pytest.mark.process

LEASE = 6.0


SLEEPS = """
SELECT count(*) > 0 FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'django_relay slots%'
  AND state = 'idle' AND state_change < clock_timestamp() - interval '0.7 seconds'
"""


def sleeps() -> bool:
    """Whether the child's bookkeeper has nothing to ask for some time."""
    with connection.cursor() as cursor:
        cursor.execute(SLEEPS)
        return bool(cursor.fetchone()[0])


@pytest.fixture
def proxy(scene: Scene) -> Iterator[Proxy]:
    """A proxy before the database; workers go through it, the ledger and the test do not."""
    with Proxy(urlsplit(scene.place.url).port or 5432) as it:
        yield it
        for worker in scene.workers:
            worker.end()


@pytest.mark.parametrize(
    "task",
    [pytest.param(tasks.hold, marks=pytest.mark.smoke), tasks.hold_and_fail],
    ids=["success", "failure"],
)
def test_an_ending_whose_answer_was_lost_counts_once_and_is_not_refused(
    scene: Scene, proxy: Proxy, task: object
) -> None:
    worker = scene.start("a", env={"DATABASE_URL": scene.place.at_port(proxy.port)})
    gate = scene.directory / "gate"
    job_id = enqueue(task, str(gate))
    scene.begun(job_id)
    proxy.hold("relay slots")
    gate.touch()
    wait_until(
        lambda: scene.events(job_id, "succeeded", "failed"), 10, what="the ending has committed"
    )
    proxy.cut()

    # The next job of its only slot shows that the ending has been seen to.
    scene.succeeds(enqueue(tasks.noop, queue=worker.own), within=15)
    kinds = scene.kinds(job_id)
    assert kinds in (["enqueued", "claimed", "succeeded"], ["enqueued", "claimed", "failed"])
    assert len(scene.begins(job_id)) == 1
    after_check(scene, worker)
    assert "refused" not in worker.said


def test_a_claim_whose_answer_was_lost_runs_out_and_is_taken_again(
    scene: Scene, proxy: Proxy
) -> None:
    through = {"DATABASE_URL": scene.place.at_port(proxy.port)}
    worker = scene.start("a", env=through, flags=["--prefetch", "0"])
    # From the fourth time on a statement is prepared, and one message makes a claim.
    scene.succeeds(*enqueue_many(tasks.noop, [[]] * 8, queue=worker.own))
    wait_until(sleeps, 10, what="the child sleeps")
    proxy.hold("relay slots")
    job_id = enqueue(tasks.noop)
    scene.reaches("running", job_id)
    proxy.cut()
    scene.succeeds(job_id, within=LEASE + 10)
    assert scene.kinds(job_id) == ["enqueued", "claimed", "rescued", "claimed", "succeeded"]
    assert len(scene.begins(job_id)) == 1
    after_check(scene, worker)
