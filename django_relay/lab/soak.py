"""A random schedule of faults under load, and at the end the count of what was lost.

Workers are killed (their child, their supervisor, all of it), frozen past their lease and woken,
asked to stop and replaced; sessions are terminated, and the server is restarted where that is
allowed. The schedule follows from a seed, which is told; the machine decides the rest.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import asdict, dataclass, field

from django_relay import recording

from . import faults, verdict
from .fleet import Fleet, Ship
from .load import Load
from .restart import account, await_end
from .result import Result
from .sampling import Sampler
from .stage import Stage

#: What may happen, and how often in comparison.
CHANCES = {
    "kill_child": 4,
    "kill_supervisor": 2,
    "kill_group": 3,
    "freeze": 3,
    "freeze_child": 2,
    "stop": 3,
    "sessions": 2,
    "fast": 1,
    "immediate": 1,
}
WORDS = {
    "kill_child": "SIGKILL to one child",
    "kill_supervisor": "SIGKILL to the supervisor",
    "kill_group": "SIGKILL to the whole worker",
    "freeze": "SIGSTOP to the whole worker",
    "freeze_child": "SIGSTOP to one child",
    "stop": "SIGTERM to the worker",
    "sessions": "the workers' sessions terminated",
    "fast": "PostgreSQL restarted (fast)",
    "immediate": "PostgreSQL restarted (immediate)",
}
OF_SERVER = frozenset({"fast", "immediate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """``lease`` is in seconds; ``workers`` are kept alive, each with two processes of two slots."""

    minutes: float
    lease: float
    workers: int
    seed: int
    only_sessions: bool


@dataclass(slots=True)
class Storm:
    """The faults so far, and who is frozen until when."""

    stage: Stage
    fleet: Fleet
    wishes: Wishes
    chance: random.Random
    restart: faults.Restart | None
    marks: list[tuple[float, str, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    frozen: list[tuple[float, Ship]] = field(default_factory=list)

    def blow(self, seconds: float) -> None:
        """Strike again and again for so long."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            self._thaw(now)
            self._replace()
            self._strike()
            pause = time.monotonic() + self.chance.uniform(0.5, 3.0)
            while time.monotonic() < min(pause, end):
                self._thaw(time.monotonic())
                time.sleep(0.05)
        self._thaw(float("inf"))
        self._replace()

    def _thaw(self, now: float) -> None:
        for until, ship in [each for each in self.frozen if each[0] <= now]:
            self.frozen.remove((until, ship))
            if not ship.ended:
                self._mark("SIGCONT to the worker", ship)
                faults.wake(ship)

    def _replace(self) -> None:
        for _ in range(self.wishes.workers - len(self.fleet.alive)):
            self.fleet.start("--processes", "2", "--slots", "2")

    def _mark(self, what: str, ship: Ship | None) -> None:
        if ship is not None and not ship.id:
            self.stage.place.patiently(self.fleet.identify, None)
        # One that is hit before it ever waited for a job has run none.
        whom = "" if ship is None else ship.id or "a worker that had not begun"
        self.marks.append((self.stage.clock.now(), what, whom))

    def _strike(self) -> None:
        allowed = {k: n for k, n in CHANCES.items() if self.restart or k not in OF_SERVER}
        kind = self.chance.choices(list(allowed), list(allowed.values()))[0]
        awake = [ship for ship in self.fleet.alive if not ship.frozen]
        ship = self.chance.choice(awake) if awake else None
        if kind == "sessions":
            self._mark(WORDS[kind], None)
            faults.terminate_sessions(self.fleet)
        elif kind in OF_SERVER and self.restart is not None:
            self._mark(WORDS[kind], None)
            self.restart(kind)
            faults.await_server(self.stage.place, within=60)
        elif ship is not None:
            self._mark(WORDS[kind], ship)
            getattr(faults, kind)(self.fleet, ship, self.chance)
            if ship.frozen:
                until = time.monotonic() + self.wishes.lease * self.chance.uniform(0.5, 2.5)
                self.frozen.append((until, ship))
        else:
            return
        self.counts[kind] += 1


def run(stage: Stage, wishes: Wishes) -> Result:
    """Soak for so many minutes, let all come to an end, and judge."""
    stage.say(f"Seed {wishes.seed}.")
    chance = random.Random(wishes.seed)  # noqa: S311  # a schedule of faults is no secret
    restart = None if wishes.only_sessions else faults.restarter()
    flags = ["--lease", f"{wishes.lease:g}", "--grace", "0.5", "--poll", "0.5"]
    after = stage.place.last()
    load = Load(stage.place, random.Random(wishes.seed), pause=0.1, longest=1.0)  # noqa: S311
    with stage.fleet(*flags) as workers, Sampler(stage.place) as sampler:
        storm = Storm(stage, workers, wishes, chance, restart)
        for _ in range(wishes.workers):
            workers.start("--processes", "2", "--slots", "2")
        workers.ready()
        with load:
            storm.blow(60 * wishes.minutes)
        stage.say(f"{storm.counts.total()} faults, {len(load.accepted)} jobs; waiting for the end.")
        await_end(stage, workers, after, within=300 + 10 * wishes.lease)
        found = verdict.reach(stage.place, workers.ledger, after, load.accepted)
        seen = sampler.seen
    figures = found.figures | {
        "accepted": len(load.accepted),
        "enqueues_without_answer": load.unanswered,
        "faults": dict(sorted(storm.counts.items())),
        "seed": wishes.seed,
    }
    made = recording.record(
        stage.place.connection,
        verdict.eventful(stage.place, after),
        experiment="soak",
        seen=seen,
        marks=storm.marks,
        settings=asdict(wishes) | {"restarts_allowed": restart is not None},
        figures=figures,
    )
    told = ", ".join(f"{n} x {WORDS[kind]}" for kind, n in sorted(storm.counts.items()))
    lines = (f"{wishes.minutes:g} minutes, seed {wishes.seed}. Faults: {told}.", account(figures))
    return Result(made, lines, found.problems)
