"""A notification holds nothing of the job: any payload wakes, and one transaction wakes once."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import psycopg
import pytest
from django.db import transaction

from django_relay.models import Worker

from . import tasks
from .aftercheck import after_check
from .scene import Scene, enqueue, enqueue_many
from .waiting import wait_until

pytestmark = pytest.mark.process

SIZES = [7_000, 9_000, 300_000, 5_000_000]


def heard(session: psycopg.Connection[Any], seconds: float = 0.5) -> Counter[str]:
    """What has been notified so far, by payload."""
    return Counter(each.payload for each in session.notifies(timeout=seconds))


def sleeps() -> bool:
    """Whether the worker has told enqueues that it wants to be notified."""
    return bool(Worker.objects.filter(waiting=True).exists())


def test_payloads_of_any_size_wake_the_worker_by_the_name_of_their_queue_once_a_transaction(
    scene: Scene, settings: Any
) -> None:
    worker = scene.start("a", slots=4)
    with psycopg.connect(scene.place.url, autocommit=True) as session:
        session.execute("LISTEN django_relay")
        wait_until(sleeps, 20, what="the worker sleeps")
        large = [enqueue(tasks.measure, "x" * size) for size in SIZES]
        scene.succeeds(*large, within=60)
        assert [scene.job(each).result for each in large] == SIZES
        assert set(heard(session)) == {"default"}

        wait_until(sleeps, 20, what="the worker sleeps again")
        heard(session, 0)
        with transaction.atomic():
            many = enqueue_many(tasks.noop, [[]] * 100)
            many += enqueue_many(tasks.noop, [[]] * 2, queue=worker.own)
        assert heard(session) == {"default": 1, worker.own: 1}
        scene.succeeds(*many, within=60)

        # Without notifications polling finds them.
        changed = copy.deepcopy(settings.TASKS)
        changed["default"]["OPTIONS"]["notify"] = False
        settings.TASKS = changed
        wait_until(sleeps, 20, what="the worker sleeps again")
        heard(session, 0)
        scene.succeeds(enqueue(tasks.noop))
        assert not heard(session)
    after_check(scene, worker)
