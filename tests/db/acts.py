"""What the machines do to a queue: each transition called as dice fell, and then held against the
model. ``Acts`` is the hand; how one act follows another is each machine's own.

Dice and not strategies: what Hypothesis draws must not depend on what a database answers, which it
may answer otherwise when a case is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

from django_relay import outcomes, transitions
from django_relay.outcomes import Outcome, Verb
from django_relay.states import State
from django_relay.transitions import Held

from .model import Job, Model
from .stage import ACTOR, ERROR, Session, Stage, told

HOUR = timedelta(hours=1)
#: A token that no claim has given.
NEVER = "00000000-0000-4000-8000-000000000000"
QUEUES, WORKERS = ["a", "b"], ["host-1-x/1", "host-1-x/2"]

#: One row a job, as ``Job.row`` has it.
ROWS = """
SELECT j.id, j.state, j.queue, j.priority, j.claims, j.failures, j.losses, j.interruptions,
  j.result::text, l.token::text, l.worker, l.claim,
  CASE WHEN l.token IS NOT NULL THEN l.cancel_requested_at IS NOT NULL END,
  ARRAY(SELECT e.kind FROM django_relay_event AS e WHERE e.job_id = j.id ORDER BY e.id)
FROM django_relay_job AS j LEFT JOIN django_relay_lease AS l ON l.job_id = j.id
ORDER BY j.id
"""
HOMELESS = """
SELECT job_id FROM (
  SELECT job_id FROM django_relay_event UNION SELECT job_id FROM django_relay_lease
) AS v WHERE NOT EXISTS (SELECT 1 FROM django_relay_job AS j WHERE j.id = v.job_id)
"""
#: Jobs have the same numbers each time.
NUMBERS = "SELECT setval(pg_get_serial_sequence('django_relay_job', 'id'), 1, false)"
#: No later rescue's spacing may come due by itself, however slow this machine is.
PUT_OFF = """
UPDATE django_relay_job SET run_after = clock_timestamp() + interval '1 hour'
WHERE state = 'scheduled' AND id = ANY (%s)
"""


@dataclass(frozen=True)
class Act:
    """What to ask of a session, what the model makes of the answer, and the jobs that are named."""

    name: str
    ask: Callable[[Session], Any]
    judge: Callable[..., None]
    ids: tuple[int, ...] = ()
    #: Whether it waits for a lock that somebody else has, rather than pass by.
    waits: bool = False

    def __repr__(self) -> str:
        return self.name


#: How each way to end a lease is put to the database, and whether it is due again at once.
ENDINGS: dict[tuple[Verb, bool], Outcome] = {
    (Verb.SUCCEED, True): outcomes.succeeded('"done"'),
    (Verb.RETRY, True): outcomes.raised(ERROR, delay=0),
    (Verb.RETRY, False): outcomes.raised(ERROR, delay=3600),
    (Verb.FAIL, True): outcomes.failed(ERROR),
    (Verb.SNOOZE, True): outcomes.snoozed(0),
    (Verb.SNOOZE, False): outcomes.snoozed(3600),
    (Verb.RELEASE, True): outcomes.released(),
}


class Acts:
    """Draws acts that fit a queue as its model stands."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.model = stage, Model()
        stage.empty()
        stage.db.execute(NUMBERS)
        #: Every lease that ever was, as (job, token); old ones are presented again and again.
        self.tokens: list[tuple[int, str]] = []
        #: The one job that acts are about, where they are to meet.
        self.focus: int | None = None

    # ------------------------------------------------------------------ drawing

    def some_ids(self, dice: Random) -> list[int]:
        """A few jobs, and now and then one that is not there."""
        if self.focus is not None:
            return [self.focus]
        return sorted(dice.sample([*self.model.jobs, 2**62], dice.randint(1, 2)))

    def some_tokens(self, dice: Random) -> list[tuple[int, str]]:
        """Some of the live leases, and now and then others: old ones, best of jobs that run again
        under another, and one that never was."""
        live = [(j.job_id, j.lease.token) for j in self.model.jobs.values() if j.lease is not None]
        chosen = [held for held in live if dice.random() < 0.5] or live[:1]
        if not chosen or dice.random() < 0.5:
            running = [job_id for job_id, _ in live]
            old = [held for held in self.tokens if held not in live]
            never = [(job_id, NEVER) for job_id in [*running, *self.model.jobs, 1][:1]]
            others = [*never, *old[-6:], *(held for held in old if held[0] in running)]
            chosen += dice.choices(others, k=dice.randint(1, 2))
        if self.focus is not None:
            held = [held for held in [*self.tokens, *live] if held[0] == self.focus]
            chosen = dice.choices(held[-3:] or chosen, k=dice.randint(1, 2))
        dice.shuffle(chosen)
        return list(dict.fromkeys(chosen))

    # ------------------------------------------------------------------ acts

    def enqueue(self, dice: Random) -> Act:
        later = dice.random() < 0.3
        queue, priority = dice.choice(QUEUES), dice.choice([0, -1, 7])
        most = dice.choice([None, 1, 2, 3])
        asked: Any = {"queue": queue, "priority": priority, "max_attempts": most}
        asked |= {"run_after": HOUR if later else None, "start_before": None}
        if dice.random() < 0.2:
            asked["start_before"] = self.stage.value("SELECT now() + interval '1 hour'")
        state = State.SCHEDULED if later else State.READY

        def judge(model: Model, answer: int) -> None:
            model.enqueue(Job(answer, queue, priority, most, state, due=not later))

        return Act(
            f"enqueue in {queue} at {priority}", lambda s: self.stage.enqueue(s, **asked), judge
        )

    def claim(self, dice: Random) -> Act:
        suspects = any(job.losses for job in self.model.seen(State.READY))
        limit, alone = dice.randint(1, 3), dice.random() < (0.5 if suspects else 0.1)
        queues = dice.choice([None, None, [QUEUES[0]]])
        worker = dice.choice(WORKERS)
        how: Any = {"queues": queues, "worker": worker, "alone": alone}

        def judge(model: Model, answer: Sequence[Any]) -> None:
            model.claim(answer, limit=limit, **how)

        def ask(session: Session) -> Sequence[Any]:
            jobs = self.stage.claim_up_to(limit, session, bounded=False, **how).jobs
            self.tokens += [(job.job_id, job.token) for job in jobs]
            return jobs

        return Act(f"claim {limit} {how}", ask, judge)

    def renew(self, dice: Random) -> Act:
        held = self.some_tokens(dice)
        reported = [Held(job_id, token, 1.0) for job_id, token in held]
        return Act(
            f"renew {held}",
            lambda s: transitions.renew(s, reported, lease=600),
            lambda model, answer: model.renew(answer, held=held),
            tuple(job_id for job_id, _ in held),
        )

    def settle(self, dice: Random) -> Act:
        given = [
            (job_id, token, *dice.choice(list(ENDINGS)), dice.random() < 0.5)
            for job_id, token in self.some_tokens(dice)
        ]
        presented = [
            outcomes.Ending(job_id, token, ENDINGS[verb, at_once], 1.0 if ran else None)
            for job_id, token, verb, at_once, ran in given
        ]
        endings = [(j, token, verb, ran, at_once) for j, token, verb, at_once, ran in given]

        def ask(session: Session) -> dict[str, str]:
            answers = transitions.settle(session, presented)
            return dict(zip(answers, told(*answers.values()), strict=True))

        name = f"settle {[(job_id, token, str(verb)) for job_id, token, verb, *_ in given]}"

        def judge(model: Model, answer: dict[str, str]) -> None:
            model.settle(answer, endings=endings)

        return Act(name, ask, judge, tuple(job_id for job_id, *_ in given))

    def rescue_child(self, dice: Random) -> Act:
        worker = dice.choice(WORKERS)
        begun = [token for _, token in self.some_tokens(dice)]
        return Act(
            f"rescue of {worker}",
            lambda s: self._rescued(s, transitions.rescue_child(s, worker, begun=begun)),
            lambda model, answer: model.rescue_child(answer, worker=worker, begun=begun),
        )

    def rescue_expired(self, dice: Random) -> Act:
        return Act(
            "rescue",
            lambda s: self._rescued(s, transitions.rescue_expired(s)),
            lambda model, answer: model.rescue_expired(answer),
        )

    def _rescued(self, session: Session, jobs: list[Any]) -> list[Any]:
        session.execute(PUT_OFF, [[job.job_id for job in jobs]])
        return jobs

    def promote(self, dice: Random) -> Act:
        return Act("promote", transitions.promote, Model.promote)

    def expire(self, dice: Random) -> Act:
        return Act("expire", transitions.expire, Model.expire)

    def mend(self, dice: Random) -> Act:
        return Act("mend", transitions.mend, Model.mend)

    def prune(self, dice: Random) -> Act:
        old, limit = dice.random() < 0.7, dice.randint(1, 3)
        queue = dice.choice([None, *QUEUES])
        age = timedelta(0) if old else HOUR
        return Act(
            f"prune {limit} of {queue} older than {age}",
            lambda s: transitions.prune(s, older_than=age, queue=queue, limit=limit),
            lambda model, answer: model.prune(answer, old=old, queue=queue, limit=limit),
        )

    def cancel(self, dice: Random, ids: list[int] | None = None) -> Act:
        ids = ids or self.some_ids(dice)
        force = dice.random() < 0.3
        return Act(
            f"cancel {ids}{' by force' if force else ''}",
            lambda s: transitions.cancel(s, ids, actor=ACTOR, force=force),
            lambda model, answer: model.cancel(answer, ids=ids, force=force),
            tuple(ids),
            waits=True,
        )

    def requeue(self, dice: Random) -> Act:
        ids = self.some_ids(dice)
        return Act(
            f"requeue {ids}",
            lambda s: transitions.requeue(s, ids, actor=ACTOR),
            lambda model, answer: model.requeue(answer, ids=ids),
            tuple(ids),
        )

    def reschedule(self, dice: Random) -> Act:
        ids, at_once = self.some_ids(dice), dice.random() < 0.5
        delay = timedelta(0) if at_once else HOUR
        return Act(
            f"reschedule {ids} in {delay}",
            lambda s: transitions.reschedule(s, ids, run_after=delay, actor=ACTOR),
            lambda model, answer: model.reschedule(answer, ids=ids, at_once=at_once),
            tuple(ids),
        )

    def move(self, dice: Random) -> Act:
        ids, queue = self.some_ids(dice), dice.choice([None, *QUEUES])
        priority = dice.choice([None, 0, 9])
        return Act(
            f"move {ids} to {queue}, {priority}",
            lambda s: transitions.move(s, ids, queue=queue, priority=priority, actor=ACTOR),
            lambda model, answer: model.move(answer, ids=ids, queue=queue, priority=priority),
            tuple(ids),
        )

    # ------------------------------------------------------------------ ageing, which no verb does

    def end_leases(self, job_ids: Sequence[int], seconds: float = 0) -> None:
        """Let the leases of these jobs run out in so many seconds."""
        self.stage.db.execute(
            "UPDATE django_relay_lease SET expires_at = clock_timestamp() + %s WHERE job_id = "
            "ANY (%s)",
            [timedelta(seconds=seconds), list(job_ids)],
        )
        for job_id in job_ids:
            lease = self.model.jobs[job_id].lease
            if lease is not None:
                lease.short, lease.over = True, seconds <= 0

    def come_due(self, job_ids: Sequence[int]) -> None:
        for job_id in job_ids:
            self.stage.set(job_id, run_after=self.stage.value("SELECT now() - interval '1 hour'"))
            self.model.jobs[job_id].due = True

    def come_late(self, job_ids: Sequence[int]) -> None:
        """Let the time have passed before which these jobs had to start."""
        for job_id in job_ids:
            before = self.stage.value("SELECT now() - interval '1 hour'")
            self.stage.set(job_id, start_before=before)
            self.model.jobs[job_id].late = True

    # ------------------------------------------------------------------ comparing

    def found(self) -> dict[int, tuple[Any, ...]]:
        """What the database holds."""
        return {job_id: tuple(row) for job_id, *row in self.stage.all(ROWS)}


def rows(model: Model) -> dict[int, tuple[Any, ...]]:
    """What the database is to hold."""
    return {job.job_id: (*job.row, job.events) for job in model.jobs.values()}
