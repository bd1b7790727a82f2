"""What every supervisor does for the database: promote, rescue, expire, mend. No leader.

Each duty is safe to do at once everywhere, because the statements skip what another has locked. A
pass is timed by what the last one found: the next due time, the next lease end, or the poll.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import psycopg

from . import logs, transitions, wakeup
from .connection import Bookkeeping, is_about_rows
from .heartbeat import Report
from .outcomes import Ending, released
from .wakeup import Outlook

logger = logging.getLogger("django_relay.worker")

#: How often, in seconds, a worker says that it is there, and how often it looks for odd rows: a
#: lease that nobody owns holds up its job, and who claims one job at a time behind it.
ATTEND, MEND = 5.0, 10.0

#: However long the poll, look after so many seconds: after a minute without a word, enqueues do not
#: notify a worker any more.
PRESENT = 30.0

#: At most one line about an absent database in so many seconds.
COMPLAIN = 5.0

#: How long, in seconds, a dead child's leases are looked for.
LINGER = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a worker says of itself."""

    worker: str
    queues: Sequence[str] | None
    processes: int
    slots: int
    version: str


@dataclass(slots=True)
class Dead:
    """A child that ended, the handlers it ran, and whether it was ended to stop the worker."""

    child: str
    reports: list[Report]
    interrupted: bool
    look_until: float | None = None
    #: Tokens whose endings have been presented for it, and answered.
    answered: set[str] = field(default_factory=set)


