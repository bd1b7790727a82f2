"""The jobs are in another database than the project's rows, and there in a schema of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from django_relay.models import Job

from . import places, tasks
from .aftercheck import after_check
from .places import Place
from .scene import enqueue, enqueue_many, opened
from .workers import ROOT, send

pytestmark = pytest.mark.process

TABLES = "SELECT schemaname FROM pg_tables WHERE tablename LIKE 'django_relay_%'"


@pytest.fixture
def both(django_db_blocker: Any) -> Iterator[tuple[Place, Place]]:
    """Two empty databases: the project's, and one for jobs with a schema of its own."""
    admin = os.environ["DATABASE_URL"]
    with (
        django_db_blocker.unblock(),
        places.made(admin, migrated=False) as project,
        places.made(admin, migrated=False, schema="relay") as jobs,
    ):
        yield project, jobs


def led_away(env: dict[str, str], *command: str) -> None:
    """Do something else of the project's, in a process with its settings."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.process.led_away", *command],
        cwd=ROOT,
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_jobs_live_in_the_database_and_schema_where_the_project_leads_them(
    both: tuple[Place, Place], tmp_path: Path
) -> None:
    project, jobs = both
    env = {
        "DJANGO_SETTINGS_MODULE": "tests.process.two_databases",
        "DATABASE_URL": jobs.url,
        "RELAY_TEST_DEFAULT": project.url,
    }
    led_away(env, "migrate")
    for place, found in ((project, []), (jobs, ["relay"] * 4)):
        with psycopg.connect(place.url) as session:
            assert [schema for (schema,) in session.execute(TABLES)] == found

    with opened(jobs, tmp_path) as scene:
        worker = scene.start("a", slots=2, env=env)
        undone, kept = (enqueue(tasks.enqueue_and_undo, alias) for alias in ("queue", "default"))
        orm = enqueue_many(tasks.find_nothing, [[]] * 2)
        retried = enqueue(tasks.succeed_or_raise, False)
        later = enqueue(tasks.noop.using(run_after=timedelta(seconds=0.3)))
        killed = enqueue(tasks.linger, 30, 0)
        send([scene.begun(killed).pid], signal.SIGKILL)
        scene.succeeds(undone, kept, *orm, retried, later, killed, within=30)
        # What is enqueued shares the fate of a transaction of its own database, and of no other.
        assert not Job.objects.filter(pk=scene.job(undone).result).exists()
        scene.succeeds(scene.job(kept).result)

        scene.succeeds(*enqueue_many(tasks.lose_the_path, [["queue"]] * 4))
        scene.succeeds(*enqueue_many(tasks.enqueue_in, [[0, "default"]] * 4))
        led_away(env, "tour", str(later))
        scene.succeeds(later)
        after_check(scene, worker)
