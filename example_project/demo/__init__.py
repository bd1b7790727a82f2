"""The demo: a batch of the shop's jobs, two workers, and one of them killed in mid-job.

``--check`` ends with 0 when every job ended as it should, else with 1 and what is wrong; without
it the site goes on being served until Ctrl-C. This module tells the order of events; the rest is
in batch, workers, timeline, verdict and site. All of it uses only what any project can use.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import django
from django.core.exceptions import ImproperlyConfigured

from example_project.embedded.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .batch import Batch
    from .timeline import Timeline
    from .workers import Team

PATIENCE = 90.0  # seconds for the whole batch
LEASE = 3.0  # seconds: short, so that the take-over can be watched


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m example_project", description=__doc__)
    parser.add_argument("--check", action="store_true", help="end with 0 when all went well")
    check = parser.parse_args(arguments).check
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return _run(check=check)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except ImproperlyConfigured as trouble:
        print(trouble, file=sys.stderr)
        return 1


def _run(*, check: bool) -> int:
    print("Starting PostgreSQL, unless it runs or DATABASE_URL names one ...", flush=True)
    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    from . import batch as batches
    from . import site, verdict
    from .timeline import Timeline
    from .workers import Team, WorkerEnded

    settings.RESULTS.mkdir(exist_ok=True)
    only = Lock(settings.RESULTS / ".demo.lock")
    if not only.claim():
        print("Another demo of this checkout is running; end it first.", file=sys.stderr)
        return 1
    call_command("migrate", verbosity=0)
    batch = batches.enqueue()
    print(f"{len(batch.names)} jobs enqueued; two workers start, with leases of {LEASE:g} s.\n")
    with Team(settings.RESULTS, lease=LEASE) as team:
        timeline = Timeline(batch, team)
        try:
            _watch(batch, team, timeline)
        except WorkerEnded as trouble:
            print(trouble, file=sys.stderr)
            return 1
        problems = verdict.problems(batch, timeline.events.values(), timeline.killed)
        timeline.sum_up()
        for problem in problems:
            print(f"WRONG: {problem}", file=sys.stderr)
        print(f"The results lie in {settings.RESULTS}", flush=True)
        if not check:
            site.serve()
    return 1 if problems else 0


def _watch(batch: Batch, team: Team, timeline: Timeline) -> None:
    """Show what happens until all have ended; kill the worker that prints, once it is under way."""
    team.start("a")
    team.start("b")
    deadline = time.monotonic() + PATIENCE
    while not timeline.show_news() and time.monotonic() < deadline:
        team.check()
        if timeline.killed is None and batch.under_way():
            holder = timeline.holder(batch.long)
            if holder is not None:
                team.kill(holder)
                timeline.note_kill(holder)
        time.sleep(0.1)
