"""A job and the rows it is about share one fate, and a late commit is not passed over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.db import connections, transaction

from django_relay.models import Event, Job

from . import tasks
from .aftercheck import after_check
from .scene import Scene, enqueue, enqueue_many
from .waiting import let_pass

pytestmark = pytest.mark.process

POLL = 0.5


class Undone(Exception):
    """Raised to roll a transaction back."""


@contextmanager
def rolled_back() -> Iterator[None]:
    """Run in a transaction, or a savepoint of one, that an error ends."""
    try:
        with transaction.atomic():
            yield
            raise Undone
    except Undone:
        pass


def in_a_session_of_its_own(work: Callable[[], None]) -> threading.Thread:
    """Run ``work`` in a thread, which has its own connection, and close that."""

    def run() -> None:
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.smoke
def test_an_enqueue_that_is_rolled_back_leaves_nothing(scene: Scene) -> None:
    worker = scene.start("a")
    with rolled_back():
        enqueue(tasks.noop)
    with transaction.atomic():
        kept = enqueue(tasks.noop)
        with rolled_back():
            enqueue(tasks.noop)
    scene.succeeds(kept)
    assert list(Job.objects.values_list("pk", flat=True)) == [kept]
    assert set(Event.objects.values_list("job_id", flat=True)) == {kept}
    after_check(scene, worker)


def test_a_job_does_not_start_before_its_transaction_has_committed(scene: Scene) -> None:
    """One session holds a job and its row back, while twenty later jobs of another are done."""
    worker = scene.start("a", slots=4)
    scene.succeeds(enqueue(tasks.noop))
    held: dict[str, object] = {}
    enqueued = threading.Event()

    def hold() -> None:
        with transaction.atomic():
            group = Group.objects.create(name=f"made with its job, {scene.directory}")
            held["job"] = enqueue(tasks.find_group, group.pk)
            enqueued.set()
            let_pass(4)
        held["committed"] = scene.now()

    holding = in_a_session_of_its_own(hold)
    assert enqueued.wait(10)
    others = enqueue_many(tasks.noop, [[]] * 20)
    scene.succeeds(*others, within=4)
    assert not scene.begins(held["job"])
    holding.join(20)
    (job,) = scene.succeeds(held["job"])

    assert min(others) > job.pk
    (began,) = scene.begins(job.pk)
    late = (began.at - held["committed"]).total_seconds()
    assert -0.5 < late < 2 * POLL
    assert scene.result(job.pk).return_value.startswith("made with its job")
    after_check(scene, worker)


def test_enqueues_from_on_commit_and_from_async_code_behave_as_direct_ones(scene: Scene) -> None:
    worker = scene.start("a")
    jobs: dict[str, int] = {}
    with transaction.atomic():
        transaction.on_commit(lambda: jobs.update(hook=enqueue(tasks.noop)))
    with transaction.atomic():
        jobs["async"] = int(async_to_sync(tasks.noop.aenqueue)().id)
    with rolled_back():
        transaction.on_commit(lambda: jobs.update(never=enqueue(tasks.noop)))
        async_to_sync(tasks.noop.aenqueue)()
    scene.succeeds(*jobs.values())
    assert sorted(jobs) == ["async", "hook"]
    assert Job.objects.count() == 2
    after_check(scene, worker)
