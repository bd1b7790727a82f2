"""A handler may leave its session in any state: its outcome is stored, the next job sees none."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from . import tasks, unruly
from .aftercheck import after_check
from .scene import Scene, enqueue
from .waiting import wait_until
from .workers import children_of

pytestmark = pytest.mark.process

#: What a handler leaves, and what becomes of its job.
TRANSACTIONS = {
    "begin": "failed",
    "autocommit": "failed",
    "atomic": "failed",
    "savepoint": "failed",
    "cursor": "successful",
    "fork": "successful",
}
SETTINGS = dict.fromkeys(["search_path", "timeout", "lock", "temporary table"], "successful")

LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"


@pytest.mark.parametrize(
    ("age", "messes"),
    [
        pytest.param("0", TRANSACTIONS | SETTINGS, id="closed after each job"),
        pytest.param("600", TRANSACTIONS, id="transactions in kept sessions"),
        pytest.param("600", SETTINGS, id="settings in kept sessions"),
    ],
)
def test_no_job_finds_what_another_has_left_in_its_session(
    scene: Scene, age: str, messes: dict[str, str]
) -> None:
    worker = scene.start("a", env={"DATABASE_URL": f"{scene.place.url}?CONN_MAX_AGE={age}"})
    jobs = {}
    for how in messes:
        jobs[how] = enqueue(unruly.leave_a_mess, how)
        jobs[f"after {how}"] = enqueue(tasks.find_nothing)
    wait_until(
        lambda: all(
            scene.job(job_id).finished_at or scene.job(job_id).failures for job_id in jobs.values()
        ),
        30,
        what="all have run",
    )
    found = {name: scene.job(job_id).state for name, job_id in jobs.items()}
    assert found == messes | {f"after {how}": "successful" for how in messes}
    for how in messes:
        if messes[how] == "failed":
            (failed,) = scene.events(jobs[how], "failed")
            assert "left a transaction open" in failed.data["error"]["message"]
    assert not Group.objects.filter(name="never to be seen").exists()
    with connection.cursor() as cursor:
        cursor.execute(LOCKS)
        assert cursor.fetchone() == (0,)
    after_check(scene, worker)


def test_a_copy_of_its_process_that_a_handler_lets_return_ends_there(scene: Scene) -> None:
    worker = scene.start("a", slots=1)
    scene.succeeds(enqueue(unruly.leave_a_mess, "fork"), within=40)
    (child,) = worker.children
    wait_until(lambda: not children_of(child), 20, what="the copy has ended")
    wait_until(lambda: "a task forked has returned" in worker.said, 20, what="it has said so")
    after_check(scene, worker)
