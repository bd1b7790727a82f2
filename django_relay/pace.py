"""How long the jobs of a child take, and what follows from it.

Short jobs are fetched ahead and their endings gathered, since a statement costs more than they do;
long ones are neither. Values only: no lock, no thread, no SQL.
"""

from __future__ import annotations

import time

#: Jobs are fetched ahead only while handlers take less than this on average, in seconds.
SHORT = 0.1
#: What handlers took so long ago says nothing of the next ones, in seconds.
FRESH = 0.5
#: The longest that an ending is kept back for others to join it, in seconds.
GATHER = 0.02
#: Handlers of less than this are over before anybody could tell them apart, in seconds.
MOMENT = 0.005
#: Of handlers of less than this twice as many are fetched ahead, in seconds.
QUICK = 0.02
#: A statement that moves fewer jobs costs the server more for itself than for them.
BATCH = 16
#: After a claim that came back short, the next one waits this long, in seconds.
COALESCE = 0.015
#: The longest that a child keeps from claiming whose jobs go back again and again, in seconds.
ABSTAIN = 4.0


class Pace:
    """The pace of one child. ``prefetch`` is how many jobs to fetch ahead, or None for as many as
    there are slots, for few slots twice as many of quick ones: while jobs are short, and the last
    claim came back full. Where it found fewer, others may have free slots; and so they may until a
    handler has ended since: what it brought may be long, or the next is another child's."""

    def __init__(self, prefetch: int | None) -> None:
        self._prefetch = prefetch
        self._average, self._ran, self._ran_at = 1.0, 0, 0.0
        self._full = self._ended = False
        #: How long to keep from claiming since jobs went back last, in seconds; 0: none has.
        self._in_vain = 0.0
        self._not_before = 0.0

    def ran(self, seconds: float) -> None:
        """A handler has ended after so long."""
        if self._in_vain:
            self._in_vain = self._not_before = 0.0
        now, self._ended = time.monotonic(), True
        self._ran = 1 if now - self._ran_at > FRESH else self._ran + 1
        self._ran_at = now
        self._average += (seconds - self._average) / min(self._ran, 8)

    def fetched_in_vain(self) -> None:
        """Jobs had to go back that no slot began: fetch none ahead before a handler has ended, or a
        child whose slots run long jobs would keep others' from free slots elsewhere. Each time in a
        row wait twice as long for a claim: slots that seem free may be those of a blocked loop."""
        self._in_vain = min(2 * self._in_vain or ABSTAIN / 8, ABSTAIN)
        self._not_before = time.monotonic() + self._in_vain

    def claimed(self, *, full: bool) -> None:
        """A claim was answered; after a short one, jobs that come one by one are let gather."""
        self._full, self._ended = full, False
        self._not_before = 0.0 if full else time.monotonic() + COALESCE

    @property
    def pause(self) -> float:
        """In how many seconds the next claim may be sent while something is in hand."""
        return self._not_before - time.monotonic()

    def ahead(self, slots: int) -> int:
        """How many jobs may be claimed beyond the free ones of so many ``slots``."""
        if self._in_vain:
            return 0
        if self._prefetch is None:
            return self._short(slots)
        return min(self._prefetch, slots)

    def _short(self, slots: int) -> int:
        sure = self._full and self._ended and time.monotonic() - self._ran_at <= FRESH
        if not sure or self._average >= SHORT:
            return 0
        return max(slots, min(2 * slots, BATCH)) if self._average < QUICK else slots

    def gather(self, *, waiting: bool, looking: bool) -> float:
        """For how many seconds an ending may wait for others while handlers are short: as long as
        one takes where jobs are ``waiting`` for a slot here. Else until a claim may come, though
        not at all where we are ``looking`` and may claim; of jobs of a moment as long as those."""
        if self._average >= SHORT:
            return 0.0
        if waiting:
            return min(max(self._average, MOMENT), GATHER)
        if self._average < MOMENT:
            return MOMENT
        return 0.0 if looking and self.pause <= 0 else COALESCE
