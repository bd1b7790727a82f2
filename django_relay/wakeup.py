"""When to look: one cheap probe a poll, and LISTEN in between.

The probe is the guarantee; a notification only brings it forward. A listener that cannot listen, or
has lost its session, costs no more than the poll interval.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from .connection import Bookkeeping
from .transitions import CHANNEL, Quarantine, Session

logger = logging.getLogger("django_relay.worker")

#: How long a flood of notifications is gathered into one, in seconds.
COALESCE = 0.01

# Locks nothing: what there is to do, in one round trip. Each part is one index look-up (a queue),
# but for the leases, which are as few as the jobs that run. They are sorted and cut to one row so
# that an index is the only cheap way: a plain EXISTS, planned with statistics in which most jobs
# are ready, reads through all finished ones. Times at the calendar's edges are cut to a day. What
# is in quarantine is due in vain.
PROBE = """
SELECT
  CASE WHEN %(queues)s::text[] IS NULL THEN EXISTS (
    SELECT 1 FROM (
      SELECT 1 FROM django_relay_job WHERE state = 'ready' ORDER BY queue, (-priority), id LIMIT 1
    ) AS head
  ) ELSE EXISTS (
    SELECT 1 FROM unnest(%(queues)s::text[]) AS q(name) CROSS JOIN LATERAL (
      SELECT 1 FROM django_relay_job
      WHERE state = 'ready' AND queue = q.name
      ORDER BY (-priority), id LIMIT 1
    ) AS head
  ) END,
  (
    SELECT EXTRACT(EPOCH FROM GREATEST(
      LEAST(min(run_after), statement_timestamp() + interval '1 day'),
      statement_timestamp() - interval '1 day'
    ) - clock_timestamp())::float8
    FROM django_relay_job WHERE state = 'scheduled' AND id {among}
  ),
  (
    SELECT EXTRACT(EPOCH FROM min(expires_at) - clock_timestamp())::float8
    FROM django_relay_lease WHERE job_id {among}
  ),
  COALESCE((
    SELECT min(start_before) FROM django_relay_job
    WHERE start_before IS NOT NULL AND state IN ('blocked', 'scheduled', 'ready')
      AND id {among}
  ) <= statement_timestamp(), false),
  EXISTS (
    SELECT 1 FROM (
      SELECT queue FROM django_relay_job
      WHERE state = 'ready' AND losses > 0
      ORDER BY queue, (-priority), id
    ) AS suspect
    WHERE %(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[])
  )
"""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a probe found: something ready, seconds to the next due time and lease end, something
    that has not started in time, and something ready that has cost a process."""

    ready: bool
    next_due: float | None
    next_end: float | None
    expiring: bool
    suspects: bool


def probe(
    connection: Session, queues: Sequence[str] | None, quarantine: Quarantine | None = None
) -> Outlook:
    """Look whether ``queues`` (None: any) have something ready, and what is due next."""
    condition, among = (quarantine or Quarantine()).among()
    values = {"queues": None if queues is None else list(queues), **among}
    with connection.cursor() as cursor:
        cursor.execute(PROBE.format(among=condition), values)
        return Outlook(*cursor.fetchone())


class Listener(threading.Thread):
    """Listens for notifications of its queues and calls ``wake``; comes back by itself."""

    def __init__(
        self, connection: Bookkeeping, queues: Sequence[str] | None, wake: Callable[[], None]
    ) -> None:
        super().__init__(name="relay-listener", daemon=True)
        self.connection = connection
        self._queues = None if queues is None else frozenset(queues)
        self._wake = wake
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Stop listening, within a few seconds and without being waited for."""
        self._stopped.set()

    def run(self) -> None:
        """Listen until stopped; after each break look once, since notifications may be lost."""
        pause, told = 0.2, False
        while not self._stopped.is_set():
            try:
                with self.connection.cursor() as cursor:
                    cursor.execute(f"LISTEN {CHANNEL}")
                    session = self.connection.session()
                self._wake()
                pause, told = 0.2, False
                while not self._stopped.is_set():
                    self._hear(session)
            except Exception as error:  # whatever it is, polling goes on and listening comes back
                self.connection.close()
                if not told:
                    logger.info("not listening (%s); polling goes on", type(error).__name__)
                    told = True
                self._stopped.wait(pause)
                pause = min(pause * 2, 10.0)
        with contextlib.suppress(psycopg.Error):
            self.connection.close()

    def _hear(self, session: psycopg.Connection[Any]) -> None:
        """Wake at the first notification at once, and for a flood of them at most each 10 ms."""
        heard = self._ours(session.notifies(timeout=5.0, stop_after=1))
        if heard is None:
            # Five silent seconds: make sure that the session is still there.
            with self.connection.cursor() as cursor:
                cursor.execute("SELECT 1")
        while heard:
            self._wake()
            self._stopped.wait(COALESCE)
            heard = self._ours(session.notifies(timeout=0))

    def _ours(self, notifications: Iterable[psycopg.Notify]) -> bool | None:
        payloads = [each.payload for each in notifications]
        if not payloads:
            return None
        return self._queues is None or not self._queues.isdisjoint(payloads)
