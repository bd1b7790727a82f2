"""Renew what the children reported, from the supervisor's process and on its own connection.

A handler that holds its process's GIL cannot starve this. What is not reported is not renewed: jobs
fetched ahead, and those of a child that is stopped or gone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from . import logs, transitions
from .connection import Bookkeeping
from .context import boot_time
from .transitions import Held

logger = logging.getLogger("django_relay.worker")


@dataclass(frozen=True, slots=True)
class Report:
    """A handler that a child said it starts; ``began`` is on the monotonic clock."""

    child: str
    job_id: int
    token: str
    began: float
    budget: float | None

    @property
    def held(self) -> Held:
        """The lease, with how long its handler has run."""
        return Held(self.job_id, self.token, time.monotonic() - self.began, self.budget)


class Reports:
    """The handlers that run now, by token, as the children said. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_token: dict[str, Report] = {}
        self._frozen: set[str] = set()

    def add(self, reports: Iterable[Report]) -> None:
        """Handlers start."""
        with self._lock:
            for report in reports:
                self._by_token[report.token] = report

    def remove(self, tokens: Iterable[str]) -> None:
        """These leases are over."""
        with self._lock:
            for token in tokens:
                self._by_token.pop(token, None)

    def bury(self, child: str) -> list[Report]:
        """The child is gone: forget its reports and return them."""
        with self._lock:
            gone = [report for report in self._by_token.values() if report.child == child]
            for report in gone:
                del self._by_token[report.token]
            self._frozen.discard(child)
            return gone

    def freeze(self, child: str, *, frozen: bool) -> None:
        """The child was stopped, or goes on."""
        with self._lock:
            (self._frozen.add if frozen else self._frozen.discard)(child)

    def count(self, child: str) -> int:
        """How many handlers the child runs."""
        with self._lock:
            return sum(report.child == child for report in self._by_token.values())

    def renewable(self) -> list[Report]:
        """Return what is to be renewed: all but what stopped children hold."""
        with self._lock:
            return [r for r in self._by_token.values() if r.child not in self._frozen]


#: Tells a child (by name; None: all of them) something.
Tell = Callable[[str | None, dict[str, object]], None]


class Heartbeat(threading.Thread):
    """Renews each quarter of a lease (at most five seconds apart) and beats to the children.

    The beat is the sign that this process is not frozen; it goes on while the database is away.
    """

    def __init__(
        self, connection: Bookkeeping, reports: Reports, tell: Tell, *, lease: float
    ) -> None:
        super().__init__(name="relay-heartbeat", daemon=True)
        self.connection = connection
        self._reports = reports
        self._tell = tell
        self._lease = lease
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Renew no more."""
        self._stopped.set()

    def run(self) -> None:
        """Beat until stopped; an absent database is asked again at once, not an interval later."""
        interval, tick = min(self._lease / 4, 5.0), min(self._lease / 10, 1.0)
        due, told = time.monotonic() + interval, None
        while not self._stopped.wait(tick):
            self._tell(None, {"kind": "beat"})
            if time.monotonic() < due:
                continue
            try:
                why = self._renew()
                due = time.monotonic() + interval
            except Exception as error:  # whatever it is, the leases need the next renewal
                why = logs.first_line(error)
            if why and why != told:
                logger.warning("leases not renewed: %s", why)
            told = why
        self.connection.close()

    def _renew(self) -> str | None:
        """Renew, tell the children, and return what the database said of a lease it rejected."""
        reports = self._reports.renewable()
        if not reports:
            return None
        # From before the request: the new end is at least this and a lease.
        sent = boot_time()
        answer = transitions.renew(
            self.connection, [report.held for report in reports], lease=self._lease
        )
        self._reports.remove(answer.gone)
        for child in {report.child for report in reports}:
            ours = {report.token for report in reports if report.child == child}
            self._tell(
                child,
                {
                    "kind": "renewed",
                    "sent": sent,
                    "kept": list(ours & answer.kept),
                    "stop": list(ours & answer.stop),
                    "gone": list(ours & answer.gone),
                },
            )
        return answer.rejection
