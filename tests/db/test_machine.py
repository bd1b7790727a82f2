"""Transitions in any order against a model of the queue, on a real PostgreSQL, one at a time.

After each the tables hold what the model holds: every job, its counters, its lease and the kinds of
its events. The choices are the same in every run, and no clock is waited for: rows are aged.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from django_relay.states import FINAL, WAITING, State

from .acts import HOMELESS, Act, Acts, rows
from .model import Job
from .stage import Stage

#: Bounded and the same every time; a slow machine is no failure.
EXPLORED = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

ANY = frozenset(State)
SEEDS = st.integers(0, 2**32 - 1)
#: What may be done, how often next to the others, and the states of which one must be there.
STEPS: dict[str, tuple[int, frozenset[State]]] = {
    "claim": (8, frozenset({State.READY})),
    "settle": (8, ANY),
    "renew": (4, ANY),
    "end_leases": (4, frozenset({State.RUNNING})),
    "rescue_expired": (3, frozenset({State.RUNNING})),
    "rescue_child": (2, frozenset({State.RUNNING})),
    "ask_to_stop": (2, frozenset({State.RUNNING})),
    "interrupt_often": (1, frozenset({State.RUNNING})),
    "come_due": (3, frozenset({State.SCHEDULED})),
    "promote": (1, frozenset({State.SCHEDULED})),
    "come_late": (1, WAITING),
    "expire": (1, WAITING),
    "mend": (1, ANY),
    "prune": (1, FINAL),
    "cancel": (2, ANY),
    "requeue": (3, FINAL),
    "reschedule": (1, WAITING),
    "move": (1, WAITING),
    "enqueue": (4, ANY),
}
#: No more jobs that have not finished: others would do nothing but lie there.
MOST = 5


class Queue(RuleBasedStateMachine):
    """One session that does everything."""

    stage: Stage

    def __init__(self) -> None:
        super().__init__()
        self.acts = Acts(self.stage)

    def do(self, act: Act) -> None:
        note(act.name)
        act.judge(self.acts.model, act.ask(self.stage.db))

    @initialize(seed=SEEDS)
    def begin(self, seed: int) -> None:
        dice = Random(seed)
        for _ in range(4):
            self.do(self.acts.enqueue(dice))
        self.do(self.acts.claim(dice))

    @rule(seed=SEEDS)
    def step(self, seed: int) -> None:
        dice = Random(f"{seed} {len(self.acts.tokens)} {len(self.acts.model.jobs)}")
        seen = {job.state for job in self.acts.model.jobs.values()}
        fitting = {name: often for name, (often, of) in STEPS.items() if of & (seen or ANY)}
        if len(self.acts.model.seen(*WAITING, State.RUNNING)) >= MOST:
            del fitting["enqueue"]
        (name,) = dice.choices(list(fitting), list(fitting.values()))
        if (ageing := getattr(self, name, None)) is not None:
            ageing(dice)
        else:
            self.do(getattr(self.acts, name)(dice))

    def some(self, dice: Random, *states: State) -> Job:
        return dice.choice(self.acts.model.seen(*states))

    def end_leases(self, dice: Random) -> None:
        running = [job.job_id for job in self.acts.model.seen(State.RUNNING)]
        self.acts.end_leases(dice.sample(running, dice.randint(1, len(running))))

    def ask_to_stop(self, dice: Random) -> None:
        self.do(self.acts.cancel(dice, [self.some(dice, State.RUNNING).job_id]))

    def interrupt_often(self, dice: Random) -> None:
        """Let a job have been interrupted as often as it may, but for once."""
        job = self.some(dice, State.RUNNING)
        job.interruptions = 49
        self.stage.set(job.job_id, interruptions=49)

    def come_due(self, dice: Random) -> None:
        self.acts.come_due([job.job_id for job in self.acts.model.seen(State.SCHEDULED)])
        self.do(self.acts.promote(dice))

    def come_late(self, dice: Random) -> None:
        self.acts.come_late([self.some(dice, *WAITING).job_id])

    @invariant()
    def the_tables_hold_what_the_model_holds(self) -> None:
        assert self.acts.found() == rows(self.acts.model)

    def teardown(self) -> None:
        assert self.stage.all(HOMELESS) == []
        for job_id in self.acts.model.jobs:
            self.stage.check_history(job_id)


@pytest.mark.slow
def test_transitions_in_any_order_do_what_the_model_does(stage: Stage) -> None:
    machine = type("Queue", (Queue,), {"stage": stage})
    run_state_machine_as_test(machine, settings=EXPLORED)  # type: ignore[no-untyped-call]
