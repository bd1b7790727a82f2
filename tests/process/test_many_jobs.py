"""However many jobs a worker has run, it has no more sessions, log entries and memory."""

from __future__ import annotations

import sys
from collections import defaultdict
from datetime import timedelta
from importlib.util import find_spec

import pytest
from django.db import connection, transaction

from django_relay import transitions
from django_relay.models import Job

from . import LONG, tasks, unruly
from .aftercheck import after_check
from .scene import Scene, enqueue_many
from .waiting import wait_until
from .workers import Worker

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="reads its memory from /proc"),
]

SLOTS = 4

#: What a project may have set: what is added to the database's address, and to the environment.
PROJECTS = {
    "age 0": ("CONN_MAX_AGE=0", {}),
    "age 600": ("CONN_MAX_AGE=600", {}),
    "age none": ("CONN_MAX_AGE=None", {}),
    "debug": ("CONN_MAX_AGE=600", {"RELAY_TEST_DEBUG": "1"}),
}
if find_spec("psycopg_pool"):
    PROJECTS["pool"] = ("CONN_MAX_AGE=0", {"RELAY_TEST_POOL": str(SLOTS)})

#: Those that the short form is content with.
FEW = {"age 0", "debug", "pool"}

SESSIONS = """
SELECT application_name, count(*) FROM pg_stat_activity
WHERE datname = current_database() GROUP BY application_name
"""


def sessions() -> dict[str, int]:
    """How many sessions there are, by their names."""
    with connection.cursor() as cursor:
        cursor.execute(SESSIONS)
        return dict(cursor.fetchall())


def start(scene: Scene, number: int) -> dict[str, Worker]:
    """Start a worker of each project; its sessions that are Django's have the project's name."""
    workers = {}
    for name, (query, env) in PROJECTS.items():
        if name in FEW or number > 2000:
            where = f"{scene.place.url}?{query}&application_name={name.replace(' ', '%20')}"
            env = env | {"DATABASE_URL": where}
            workers[name] = scene.start(name, queues=(), slots=SLOTS, env=env)
    return workers


def submit(worker: Worker, number: int) -> list[int]:
    """Enqueue jobs, and before them some whose sessions cannot be kept, more than a pool has."""
    with transaction.atomic():
        for how in ("search_path", "atomic"):
            enqueue_many(unruly.leave_a_mess, [[how]] * (SLOTS + 2), queue=worker.own)
        return enqueue_many(tasks.look_inside, [[]] * number, queue=worker.own)


def most_sessions(number: int) -> dict[str, int]:
    """Wait until all jobs have run and return how many sessions there were at the most."""
    most: dict[str, int] = defaultdict(int)

    def over() -> bool:
        for name, count in sessions().items():
            most[name] = max(most[name], count)
        return not Job.objects.exclude(state__in=["successful", "failed"]).exists()

    wait_until(over, 30 + number / 5, what="all jobs have run")
    return most


def check(name: str, jobs: list[int]) -> None:
    """Check that each job succeeded at once, found no query logged, and took no more memory."""
    done = Job.objects.filter(pk__in=jobs, state="successful", failures=0).order_by("id")
    told = [job.result for job in done.iterator()]
    assert len(told) == len(jobs), name
    assert {logged for _, logged, _ in told} == {0}, name
    assert len({pid for pid, _, _ in told}) == 1, name
    if len(jobs) > 2000:
        memory = [size for _, _, size in told[-1000:]]
        print(f"{name}: {told[0][2]:.1f}, {memory[0]:.1f}, {memory[-1]:.1f} MB")
        assert max(memory[-100:]) - min(memory[:100]) < 5, name


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", [40, 5000] if LONG else [40])
def test_sessions_query_log_and_memory_do_not_grow_with_the_jobs(scene: Scene, number: int) -> None:
    workers = start(scene, number)
    jobs = {name: submit(worker, number) for name, worker in workers.items()}
    most = most_sessions(number)
    for name, worker in workers.items():
        check(name, jobs[name])
        assert 0 < most[name] <= SLOTS, name
        own = [count for who, count in most.items() if f"-{worker.pid}-" in who]
        assert len(own) <= 4
        assert set(own) == {1}
    wait_until(lambda: not sessions().get("age 0"), 5, what="sessions are closed when idle")
    while transitions.prune(connection, older_than=timedelta(0), limit=10_000):
        pass
    after_check(scene, *workers.values())
