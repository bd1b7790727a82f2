"""The parent process: starts children, hears what they run, sees them die, passes on signals.

It never runs a user's task. Its main thread touches no database, so it always hears a signal, a
child's report and a death; heartbeat, maintenance and listener have threads and sessions of their
own. Death is what ``waitpid`` says, never a closed pipe, which a handler's own child may hold open.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from . import __version__
from .connection import Bookkeeping
from .heartbeat import Heartbeat, Report, Reports
from .interrupts import Interrupts
from .lanes import Lanes, lane
from .maintenance import Dead, Identity, Maintenance
from .messages import NONSENSE, Message, Plan
from .nursery import Nursling, reap, spawn
from .wakeup import Listener, Outlook

logger = logging.getLogger("django_relay.worker")

#: Exit codes: stopped as asked; a second signal.
STOPPED, FORCED = 0, 3
#: A child is killed so long past its grace, in seconds.
OVERTIME = 5.0
#: How often, in seconds, children are heard under load, and looked after at the least.
HEAR, LOOK = 0.005, 0.05


class Supervisor:
    """One ``relay_worker``. ``run`` returns the exit code."""

    def __init__(
        self,
        plan: Plan,
        *,
        processes: int,
        grace: float,
        silence: float,
        drain: bool = False,
        heartbeat_file: Path | None = None,
    ) -> None:
        self._plan = plan
        self._processes = processes
        self._grace = grace
        self._silence = silence
        self._drain = drain
        self._heartbeat_file = heartbeat_file
        self._children: dict[str, Nursling] = {}
        self._number, self._not_before = 0, 0.0
        self.reports = Reports()
        self.outcomes: Counter[str] = Counter()
        self._interrupts = Interrupts()
        self._lanes = Lanes(processes)
        self._stop_at: float | None = None
        self._ticked = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._heartbeat = Heartbeat(
            self._session("heartbeat", plan.lease / 5), self.reports, self.tell, lease=plan.lease
        )
        self._maintenance = self._maintain()
        listening = self._session("listener", 5.0)
        self._listener = Listener(listening, plan.queues, self.wake) if plan.notify else None

    def _maintain(self) -> Maintenance:
        identity = Identity(
            worker=self._plan.worker,
            queues=self._plan.queues,
            processes=self._processes,
            slots=self._processes * self._plan.slots,
            version=__version__,
        )
        return Maintenance(
            self._session("maintenance"),
            identity,
            poll=self._plan.poll,
            notify=self._plan.notify,
            # All: what is still there a poll later, the one that was woken cannot take.
            wake=lambda: self.tell(None, {"kind": "wake"}),
            hungry=self.hungry,
            looked=self.looked,
        )

    def _session(self, role: str, patience: float = float("inf")) -> Bookkeeping:
        # Patience shorter than a lease: a renewal lost in a silent network leaves time for another.
        return Bookkeeping(
            self._plan.database,
            pooled=self._plan.pooled,
            patience=min(patience, self._plan.patience),
            name=f"{role} {self._plan.worker}",
        )

    # What the threads call -----------------------------------------------------------------------

    def tell(self, child: str | None, message: Message) -> None:
        """Say something to one child, or to all. Never waits for them."""
        for name, nursling in list(self._children.items()):
            if child in (None, name):
                nursling.say(message)

    def wake(self, *, lanes: bool = False, tried: Sequence[str] = ()) -> None:
        """Have the child, or lane, that hears and runs the least look for jobs, but for those that
        were ``tried``. It has the next one woken if it finds many, or has no room."""
        kin = [c for c in list(self._children.values()) if c.usable and c.lane is lanes]
        if untried := [c for c in kin if c.name not in tried]:
            least = min(untried, key=lambda c: (c.mute, self.reports.count(c.name)))
            least.say({"kind": "wake", "alone": lanes, "tried": [*tried, least.name]})

    def hungry(self) -> bool:
        """Whether a slot may be free somewhere; nobody knows which kind the next job is."""
        slots = max(self._plan.slots, self._plan.async_slots)
        return self._stop_at is None and any(
            c.usable and not c.lane and self.reports.count(c.name) < slots
            for c in list(self._children.values())
        )

    def looked(self, outlook: Outlook) -> None:
        """A pass over the database went well: say so outside; when draining, see if it is over."""
        if self._heartbeat_file is not None and time.monotonic() - self._ticked < 5.0:
            with contextlib.suppress(OSError):  # a full disk; whoever looks at the file will see
                self._heartbeat_file.touch()
        self._lanes.looked(suspects=outlook.suspects)
        if outlook.suspects:
            self.wake(lanes=True)
        if self._drain and not outlook.ready and (outlook.next_due is None or outlook.next_due > 0):
            children = list(self._children.values())
            if children and all(c.ready and c.idle for c in children):
                self._interrupts.drained()

    # ---------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Work until told to stop; return STOPPED or FORCED."""
        self._selector.register(self._interrupts.descriptor, selectors.EVENT_READ, None)
        self._interrupts.take()
        threads = [t for t in (self._heartbeat, self._maintenance, self._listener) if t]
        for thread in threads:
            thread.start()
        try:
            while not self._over():
                self._tick()
            return FORCED if self._interrupts.force else STOPPED
        finally:
            for child in self._children.values():
                # After a second signal. Its jobs are given back if the database answers at once.
                child.kill()
                dead = Dead(child.name, self.reports.bury(child.name), self._interrupts.force)
                self._maintenance.bury(dead)
            for thread in threads:
                thread.stop()
            self._maintenance.join(timeout=0.5 if self._interrupts.force else OVERTIME)
            self._interrupts.give_back()

    def _over(self) -> bool:
        return self._interrupts.force or (self._stop_at is not None and not self._children)

    def _tick(self) -> None:
        looked = self._ticked
        for key, _ in self._selector.select(timeout=0.1):
            if key.data is None:
                looked = 0.0
                if b"d" in self._interrupts.read() and self._stop_at is None:
                    self._stop()
            else:
                self._hear(key.data)
        if time.monotonic() - looked < LOOK:
            time.sleep(HEAR)  # what children say may gather: they wait for no answer
            return
        self._ticked = time.monotonic()
        for child in self._children.values():
            child.channel.flush()
        for thread in (self._heartbeat, self._maintenance, self._listener):
            if thread is None:
                continue
            thread.connection.unstick()
            if not thread.is_alive():
                raise RuntimeError(f"{thread.name} has died; a worker without it is none")
        self._reap()
        self._see_to_children()

    # Children ------------------------------------------------------------------------------------

    def _see_to_children(self) -> None:
        now = time.monotonic()
        if self._interrupts.stop and self._stop_at is None:
            self._stop()
        if self._stop_at is not None:
            if now > self._stop_at + OVERTIME:
                for child in self._children.values():
                    child.kill()
            return
        for child in self._children.values():
            if child.silent_for(now) > self._silence:
                logger.error("child %s has been silent for too long; it is killed", child.name)
                child.kill()
            elif child.stopped and child.silent_for(now) > self._plan.lease:
                child.leaving = True  # it holds nothing any more; another takes its place
        self._keep_up(now)

    def _keep_up(self, now: float) -> None:
        """Have as many children as there should be, and lanes while they are needed."""
        staying = [child for child in self._children.values() if not child.leaving]
        lanes = [child for child in staying if child.lane]
        for superfluous in self._lanes.superfluous(lanes):
            superfluous.leaving = True
            superfluous.say({"kind": "finish", "grace": None})
        if now < self._not_before:
            return
        for _ in range(self._processes + len(lanes) - len(staying)):
            if not self._interrupts.stop:
                self._spawn(self._plan)
        if self._lanes.another(lanes):
            self._spawn(lane(self._plan))
        if self._lanes.changed(lanes):
            self.tell(None, {"kind": "lanes", "open": self._lanes.open})

    def _spawn(self, plan: Plan) -> None:
        self._number += 1
        try:
            child = spawn(replace(plan, worker=f"{plan.worker}/{self._number}"))
        except OSError as error:
            self._not_before = time.monotonic() + 1.0
            logger.error("no child could be started: %s", error)
            return
        self._children = {**self._children, child.name: child}
        self._selector.register(child.channel, selectors.EVENT_READ, child)

    def _stop(self) -> None:
        """Take nothing more; what runs has its grace, with renewals going on."""
        self._stop_at = time.monotonic() + self._grace
        running = sum(self.reports.count(name) for name in self._children)
        logger.info("stopping: %d running, %g s of grace", running, self._grace)
        self.tell(None, {"kind": "finish", "grace": self._grace})

    def _hear(self, child: Nursling) -> None:
        try:
            messages = child.channel.receive()
            if messages is None:
                # Closed: a handler may have done that. Whether it lives, waitpid will tell.
                self._selector.unregister(child.channel)
                child.closed = True
                return
            for message in messages:
                self._obey(child, message)
        except NONSENSE:
            # A handler may have written into the pipe. What such a child says cannot be trusted.
            logger.error("child %s speaks nonsense; it is killed", child.name)
            child.kill()

    def _obey(self, child: Nursling, message: Message) -> None:
        child.heard = time.monotonic()
        kind = message["kind"]
        if kind == "begun":
            child.idle = False
            self.reports.add([Report(child.name, *begun) for begun in message["jobs"]])
        elif kind == "ended":
            self.reports.remove(message["tokens"])
            self.outcomes.update(message["kinds"])
            self._maintenance_may_sleep()
        elif kind == "alive":
            child.idle = message["idle"]
            if self._drain and child.idle:
                self._maintenance.poke()
        elif kind == "more":
            self.wake(lanes=message["alone"], tried=message.get("tried", [child.name]))
        elif kind == "lane":
            child.lane = True  # another takes its place
        elif kind == "ready":
            child.ready = True
            self._maintenance_may_sleep()
            child.say({"kind": "lanes", "open": self._lanes.open})
        elif kind in ("spent", "reload"):
            child.leaving = True
            if kind == "reload":
                child.say({"kind": "finish", "grace": self._grace})

    def _maintenance_may_sleep(self) -> None:
        """A slot is free again: if enqueues were told not to notify, they should from now on."""
        if self._maintenance.saturated and self.hungry():
            self._maintenance.poke()

    def _reap(self) -> None:
        for name, change in reap(self._children):
            child = self._children[name]
            if change in ("stopped", "continued"):
                child.stopped = change == "stopped"
                child.heard = time.monotonic()
                self.reports.freeze(name, frozen=child.stopped)
                logger.warning("child %s was %s", name, change)
                if child.leaving:
                    child.say({"kind": "finish", "grace": self._grace})
            else:
                self._bury(child, change)

    def _bury(self, child: Nursling, how: str) -> None:
        if not child.closed:
            # What it said last may still be under way in the pipe.
            with contextlib.suppress(*NONSENSE):
                while messages := child.channel.receive():
                    for message in messages:
                        self._obey(child, message)
            self._selector.unregister(child.channel)
        child.channel.close()
        self._children = {n: c for n, c in self._children.items() if n != child.name}
        reports = self.reports.bury(child.name)
        asked = self._stop_at is not None or child.leaving
        if not asked or reports:
            logger.error("child %s %s with %d running", child.name, how, len(reports))
        if not child.ready:
            self._not_before = time.monotonic() + 1.0
        self._maintenance.bury(Dead(child.name, reports, interrupted=child.killed and asked))
