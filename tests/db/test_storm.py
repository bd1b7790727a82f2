"""Everything at once on few jobs (I11), and then the histories are held against the machine.

Workers with leases of 50 to 100 ms claim, renew and end, also under tokens that are not theirs or
no longer; maintenance rescues, promotes, expires, mends and prunes; people cancel, requeue,
reschedule and move; somebody holds locks. The dice of a run are repeated by RELAY_STORM_SEED; how
the threads interleave is not.
"""

from __future__ import annotations

import os
import random
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_relay import outcomes, transitions
from django_relay.outcomes import Ending, Outcome
from django_relay.states import FINAL, EventKind
from django_relay.transitions import Held

from .stage import ACTOR, ERROR, Session, Stage, success, wait_for

SECONDS = float(os.environ.get("RELAY_STORM_SECONDS", "20"))
JOBS = 20
QUEUES = ["a", "b", "c"]
WORKERS = [f"host-{n}-x/1" for n in range(5)]
SOME_JOBS = "SELECT id FROM django_relay_job ORDER BY random() LIMIT %s"

OUTCOMES: list[Outcome] = [
    outcomes.succeeded('"done"'),
    outcomes.raised(ERROR, delay=0.02),
    outcomes.raised(ERROR, delay=0),
    outcomes.failed(ERROR),
    outcomes.snoozed(0.01),
    outcomes.released(),
]


