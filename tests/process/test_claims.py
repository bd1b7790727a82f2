"""A claim takes what it asked for and no more, whatever the planner believes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from django.db import connection
from django.db.models import Count

from django_relay.models import Event, Lease
from django_relay.pace import FRESH

from . import tasks
from .aftercheck import after_check
from .places import Server
from .scene import Scene, enqueue, enqueue_many
from .waiting import wait_until

pytestmark = pytest.mark.process


def most_leases(scene: Scene, done: int, within: float) -> int:
    """Return the most leases that a child held at any sample, until so many jobs have begun."""
    most = 0

    def over() -> bool:
        nonlocal most
        held = Lease.objects.values("worker").annotate(number=Count("job_id"))
        most = max([most, *(each["number"] for each in held)])
        return len(scene.begins()) >= done

    wait_until(over, within, what=f"{done} jobs have begun", pause=0.02)
    return most


@pytest.fixture
def stale_statistics(scene: Scene) -> Iterator[list[int]]:
    """Eighty jobs, of which the planner knows one."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE django_relay_job SET (autovacuum_enabled = false)")
        jobs = [enqueue(tasks.rest, 0.3)]
        cursor.execute("ANALYZE django_relay_job")
        yield jobs + enqueue_many(tasks.rest, [[0.3]] * 79)
        cursor.execute("ALTER TABLE django_relay_job RESET (autovacuum_enabled)")


@pytest.mark.parametrize(
    ("flags", "most"),
    [pytest.param(["--prefetch", "0"], 2, marks=pytest.mark.smoke), ([], 4)],
    ids=["without prefetch", "with prefetch"],
)
def test_a_worker_never_holds_more_than_it_can_run(
    scene: Scene, stale_statistics: list[int], flags: list[str], most: int
) -> None:
    worker = scene.start("a", slots=2, flags=flags)
    assert most_leases(scene, 20, within=40) <= most
    for job_id in stale_statistics[20:]:
        if scene.job(job_id).state == "ready":
            assert scene.kinds(job_id) in (["enqueued"], ["enqueued", "claimed", "released"])
    assert worker.stop() == 0
    after_check(scene)


def test_twelve_claimers_take_three_hundred_jobs_once_each(harmed: Scene, server: Server) -> None:
    """On a server of its own, whose log has no error of theirs."""
    scene = harmed
    before = len(server.said)
    jobs = enqueue_many(tasks.noop, [[]] * 300)
    workers = [scene.start(f"w{n}", slots=1, processes=4) for n in range(3)]
    most_leases(scene, 300, within=90)
    scene.succeeds(*jobs)
    claims = Event.objects.filter(kind="claimed").values("job_id").annotate(n=Count("id"))
    released = Event.objects.filter(kind="released").count()
    assert sum(each["n"] for each in claims) == 300 + released
    assert len(scene.begins()) == 300
    after_check(scene, *workers)
    assert "ERROR" not in server.said[before:]


def test_a_busy_child_does_not_keep_what_it_fetched_ahead_from_an_idle_one(scene: Scene) -> None:
    """Short jobs have made both children fetch ahead; then two long ones come."""
    worker = scene.start("a", slots=1, processes=2)
    scene.succeeds(*enqueue_many(tasks.noop, [[]] * 100), within=40)
    gate = scene.directory / "gate"
    long = enqueue_many(tasks.hold, [[str(gate)]] * 2)
    for job_id in long:
        scene.begun(job_id, within=5)
    gate.touch()
    for job_id in long:
        assert scene.kinds(job_id).count("released") <= 2
    after_check(scene, worker)


def test_sync_jobs_that_follow_async_ones_are_not_kept_from_free_slots(scene: Scene) -> None:
    """Two children that claim for sixty slots of the loop; then six sync jobs for two slots."""
    worker = scene.start("a", slots=1, processes=2, flags=["--async-slots", "60"])
    scene.succeeds(*enqueue_many(tasks.rest_async, [[0.01]] * 300), within=40)
    gate = scene.directory / "gate"
    first, *others = enqueue_many(tasks.hold, [[str(gate)]] * 6)
    wait_until(lambda: len(scene.begins()) == 302, 10, what="both children are busy")
    wait_until(lambda: Lease.objects.count() == 2, 10, what="what they cannot run is given back")
    gate.touch()
    scene.succeeds(first, *others)
    after_check(scene, worker)


def asleep() -> int:
    """Return how many children have claimed in vain and nothing since."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'django_relay slots %%' AND state = 'idle'"
            " AND query LIKE '%%picked%%' AND state_change < clock_timestamp() - interval '1 s'"
        )
        number: int = cursor.fetchone()[0]
        return number


def test_one_call_as_large_as_the_worker_has_every_child_woken(scene: Scene) -> None:
    """Nothing else wakes them: each has looked in vain, and the next look is far away."""
    worker = scene.start("a", slots=4, processes=3, flags=["--poll", "60"])
    wait_until(lambda: asleep() == 3, 20, what="three children have looked")
    jobs = enqueue_many(tasks.rest, [[8]] * 12)
    scene.succeeds(*jobs, within=60)
    claimed = list(Event.objects.filter(kind="claimed").order_by("at").values_list("at", flat=True))
    assert len(claimed) == 12
    assert (claimed[11] - claimed[0]).total_seconds() < 7, "somebody slept"
    assert worker.stop() == 0
    after_check(scene)


def test_a_child_that_is_woken_and_has_no_room_has_another_one_woken(scene: Scene) -> None:
    """The one with the sync job runs the fewest in the end, and may claim nothing."""
    flags = ["--async-slots", "5", "--poll", "60"]
    worker = scene.start("a", slots=1, processes=2, flags=flags)
    wait_until(lambda: asleep() == 2, 20, what="two children have looked")
    scene.begun(enqueue(tasks.rest, 20))
    for _ in range(4):
        scene.begun(enqueue(tasks.rest_async, 15), within=8)
    assert worker.stop(40) == 0
    after_check(scene)


def test_long_jobs_right_behind_short_ones_go_to_the_free_slots_of_both_children(
    scene: Scene,
) -> None:
    """What one child had taken ahead would go back after a second."""
    worker = scene.start("a", slots=2, processes=2)
    scene.succeeds(*(enqueue(tasks.noop) for _ in range(30)))
    jobs = enqueue_many(tasks.rest, [[3]] * 4)
    scene.succeeds(*jobs)
    for job_id in jobs:
        assert scene.kinds(job_id) == ["enqueued", "claimed", "succeeded"]
    assert worker.stop() == 0
    after_check(scene)


def test_long_jobs_after_a_pause_are_not_taken_for_short_ones(scene: Scene) -> None:
    worker = scene.start("a", slots=2, processes=3)
    scene.succeeds(*enqueue_many(tasks.noop, [[]] * 100))
    time.sleep(2 * FRESH)
    jobs = enqueue_many(tasks.rest, [[3]] * 6)
    scene.succeeds(*jobs)
    for job_id in jobs:
        assert scene.kinds(job_id) == ["enqueued", "claimed", "succeeded"]
    assert worker.stop() == 0
    after_check(scene)
