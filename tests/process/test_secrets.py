"""A job's arguments are where they are kept, and on the page of who may see them; nowhere else.

Jobs with a marked secret in their arguments succeed, fail, crash, are retried, lost, refused and
cancelled, and cannot be called; then everything that tells of them is searched for the mark.
"""

from __future__ import annotations

import io
import json
import logging
import secrets
import subprocess
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client

from django_relay import compat, recording, replay, transitions
from django_relay.models import Job
from tests import lives

from . import confidants
from .aftercheck import after_check
from .places import Server
from .scene import Scene, enqueue, enqueue_path
from .waiting import wait_until
from .workers import Worker

pytestmark = pytest.mark.process

SITE = "/admin/django_relay"
#: How jobs end, and the state they end in.
ENDS = {
    "succeed": "successful",
    "raise": "failed",
    "fail": "failed",
    "snooze": "successful",
    "kill": "failed",
    "leave a transaction open": "failed",
    "break the session": "failed",
}
#: Every column of every table but a job's arguments.
TOLD = """
SELECT (to_jsonb(j) - 'args' - 'kwargs')::text FROM django_relay_job AS j
UNION ALL SELECT to_jsonb(e)::text FROM django_relay_event AS e
UNION ALL SELECT to_jsonb(l)::text FROM django_relay_lease AS l
UNION ALL SELECT to_jsonb(w)::text FROM django_relay_worker AS w
"""


class Watch:
    """Looks at what sessions run and what processes call themselves, and keeps what it saw."""

    def __init__(self, scene: Scene, worker: Worker) -> None:
        self._scene, self._worker = scene, worker
        self._over = threading.Event()
        self.seen: set[str] = set()

    def look(self) -> None:
        query = "SELECT query, application_name FROM pg_stat_activity"
        with psycopg.connect(self._scene.place.admin, autocommit=True) as session:
            self.seen.update(f"{text} {name}" for text, name in session.execute(query))
        listed = subprocess.run(
            ["ps", "-o", "args=", "-p", ",".join(map(str, self._worker.group))],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.seen.update(listed.stdout.splitlines())

    @contextmanager
    def looking(self) -> Iterator[Watch]:
        """Look again and again meanwhile."""
        thread = threading.Thread(target=self._go_on)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join()

    def _go_on(self) -> None:
        while not self._over.wait(0.05):
            self.look()


def pages(client: Client, jobs: list[int]) -> str:
    """All that the admin shows."""
    addresses = ["", "/job/", "/event/", "/lease/", "/worker/"]
    addresses += [f"/job/{job_id}/change/" for job_id in jobs]
    addresses += [f"/job/{job_id}/history/" for job_id in jobs]
    text = ""
    for address in addresses:
        page = client.get(f"{SITE}{address or '/'}")
        assert page.status_code == 200, address
        text += page.content.decode()
    asked = client.post(f"{SITE}/job/act/requeue/", {"job": jobs, "back": "job"})
    return text + asked.content.decode()


def results(jobs: list[int]) -> str:
    """What the Tasks API tells of errors."""
    found = [compat.task_backends["default"].get_result(str(job_id)) for job_id in jobs]
    return "\n".join(f"{error}" for result in found for error in result.errors)


def hurry(jobs: Collection[int]) -> bool:
    """Let nobody wait for another attempt; tell whether all have ended."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE django_relay_job SET run_after = now() WHERE state = 'scheduled'")
    return not Job.objects.filter(pk__in=jobs, finished_at=None).exists()


def end_in_every_way(scene: Scene, mark: str, watch: Watch) -> list[int]:
    """Let jobs with the secret end in every way, some of which take their process along."""
    with transaction.atomic():
        jobs = {
            enqueue(task, f"the {mark}", how, also={"key": mark}): state
            for task in (confidants.keep, confidants.keep_async)
            for how, state in ENDS.items()
        }
        paths = ["tests.process.confidants.keep_nothing", "nowhere.at_all", "os.system"]
        watch.look()  # this session's last statement is an enqueue
        jobs |= dict.fromkeys([enqueue_path(path, mark) for path in paths], "failed")
        watch.look()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE django_relay_job SET max_attempts = 2")
    wait_until(lambda: hurry(jobs), 90, what="all have ended")
    for state in set(jobs.values()):
        scene.reaches(state, *(each for each in jobs if jobs[each] == state), within=1)
    return list(jobs)


def end_too_late(scene: Scene, mark: str) -> list[int]:
    """Let one job lose its lease and be refused, and another be asked to stop."""
    gate = scene.directory / "gate"
    late, asked = (enqueue(confidants.keep_until, mark, str(gate)) for _ in range(2))
    scene.begun(late, within=40)
    scene.begun(asked, within=40)
    transitions.cancel(connection, [asked], actor="an operator")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE django_relay_lease SET expires_at = now() WHERE job_id = %s", [late])
    scene.begun(late, 2, within=40)
    gate.touch()
    wait_until(lambda: scene.events(late, "refused"), 20, what="the late ending is refused")
    scene.succeeds(late, asked)
    return [late, asked]


def everything_told(jobs: list[int]) -> dict[str, str]:
    """What the database, the API and the pages tell of these jobs, by where it is told."""
    clerk = Client()
    looks = ("view_job", "view_event", "view_lease", "view_worker", "requeue_job")
    clerk.force_login(lives.user("clerk", *looks))
    with connection.cursor() as cursor:
        cursor.execute(TOLD)
        rows = "\n".join(text for (text,) in cursor.fetchall())
    audited = io.StringIO()
    call_command("relay_audit", stdout=audited, stderr=audited)
    recorded = recording.record(connection, jobs)
    return {
        "rows and events": rows,
        "errors": results(jobs),
        "the audit": audited.getvalue(),
        "a recording": recording.dump(recorded),
        "its replay": replay.self_contained(recorded),
        "the pages of who may not see arguments": pages(clerk, jobs),
    }


def test_arguments_are_told_to_nobody_who_may_not_see_them(
    harmed: Scene, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    mark = f"swordfish-{secrets.token_hex(8)}"
    for name in (None, "django", "django_tasks", "django_relay"):
        caplog.set_level(logging.DEBUG, logger=name)
    worker = harmed.start("a", slots=3, flags=["--verbosity", "3"])
    with Watch(harmed, worker).looking() as watch:
        jobs = end_in_every_way(harmed, mark, watch)
        jobs += end_too_late(harmed, mark)
    worker.provoked = True  # Django 5.2's backport logs what failed tasks raised
    after_check(harmed, worker)
    assert worker.stop() == 0

    told = everything_told(jobs) | {
        "the worker's log": worker.said,
        "the log of the enqueueing process": caplog.text,
        "the server's log": server.said,
        "queries and processes": "\n".join(watch.seen),
    }
    for where, text in told.items():
        assert len(text) > 20, f"{where} tells nothing"
        assert mark not in text, where
    assert any("INSERT INTO django_relay_job" in each for each in watch.seen)
    kept = Job.objects.filter(pk__in=jobs)
    assert all(mark in json.dumps([job.args, job.kwargs]) for job in kept)
    ada = Client()
    ada.force_login(User.objects.create_superuser("ada"))
    assert mark in pages(ada, jobs[:1])