class Maintenance(threading.Thread):
    """Looks after the database each poll, when something is due, and when a child died.

    ``wake`` is called when something is ready; ``hungry`` tells whether a slot is free; ``looked``
    is called after each pass with what it found.
    """

    def __init__(
        self,
        connection: Bookkeeping,
        identity: Identity,
        *,
        poll: float,
        notify: bool,
        wake: Callable[[], None],
        hungry: Callable[[], bool],
        looked: Callable[[Outlook], None],
    ) -> None:
        super().__init__(name="relay-maintenance", daemon=True)
        self.connection = connection
        self._identity = identity
        self._poll = poll
        self._notify = notify
        self._wake = wake
        self._hungry = hungry
        self._looked = looked
        self._dead: queue.SimpleQueue[Dead] = queue.SimpleQueue()
        self._late: list[Dead] = []
        self._quarantine = transitions.Quarantine()
        self._poked = threading.Event()
        self._stopped = threading.Event()
        self._attended = self._mended = float("-inf")
        self._waiting: bool | None = None

    def bury(self, dead: Dead) -> None:
        """Take back at once what a dead child held."""
        self._dead.put(dead)
        self._poked.set()

    @property
    def saturated(self) -> bool:
        """Whether enqueues were last told that no slot is free here."""
        return self._waiting is False

    def poke(self) -> None:
        """Look now."""
        self._poked.set()

    def stop(self) -> None:
        """Do what is left to do for dead children, say good-bye and end."""
        self._stopped.set()
        self._poked.set()

    def run(self) -> None:
        """Keep at it; an absent database is asked again within a second."""
        pause, told = 0.0, float("-inf")
        while not self._stopped.is_set():
            try:
                delay = self._pass()
                pause = 0.0
            except Exception as error:  # whatever it is, others' jobs need the next pass
                pause = delay = min(max(pause * 2, 0.1), 1.0)
                if pause > 0.2 and time.monotonic() - told >= COMPLAIN:
                    logger.warning("maintenance failed, trying again: %s", logs.first_line(error))
                    told = time.monotonic()
            self._poked.wait(delay)
            self._poked.clear()
        self._leave()

    def _leave(self) -> None:
        for last in (False, True):  # the session may have been ended since the last pass
            try:
                self._bury_dead()
                transitions.leave(self.connection, self._identity.worker)
                break
            except psycopg.Error as error:
                if last:
                    logger.warning("stopped without a good-bye: %s", logs.first_line(error))
        self.connection.close()

    def _pass(self) -> float:
        self._bury_dead()
        now = time.monotonic()
        if now - self._mended >= MEND:
            self._mend()
        self._attend(now)
        outlook = self._do(self._probe())
        logs.noticed(self._quarantine.notices())
        if outlook.ready:
            self._wake()
        self._looked(outlook)
        waits = [
            min(self._poll, PRESENT),
            outlook.next_due,
            outlook.next_end,
            0.05 if self._late else None,
        ]
        # What is over and was left is locked by somebody: look again, but do not spin.
        return min(wait if wait > 0 else 0.05 for wait in waits if wait is not None)

    def _attend(self, now: float) -> None:
        """Say that we are there; at once when we begin to wait, so that enqueues notify."""
        hungry = self._hungry()
        begins = hungry and not self._waiting
        if begins or now - self._attended >= ATTEND:
            who = self._identity
            with _aside("this worker's row was not written"):
                transitions.attend(
                    self.connection,
                    who.worker,
                    queues=who.queues,
                    processes=who.processes,
                    slots=who.slots,
                    version=who.version,
                    waiting=hungry and self._notify,
                )
            self._attended, self._waiting = now, hungry
            if self._hungry() and not hungry:
                self.poke()  # a slot became free meanwhile, when nobody knew that it would be told

    def _do(self, outlook: Outlook) -> Outlook:
        """Do what is due and look again; leave alone what others have locked."""
        if not _due(outlook):
            return outlook
        if outlook.next_due is not None and outlook.next_due <= 0:
            queues = transitions.promote(self.connection, self._quarantine)
            transitions.notify(self.connection, queues)
        if outlook.next_end is not None and outlook.next_end <= 0:
            rescued = transitions.rescue_expired(self.connection, self._quarantine)
            self._rescued(rescued, "its lease ran out")
        if outlook.expiring:
            for job_id in transitions.expire(self.connection, self._quarantine):
                logger.warning("job %s expired: it had not started in time", job_id)
        return self._probe()

    def _probe(self) -> Outlook:
        return wakeup.probe(self.connection, self._identity.queues, self._quarantine)

    def _mend(self) -> None:
        self._mended = time.monotonic()
        rescued, orphans = transitions.mend(self.connection, self._quarantine)
        self._rescued(rescued, "its lease row was missing")
        for job_id in orphans:
            logger.warning("deleted a lease on job %s, which does not run", job_id)
        with _aside("leases outside the calendar were left"):
            for job_id in transitions.straighten_leases(self.connection):
                logger.warning("the lease on job %s had times outside the calendar", job_id)
        with _aside("workers that are gone were left"):
            transitions.forget_silent(self.connection)

    def _bury_dead(self) -> None:
        while True:
            try:
                self._late.append(self._dead.get_nowait())
            except queue.Empty:
                break
        for dead in list(self._late):
            if not self._take_back(dead):
                self._late.remove(dead)

    def _take_back(self, dead: Dead) -> bool:
        """Take back what a dead child holds; tell whether to look again.

        Its last statement may be under way on the server, with a lock on what it holds, or about
        to bring it more; what comes later than ``LINGER`` is left to the end of its lease.
        """
        if dead.look_until is None:
            dead.look_until = time.monotonic() + LINGER
        endings = [
            Ending(report.job_id, report.token, released(), report.held.ran)
            for report in dead.reports
            if dead.interrupted and report.token not in dead.answered
        ]
        if endings:
            dead.answered |= transitions.settle(self.connection, endings).keys()
        begun = [report.token for report in dead.reports]
        rescued = transitions.rescue_child(
            self.connection, dead.child, begun=begun, quarantine=self._quarantine
        )
        self._rescued(rescued, "its process died")
        return time.monotonic() < dead.look_until

    def _rescued(self, jobs: list[transitions.Rescued], why: str) -> None:
        for job in jobs:
            logs.rescued(job, why)
        transitions.notify(self.connection, [job.queue for job in jobs if job.state == "ready"])


@contextlib.contextmanager
def _aside(what: str) -> Iterator[None]:
    """Do what no job hangs on: where the database rejects it, say so and go on."""
    try:
        yield
    except psycopg.Error as error:
        if not is_about_rows(error):
            raise
        logger.warning("%s: %s", what, transitions.said(error))


def _due(outlook: Outlook) -> bool:
    return (
        outlook.expiring
        or (outlook.next_due is not None and outlook.next_due <= 0)
        or (outlook.next_end is not None and outlook.next_end <= 0)
    )
