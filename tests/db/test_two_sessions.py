"""Two sessions at once on a queue in any state, with real locks and real waits, against the model.

The one has done something and not committed; the other comes, and waits, passes by or has done
before the first commits or rolls back; now and then leases run out while it waits. What the tables
then hold, and what both were told, must be the model's after one order of the two, in which the
other may have passed by what the one had its hands on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from django_relay.states import FINAL, WAITING, State

from .acts import HOMELESS, Act, Acts, rows
from .model import Model
from .stage import Stage, wait_for

EXPLORED = settings(
    max_examples=30,
    stateful_step_count=15,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
#: How soon, in seconds, a lease runs out that is to do so while somebody waits.
SOON = 0.15

OWNERS = ["claim", "claim", "settle", "settle", "settle", "renew"]
OTHERS = ["rescue_expired", "rescue_child", "promote", "expire", "mend", "prune"]
PEOPLE = ["cancel", "cancel", "requeue", "reschedule", "move"]
VERBS = [*OWNERS, *OTHERS, *PEOPLE]
#: What may meet over a job, by where it stands.
OF_ONE = {
    WAITING: ["claim", "cancel", "reschedule", "move", "promote", "expire"],
    frozenset({State.RUNNING}): [
        "settle", "settle", "renew", "cancel", "rescue_expired", "rescue_child",
    ],
    FINAL: ["prune", "requeue", "settle"],
}  # fmt: skip
SEEDS = st.integers(0, 2**32 - 1)

#: Whether the other waits for a lock of the one, or pauses because it found one.
STANDS = """
SELECT %(one)s = ANY (pg_blocking_pids(%(other)s)) OR EXISTS (
  SELECT 1 FROM pg_stat_activity
  WHERE pid = %(other)s AND state = 'active' AND query LIKE '%%pg_sleep%%'
)
"""
RUNNING_OUT = """
SELECT count(*) FROM django_relay_lease
WHERE expires_at > clock_timestamp() AND expires_at < clock_timestamp() + interval '1 minute'
"""

Step = Callable[[Model], None]


def unordered(rows: dict[int, tuple[Any, ...]]) -> dict[int, tuple[Any, ...]]:
    """Rows with the kinds of their events counted: two at once may write theirs in any order."""
    return {job_id: (*row[:-1], Counter(row[-1])) for job_id, row in rows.items()}


def after(model: Model, *steps: Step, hidden: frozenset[int] = frozenset()) -> Model | None:
    """The model after some steps, which pass by what is hidden; None where one is not its own."""
    made = deepcopy(model)
    made.hidden = hidden
    try:
        for step in steps:
            step(made)
    except AssertionError:
        return None
    made.hidden = frozenset()
    return made


def subsets(ids: set[int]) -> Iterator[frozenset[int]]:
    """Nothing, or some."""
    chosen = chain.from_iterable(combinations(sorted(ids), n) for n in range(len(ids) + 1))
    return map(frozenset, chosen)


def handled(model: Model, act: Act, step: Step) -> set[int]:
    """The jobs that an act may have its hands on: those it named, and those it changed."""
    ids = set(act.ids)
    for made in (after(model, step), after(model, Model.time_passes, step)):
        if made is not None:
            every = model.jobs.keys() | made.jobs.keys()
            ids |= {each for each in every if model.jobs.get(each) != made.jobs.get(each)}
    return ids & model.jobs.keys()


@dataclass(frozen=True)
class Meeting:
    """Two acts at once: the one, whether it was committed, the other, and whether that waited."""

    one: Act
    answer: Any
    committed: bool
    other: Act
    told: Any
    waited: bool

    def explanations(self, model: Model) -> Iterator[Model]:
        """Yield what may have become of the model, the likeliest first."""
        first = partial(self.one.judge, answer=self.answer)
        last = partial(self.other.judge, answer=self.told)
        passed_by = list(subsets(handled(model, self.one, first)))
        orders: list[tuple[list[Step], list[Step]]] = [([], [])]
        if self.committed:
            orders = [([first], []), ([], [first])]
        for before, behind in orders:
            for begun, later in self._begun(model, before):
                for hidden in passed_by:
                    ended = after(begun, last, hidden=hidden)
                    done = ended and after(ended, *behind, *later)
                    if done is not None:
                        yield done

    def _begun(self, model: Model, before: list[Step]) -> Iterator[tuple[Model, list[Step]]]:
        """The model when the other was judged, and what came later: the end of leases, maybe."""
        time = Model.time_passes
        for steps in ([*before, time], [time, *before]):
            if (begun := after(model, *steps)) is not None:
                yield begun, []
        # Whoever waited has been judged when they had run out.
        if not self.waited and (begun := after(model, *before)) is not None:
            yield begun, [time]


class TwoSessions(RuleBasedStateMachine):
    """``one`` is first and keeps its locks; ``other`` comes between."""

    stage: Stage
    met: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        self.acts = Acts(self.stage)
        self.one = self.stage.connect(autocommit=False)
        self.other = self.stage.connect()

    def alone(self, act: Act) -> None:
        act.judge(self.acts.model, act.ask(self.stage.db))

    @initialize(seed=SEEDS)
    def begin(self, seed: int) -> None:
        dice = Random(seed)
        for _ in range(5):
            self.alone(self.acts.enqueue(dice))
        self.alone(self.acts.claim(dice))

    def drawn(self, dice: Random, verbs: Sequence[str]) -> Act:
        act: Act = getattr(self.acts, dice.choice(verbs))(dice)
        note(act.name)
        return act

    @rule(seed=SEEDS)
    def step(self, seed: int) -> None:
        dice = Random(f"{seed} {len(self.acts.tokens)}")
        unfinished = self.acts.model.seen(*WAITING, State.RUNNING)
        if len(unfinished) < 3:
            self.alone(self.acts.enqueue(dice))
        if dice.random() < 0.4:
            self.alone(self.drawn(dice, VERBS))
        if dice.random() < 0.3:
            self.age(dice)
        if dice.random() < 0.2:
            self.two_at_once_while_leases_run_out(dice)
        elif dice.random() < 0.3:
            one, other = self.drawn(dice, VERBS), self.drawn(dice, VERBS)
            self.meet(one, other, committed=dice.random() < 0.7)
        else:
            self.two_at_once_about_one_job(dice)

    def two_at_once_about_one_job(self, dice: Random) -> None:
        job = dice.choice(list(self.acts.model.jobs.values()))
        verbs = next(verbs for states, verbs in OF_ONE.items() if job.state in states)
        if job.lease is not None and dice.random() < 0.3:
            self.acts.end_leases([job.job_id])
        self.acts.focus = job.job_id
        one, other = self.drawn(dice, verbs), self.drawn(dice, verbs)
        self.acts.focus = None
        self.meet(one, other, committed=dice.random() < 0.7)

    def age(self, dice: Random) -> None:
        model = self.acts.model
        self.acts.come_due([job.job_id for job in model.seen(State.SCHEDULED)])
        running = [job.job_id for job in model.seen(State.RUNNING)]
        self.acts.end_leases([job_id for job_id in running if dice.random() < 0.5])

    def two_at_once_while_leases_run_out(self, dice: Random) -> None:
        one, other = self.drawn(dice, ["settle", "renew", "cancel"]), self.drawn(dice, VERBS)
        running = self.acts.model.seen(State.RUNNING)
        live = [job.job_id for job in running if job.lease is not None and not job.lease.over]
        self.acts.end_leases(live, SOON)
        self.meet(one, other, committed=False)

    def meet(self, one: Act, other: Act, *, committed: bool) -> None:
        answer = one.ask(self.one)
        coming = self.stage.start(other.ask, self.other)
        pids = {"one": self.one.info.backend_pid, "other": self.other.info.backend_pid}
        wait_for(lambda: coming.done() or self.stage.value(STANDS, pids), "a stand")
        waited = not coming.done()
        wait_for(lambda: self.stage.value(RUNNING_OUT) == 0, "the end of leases")
        (self.one.commit if committed else self.one.rollback)()
        meeting = Meeting(one, answer, committed, other, coming.result(), waited)
        # An ending that is refused waits for a prune of its job, whose event would have none.
        pruned = one.name.startswith("prune")
        assert other.waits or pruned or not waited, f"{other} waited for {one}"
        self.met["waited" if waited else "passed by"] += 1
        found = unordered(self.acts.found())
        for model in meeting.explanations(self.acts.model):
            if unordered(rows(model)) == found:
                self.acts.model = model
                return
        raise AssertionError(f"nothing explains {found} after {meeting}")

    def teardown(self) -> None:
        self.one.rollback()
        assert self.stage.all(HOMELESS) == []
        for job_id in self.acts.model.jobs:
            self.stage.check_history(job_id)
        for session in (self.one, self.other):
            session.close()


@pytest.mark.slow
def test_two_sessions_at_once_do_what_the_model_does_in_some_order(stage: Stage) -> None:
    met: Counter[str] = Counter()
    machine = type("TwoSessions", (TwoSessions,), {"stage": stage, "met": met})
    run_state_machine_as_test(machine, settings=EXPLORED)  # type: ignore[no-untyped-call]
    assert met["waited"] > 2, "sessions that never waited for each other prove nothing"
