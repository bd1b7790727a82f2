"""Shows in the terminal what happens to the jobs, one calm line an event.

The events are read from the database through the ORM, as any page or script could do. They are
told apart by id and not by "newer than the last", since transactions may commit out of order.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from django.db import connection

from django_relay.models import Event, Job
from django_relay.states import FINAL

if TYPE_CHECKING:
    from datetime import datetime

    from .batch import Batch
    from .workers import Team

GREEN, YELLOW, RED, MAGENTA = "32", "33", "31", "35"
COLOURS = {
    "succeeded": GREEN,
    "retried": YELLOW,
    "rescued": MAGENTA,
    "failed": RED,
    "refused": RED,
    "KILLED": RED,
}


class Timeline:
    """What was seen so far, by the database's clock."""

    def __init__(self, batch: Batch, team: Team) -> None:
        self._batch = batch
        self._team = team
        self._began = Event.objects.filter(job_id__in=batch.names).earliest("at").at
        self._last = self._began
        self._coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self.events: dict[int, Event] = {}
        self.killed: str | None = None

    def show_news(self) -> bool:
        """Print the events that are new; return whether every job has ended."""
        # Asked first: what ended by now has its events in what is read next.
        ended = not Job.objects.filter(id__in=self._batch.names).exclude(state__in=FINAL).exists()
        known = list(self.events)
        fresh = Event.objects.filter(job_id__in=self._batch.names).exclude(id__in=known)
        for event in fresh.order_by("at", "id"):
            self.events[event.pk] = event
            self._last = max(self._last, event.at)
            if event.kind != "enqueued":
                self._show(event)
        return ended

    def holder(self, job: int) -> str | None:
        """Return the name of the worker that runs the job, as far as was seen."""
        seen = [event for event in self.events.values() if event.job_id == job]
        last = max(seen, key=lambda event: event.pk, default=None)
        if last is None or last.kind != "claimed":
            return None
        return self._team.member_of(last.worker)

    def note_kill(self, name: str) -> None:
        """Print that a worker was killed, when it was, and remember which."""
        self.killed = name
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            self._line(cursor.fetchone()[0], f"worker {name}", "KILLED", "with SIGKILL, in mid-job")

    def sum_up(self) -> None:
        ended = [event for event in self.events.values() if event.kind == "succeeded"]
        seconds = (self._last - self._began).total_seconds()
        print(f"\n{len(ended)} of {len(self._batch.names)} jobs succeeded in {seconds:.1f} s.")

    def _show(self, event: Event) -> None:
        worker = f"worker {self._worker(event)}" if event.worker else ""
        data = event.data or {}
        if event.kind == "rescued":
            worker = f"from {worker}: {data.get('why', 'lost')}"
        elif "error" in data:
            name = data["error"]["class"].rpartition(".")[2]
            worker = f"{worker}: {name}: {data['error']['message']}"
        self._line(event.at, self._batch.names[event.job_id], event.kind, worker)

    def _worker(self, event: Event) -> str:
        """Return ``a/1``: the process by the name we gave it, and which of its children."""
        whole, _, child = event.worker.rpartition("/")
        return f"{self._team.member_of(event.worker) or whole}/{child}"

    def _line(self, at: datetime, subject: str, kind: str, rest: str) -> None:
        seconds = (at - self._began).total_seconds()
        shown = f"{kind:<10}"
        if self._coloured and kind in COLOURS:
            shown = f"\x1b[{COLOURS[kind]}m{shown}\x1b[0m"
        print(f"{seconds:7.2f} s  {subject:<14}{shown} {rest}".rstrip(), flush=True)
