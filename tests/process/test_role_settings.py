"""What the role's settings ask of sessions does not reach the worker's own; handlers it does."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from urllib.parse import quote

import psycopg
import pytest
from django.db import connection

from . import tasks, unruly
from .aftercheck import after_check
from .scene import Scene, enqueue, enqueue_many
from .waiting import let_pass, wait_until
from .workers import send

pytestmark = pytest.mark.process

TIMEOUT = 1.0

WAITS = """
SELECT count(*) > 0 FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'django_relay slots%%'
  AND wait_event_type = 'Lock'
"""


@pytest.fixture
def stern_role(scene: Scene) -> Iterator[None]:
    """Give new sessions of the role a stricter isolation and short time-outs."""
    settings = {
        "default_transaction_isolation": "repeatable read",
        "statement_timeout": f"{TIMEOUT}s",
        "lock_timeout": f"{TIMEOUT / 2}s",
    }
    with connection.cursor() as cursor:
        for name, value in settings.items():
            cursor.execute(f"ALTER ROLE CURRENT_USER SET {name} = '{value}'")
        yield
        cursor.execute("ALTER ROLE CURRENT_USER RESET ALL")


@pytest.mark.usefixtures("stern_role")
def test_stricter_isolation_and_short_time_outs_of_the_role_cost_no_job(scene: Scene) -> None:
    worker = scene.start("a", slots=2, processes=2)
    stricter = quote("-c default_transaction_isolation=serializable")
    where = {"DATABASE_URL": f"{scene.place.url}?options={stricter}"}
    other = scene.start("b", slots=2, env=where)
    jobs = enqueue_many(tasks.rest, [[0.02]] * 60)
    jobs += enqueue_many(tasks.succeed_or_raise, [[False]] * 4)
    jobs += enqueue_many(tasks.enqueue_in, [[0, "default"]] * 4)
    lost = enqueue(tasks.linger, 30, 0)
    send([scene.begun(lost, within=40).pid], signal.SIGKILL)
    scene.succeeds(*jobs, lost, within=40)

    # A handler's own statement is bound by what the role says.
    slow = enqueue(unruly.ask_slowly, 3 * TIMEOUT)
    (job,) = scene.reaches("failed", slow)
    assert "statement timeout" in scene.events(job.pk, "failed")[0].data["error"]["message"]

    # An ending that has to wait longer than any statement of the role may is not given up.
    held = enqueue(tasks.rest, 1.0)
    scene.begun(held)
    with psycopg.connect(scene.place.url) as blocker:
        blocker.execute("SELECT 1 FROM django_relay_lease WHERE job_id = %s FOR UPDATE", [held])
        with connection.cursor() as cursor:
            wait_until(lambda: cursor.execute(WAITS) or cursor.fetchone()[0], 10, what="it waits")
        let_pass(1.5 * TIMEOUT)
    scene.succeeds(held)
    assert scene.kinds(held) == ["enqueued", "claimed", "succeeded"]
    for each in (worker, other):
        assert "not available" not in each.said
        assert "maintenance failed" not in each.said
    with connection.cursor() as cursor:
        cursor.execute("ALTER ROLE CURRENT_USER RESET ALL")
    after_check(scene, worker, other)
