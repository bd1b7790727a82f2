"""The listening connection is silent from the start, refused or ended: polling goes on meanwhile.

What happens when it falls silent later is in ``test_black_holes``.
"""

from __future__ import annotations

from datetime import datetime
from urllib.parse import urlsplit

import pytest
from django.db import connection

from django_relay.models import Worker

from . import tasks, times
from .aftercheck import after_check
from .proxy import Proxy
from .scene import Scene, enqueue, enqueue_many
from .test_outages import TERMINATE
from .waiting import wait_until

pytestmark = pytest.mark.process

#: Much longer than a notification takes.
POLL = 4.0


def delay(scene: Scene, *, within: float) -> float:
    """Have one job done and return how long it waited, in seconds."""
    job_id = enqueue(tasks.noop)
    scene.succeeds(job_id, within=within)
    enqueued, claimed = scene.events(job_id, "enqueued", "claimed")
    return float((claimed.at - enqueued.at).total_seconds())


def hears(scene: Scene) -> bool:
    """Whether three jobs in a row are taken up sooner than polling could be expected to."""
    return all(delay(scene, within=POLL + 10) < POLL / 4 for _ in range(3))


def listens_again(scene: Scene, when: datetime, what: str) -> None:
    """Wait until notifications arrive again; jobs are done all the while."""
    wait_until(lambda: hears(scene), 30, what="listening again")
    times.note(f"{what}: notified again", when, scene.now())


def test_listening_that_was_impossible_or_ended_comes_back_and_no_job_waits_for_it(
    scene: Scene,
) -> None:
    with Proxy(urlsplit(scene.place.url).port or 5432) as proxy:
        proxy.silence("relay listener", again=True)
        where = {"DATABASE_URL": scene.place.at_port(proxy.port)}
        worker = scene.start("a", env=where, flags=["--poll", str(POLL), "--lease", "2"])
        wait_until(lambda: "not listening" in worker.said, 20, what="it says so")
        proxy.refuse("relay listener")
        # Polling is the guarantee.
        assert delay(scene, within=20) < POLL + 5
        proxy.relent()
        listens_again(scene, scene.now(), "LISTEN refused at the start")

        with connection.cursor() as cursor:
            cursor.execute(f"{TERMINATE} AND application_name LIKE 'django_relay listener%'")
            assert cursor.fetchall()
        listens_again(scene, scene.now(), "listener terminated")
        assert worker.said.count("not listening") <= 2
        after_check(scene, worker)
        worker.end()


def test_a_worker_that_runs_more_async_jobs_than_it_has_slots_for_sync_ones_is_notified(
    scene: Scene,
) -> None:
    scene.start("a", slots=1, flags=["--async-slots", "20", "--poll", str(POLL)])
    for job_id in enqueue_many(tasks.rest_async, [[60.0]] * 5):
        scene.begun(job_id)
    said = Worker.objects.get().seen_at
    wait_until(lambda: Worker.objects.get().seen_at > said, 40, what="it says what it waits for")
    listens_again(scene, scene.now(), "five async jobs run beside one slot")