class Storm:
    """What the threads of a storm share: the tokens that ever were, and what was accepted."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage, self.seed = stage, seed
        self.over = threading.Event()
        self.tokens: list[tuple[int, str]] = []
        self.presented: defaultdict[str, set[str]] = defaultdict(set)
        self.accepted: defaultdict[str, set[tuple[str | None, str | None]]] = defaultdict(set)

    def run(self) -> None:
        """Let the players play for SECONDS; raise what any of them raised."""
        self.stage.compile_claims(1, 2, 3)
        players = [(worker, name) for name in WORKERS]
        players += [(maintenance, "m1"), (maintenance, "m2"), (person, "p1"), (person, "p2")]
        players += [(producer, "producer"), (locker, "locker")]
        running = [
            self.stage.start(self._loop, player, random.Random(f"{self.seed} {name}"), name)
            for player, name in players
        ]
        self.over.wait(SECONDS)
        self.over.set()
        for future in running:
            future.result()

    def _loop(self, player: Player, dice: random.Random, name: str) -> None:
        session = self.stage.connect()
        try:
            while not self.over.is_set():
                player(self, session, dice, name)
        finally:
            self.over.set()  # one that raised ends the storm

    def settle(self, session: Session, endings: list[Ending]) -> None:
        for ending in endings:
            self.presented[ending.token].add(ending.outcome.verb)
        answers = transitions.settle(session, endings)
        # One whose job somebody else has locked at this moment has no answer yet.
        assert set(answers) <= {ending.token for ending in endings}
        for token, answer in answers.items():
            if answer.accepted:
                self.accepted[token].add((answer.state, answer.kind))


Player = Callable[[Storm, Session, random.Random, str], None]


def worker(storm: Storm, session: Session, dice: random.Random, name: str) -> None:
    jobs = storm.stage.claim_up_to(
        dice.choice([1, 2, 3]),
        session,
        queues=dice.choice([None, QUEUES[:2]]),
        worker=name,
        lease=dice.uniform(0.05, 0.1),
        alone=dice.random() < 0.4,
        bounded=dice.random() < 0.5,
    ).jobs
    storm.tokens += [(job.job_id, job.token) for job in jobs]
    recent = storm.tokens[-40:]
    old = dice.sample(recent, min(2, len(recent)))
    storm.over.wait(dice.uniform(0, 0.05))
    if dice.random() < 0.5:
        held = [(job.job_id, job.token) for job in jobs] + old
        renewed = [Held(job_id, token, 0.01, dice.choice([None, 0.05])) for job_id, token in held]
        transitions.renew(session, renewed, lease=dice.uniform(0.05, 0.1))
        storm.over.wait(dice.uniform(0, 0.05))
    presented = [(job.job_id, job.token) for job in jobs if dice.random() < 0.9]
    if dice.random() < 0.3:
        presented += old
    if dice.random() < 0.1:
        presented += [(job.job_id, str(uuid.uuid4())) for job in jobs]
    dice.shuffle(presented)
    endings = [
        Ending(job_id, token, dice.choice(OUTCOMES), dice.choice([None, 0.01]))
        for job_id, token in dict.fromkeys(presented)
    ]
    storm.settle(session, endings)
    if dice.random() < 0.2:
        storm.settle(session, endings)  # as if the answer had been lost


def maintenance(storm: Storm, session: Session, dice: random.Random, name: str) -> None:
    storm.over.wait(dice.uniform(0, 0.02))
    transitions.rescue_expired(session)
    transitions.promote(session)
    if dice.random() < 0.3:
        transitions.expire(session)
    if dice.random() < 0.2:
        transitions.mend(session)
    if dice.random() < 0.04:
        transitions.prune(session, older_than=timedelta(milliseconds=200), limit=1)
    if dice.random() < 0.1:
        begun = [token for _, token in storm.tokens[-10:] if dice.random() < 0.5]
        transitions.rescue_child(session, dice.choice(WORKERS), begun=begun)


def person(storm: Storm, session: Session, dice: random.Random, name: str) -> None:
    storm.over.wait(dice.uniform(0, 0.03))
    ids = [job_id for (job_id,) in session.execute(SOME_JOBS, [dice.randint(1, 6)])]
    act = dice.choice(["cancel", "requeue", "requeue", "requeue", "later", "now", "now", "move"])
    if act == "cancel":
        transitions.cancel(session, ids, actor=ACTOR, force=dice.random() < 0.4)
    elif act == "requeue":
        transitions.requeue(session, ids, actor=ACTOR)
    elif act == "move":
        queue, priority = dice.choice(QUEUES), dice.randint(-2, 2)
        transitions.move(session, ids, queue=queue, priority=priority, actor=ACTOR)
    else:
        delay = timedelta(seconds=0.05 if act == "later" else 0)
        transitions.reschedule(session, ids, run_after=delay, actor=ACTOR)


def producer(storm: Storm, session: Session, dice: random.Random, name: str) -> None:
    storm.over.wait(0.01)
    row = session.execute("SELECT count(*), clock_timestamp() FROM django_relay_job").fetchone()
    assert row is not None
    if row[0] < JOBS:
        start_before = row[1] + timedelta(seconds=0.2) if dice.random() < 0.1 else None
        storm.stage.enqueue(
            session,
            queue=dice.choice(QUEUES),
            priority=dice.randint(-2, 2),
            max_attempts=dice.choice([None, 1, 2, 3, 5]),
            run_after=dice.choice([None, timedelta(milliseconds=20)]),
            start_before=start_before,
        )


def locker(storm: Storm, session: Session, dice: random.Random, name: str) -> None:
    table, key = dice.choice([("lease", "job_id"), ("job", "id")])
    lock = f"SELECT 1 FROM django_relay_{table} ORDER BY {key} LIMIT 2 FOR UPDATE SKIP LOCKED"
    with session.transaction(force_rollback=True):
        session.execute(lock)
        storm.over.wait(dice.uniform(0, 0.03))


@pytest.mark.slow
def test_after_a_storm_every_history_is_legal_and_nothing_is_stuck(stage: Stage) -> None:
    seed = int(os.environ.get("RELAY_STORM_SEED", random.SystemRandom().randrange(10**6)))
    print(f"RELAY_STORM_SEED={seed}")  # shown when the test fails
    storm = Storm(stage, seed)
    storm.run()
    check_histories(stage)
    check_endings(stage, storm)
    kinds = Counter(dict(stage.all("SELECT kind, count(*) FROM django_relay_event GROUP BY 1")))
    assert set(kinds) == {*EventKind} - {EventKind.UNBLOCKED}, "a storm too calm to prove anything"
    finish_all(stage)
    check_histories(stage)


def check_histories(stage: Stage) -> None:
    jobs = stage.all("SELECT id, claims FROM django_relay_job")
    for job_id, claims in jobs:
        stage.check_history(job_id)
        events = stage.events(job_id)
        made = [event.claim for event in events if event.kind == "claimed"]
        assert made == list(range(1, claims + 1)), events
    assert stage.orphans() == []
    known = {job_id for job_id, _ in jobs}
    homeless = [
        row
        for row in stage.all("SELECT job_id, kind FROM django_relay_event")
        if row[0] not in known
    ]
    assert homeless == []


def check_endings(stage: Stage, storm: Storm) -> None:
    """One accepted ending a token, each with its event, and none of them refused besides."""
    ended: Counter[str] = Counter()
    refused: set[str] = set()
    for job_id in (job_id for (job_id,) in stage.all("SELECT id FROM django_relay_job")):
        for event in stage.events(job_id):
            if event.kind == "refused":
                refused.add(str(event.token))
            elif event.token and event.kind not in ("claimed", "cancel_requested"):
                ended[event.token] += 1
                by_owner = event.actor is None and "why" not in event.data
                answers = {(event.data["state"], event.kind)} if by_owner else set()
                assert storm.accepted[event.token] <= answers, event
                assert not by_owner or event.data["verb"] in storm.presented[event.token], event
    assert set(ended.values()) == {1}
    assert all(len(answers) <= 1 for answers in storm.accepted.values())
    assert not refused & {token for token, answers in storm.accepted.items() if answers}


def finish_all(stage: Stage) -> None:
    """Play an ordinary worker until every job has reached a final state."""
    unfinished = "SELECT count(*) FROM django_relay_job WHERE NOT state = ANY (%s)"

    def step() -> Any:
        transitions.rescue_expired(stage.db)
        stage.db.execute(
            "UPDATE django_relay_job SET run_after = clock_timestamp() WHERE state = 'scheduled'"
        )
        transitions.promote(stage.db)
        transitions.expire(stage.db)
        stage.settle(*map(success, stage.claim_up_to(3).jobs))
        stage.settle(*map(success, stage.claim_up_to(1, alone=True).jobs))
        return stage.value(unfinished, [sorted(FINAL)]) == 0

    wait_for(step, "every job to finish")
