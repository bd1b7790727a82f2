"""The command called from code, as tests of users do: off the main thread, draining, and away."""

from __future__ import annotations

import subprocess
import sys

import pytest

from . import tasks
from .scene import Scene, enqueue_many
from .workers import ROOT

pytestmark = pytest.mark.process

PROGRAM = """
import signal, threading, time
import django
django.setup()
from django.core.management import call_command
from django.db import connection
from django.contrib.auth.models import Group

def asked():
    return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)]

before, threads = asked(), threading.active_count()
groups = Group.objects.count()
ours = connection.connection
worker = threading.Thread(target=call_command, args=("relay_worker", "--drain", "--slots", "2"))
worker.start()
worker.join(90)
assert not worker.is_alive(), "it does not end"
assert asked() == before, "it took signals"
end = time.monotonic() + 30  # its listener ends by itself, within seconds
while threading.active_count() > threads and time.monotonic() < end:
    time.sleep(0.1)
assert threading.active_count() == threads, "it left threads behind"
assert connection.connection is ours and Group.objects.count() == groups, "it closed our session"
print("as before")
"""


def test_a_worker_off_the_main_thread_drains_takes_no_signals_and_leaves_nothing(
    scene: Scene,
) -> None:
    jobs = enqueue_many(tasks.noop, [[]] * 5)
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT, env=scene.environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stdout) == (0, "as before\n"), run.stderr
    scene.succeeds(*jobs, within=1)
