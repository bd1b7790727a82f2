"""django_relay: one ``relay_worker`` with ``procs`` children of ``slots`` slots each.

Modes are words joined by underscores. ``default`` or none: sync handlers and default flags.
``async``: coroutine handlers; ``aN``: ``--async-slots N``; ``sN``: ``--slots N`` in place of the
driver's; ``pN``: ``--prefetch N``; ``fast``: ``--lease 1``; ``apart``: one worker for each process,
so that one can be killed and another stand by. Example: ``async_a100_p100``.
"""

import re
import sys

import manage  # noqa: F401 - it finds this checkout
import psycopg

FLAGS = {"a": "--async-slots", "s": "--slots", "p": "--prefetch"}
# By the partial indexes, so that counting takes no time beside the work that is measured.
PENDING = """
SELECT (SELECT count(*) FROM django_relay_job WHERE state = 'ready')
     + (SELECT count(*) FROM django_relay_job WHERE state = 'scheduled')
     + (SELECT count(*) FROM django_relay_job WHERE state = 'running')
"""


class Peer:
    """This project, as the driver of the comparison handles it."""

    def __init__(self, url, procs, slots, mode):
        self.url, self.procs, self.slots = url, procs, slots
        self.words = mode.split("_")
        self.handler_procs = procs

    def setup(self):
        """Make the tables, and import the tasks."""
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        import jobs

        prefix = "async_" if "async" in self.words else ""
        names = ("burst", "noop", "sleep2")
        self.tasks = {n: getattr(jobs, prefix + n, getattr(jobs, n)) for n in names}
        self.connection = psycopg.connect(self.url, autocommit=True)

    def workers(self):
        """Return the command lines of the workers."""
        apart = "apart" in self.words
        flags = ["--processes", str(1 if apart else self.procs), "--slots", str(self.slots)]
        flags += ["--lease", "1"] if "fast" in self.words else []
        for word in self.words:
            if found := re.fullmatch(r"([asp])(\d+)", word):
                flags += [FLAGS[found[1]], found[2]]
        command = [sys.executable, "manage.py", "relay_worker", "-v", "0", *flags]
        return [command] * (self.procs if apart else 1)

    def enqueue(self, kind, n):
        """Enqueue one job: a call and a commit."""
        self.tasks[kind].enqueue(n)

    def enqueue_bulk(self, kind, ns):
        """Enqueue many jobs in one call."""
        self.tasks[kind].enqueue_many([(n,) for n in ns])

    def pending(self):
        """Return how many jobs are not finished."""
        return self.connection.execute(PENDING).fetchone()[0]

    def close(self):
        """Close what ``setup`` opened."""
        self.connection.close()
