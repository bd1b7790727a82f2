"""The queue told a second time, in plain Python: what each transition is to do, and to answer.

Small on purpose: no SQL, no clocks (a time is due, late or over, or it is not) and no order of
picking, of which a claim's own tests tell. Each verb is given what the database answered and raises
AssertionError where the answer, or the move behind it, is not the model's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django_relay.outcomes import Verb
from django_relay.states import FINAL, MAX_INTERRUPTIONS, WAITING, EventKind, State
from django_relay.transitions import Cancelled

S, E = State, EventKind
KINDS = {Verb.RETRY: E.RETRIED, Verb.SNOOZE: E.SNOOZED, Verb.RELEASE: E.RELEASED}


@dataclass
class Lease:
    """``short``: it runs out with the next time that passes, unless it is renewed before."""

    token: str
    worker: str
    claim: int
    short: bool = False
    over: bool = False
    begun: bool = False
    asked: bool = False


@dataclass
class Job:
    """``due``: its time has come; ``late``: the time it had to start before has passed."""

    job_id: int
    queue: str
    priority: int
    max_attempts: int | None
    state: State
    due: bool = True
    late: bool = False
    claims: int = 0
    failures: int = 0
    losses: int = 0
    interruptions: int = 0
    lease: Lease | None = None
    result: str | None = None
    events: list[str] = field(default_factory=lambda: [str(E.ENQUEUED)])
    #: What an owner was told of an ending that was accepted, by its token.
    accepted: dict[str, str] = field(default_factory=dict)

    def move(self, state: State, kind: EventKind) -> None:
        """Go to ``state`` and leave the lease and an event behind."""
        self.lease = self.lease if state == S.RUNNING else None
        self.state = state
        self.events.append(str(kind))

    def spent(self, count: int) -> bool:
        """Whether ``count`` failures or losses are as many as there may be."""
        return self.max_attempts is not None and count >= self.max_attempts

    @property
    def row(self) -> tuple[Any, ...]:
        """What the database is to hold of it."""
        lease = self.lease
        held = (lease.token, lease.worker, lease.claim, lease.asked) if lease else (None,) * 4
        counters = (self.claims, self.failures, self.losses, self.interruptions)
        return (str(self.state), self.queue, self.priority, *counters, self.result, *held)


#: An ending as the model sees it: job, token, verb, whether the handler began, whether at once.
Ending = tuple[int, str, Verb, bool, bool]


class Model:
    """All jobs by id. What is ``hidden`` is locked by somebody: who never waits passes it by."""

    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}
        self.hidden: frozenset[int] = frozenset()

    def seen(self, *states: State) -> list[Job]:
        """The jobs in these states that nobody has locked."""
        return [j for j in self.jobs.values() if j.state in states and j.job_id not in self.hidden]

    def among(self, ids: Collection[int], states: Iterable[State]) -> list[Job]:
        return [job for job in self.seen(*states) if job.job_id in ids]

    def enqueue(self, job: Job) -> None:
        self.jobs[job.job_id] = job

    # ------------------------------------------------------------------ owners

    def claim(
        self, answer: Sequence[Any], *, limit: int, queues: Any, worker: str, alone: bool
    ) -> None:
        """As many as there are, each kind for itself: those that have cost a process run alone."""
        ready = {
            job.job_id
            for job in self.seen(S.READY)
            if not job.late and queues in (None, [job.queue]) and (job.losses > 0) is alone
        }
        taken = [claimed.job_id for claimed in answer]
        assert set(taken) <= ready
        assert len(set(taken)) == len(taken) == min(1 if alone else limit, len(ready))
        for claimed in answer:
            job = self.jobs[claimed.job_id]
            job.claims += 1
            job.lease = Lease(claimed.token, worker, job.claims)
            job.move(S.RUNNING, E.CLAIMED)
            told = (claimed.claim, claimed.failures, claimed.losses, claimed.interruptions)
            assert told == (job.claims, job.failures, job.losses, job.interruptions)

    def holder(self, job_id: int, token: str) -> Job | None:
        """The job, if this token is that of its lease."""
        job = self.jobs.get(job_id)
        return job if job and job.lease and job.lease.token == token else None

    def renew(self, answer: Any, *, held: Sequence[tuple[int, str]]) -> None:
        kept, stop, gone = set(), set(), set()
        for job_id, token in held:
            job = self.holder(job_id, token)
            if job is None or job.lease is None or job.lease.over:
                gone.add(token)
            elif job_id not in self.hidden:
                job.lease.begun, job.lease.short = True, False
                kept.add(token)
                stop |= {token} if job.lease.asked else set()
        assert (set(answer.kept), set(answer.stop), set(answer.gone)) == (kept, stop, gone)

    def settle(self, answer: Mapping[str, str], *, endings: Sequence[Ending]) -> None:
        told: dict[str, str] = {}
        late = []
        for ending in endings:
            job = self.holder(*ending[:2])
            if job is None or job.lease is None or job.lease.over:
                late.append(ending)
            elif job.job_id not in self.hidden:
                told[ending[1]] = self._end(job, job.lease, ending)
        for job_id, token, *_ in late:
            job = self.jobs.get(job_id)
            told[token] = "refused: gone" if job is None else self._refuse(job, token)
        assert answer == told

    def _end(self, job: Job, lease: Lease, ending: Ending) -> str:
        _, token, verb, ran, at_once = ending
        began = ran or lease.begun
        state = self._after(job, lease, verb, began)
        job.failures += verb in (Verb.RETRY, Verb.FAIL)
        job.interruptions += verb == Verb.RELEASE and began
        job.result = '"done"' if verb == Verb.SUCCEED else job.result
        if state == S.SCHEDULED:
            job.due = at_once
        final = {S.SUCCESSFUL: E.SUCCEEDED, S.FAILED: E.FAILED, S.CANCELLED: E.CANCELLED}
        kind = final.get(state) or KINDS[verb]
        job.move(state, kind)
        job.accepted[token] = str(kind)
        return str(kind)

    def _after(self, job: Job, lease: Lease, verb: Verb, began: bool) -> State:
        if verb == Verb.SUCCEED:
            return S.SUCCESSFUL
        if lease.asked:
            return S.CANCELLED
        if verb == Verb.FAIL or (verb == Verb.RETRY and job.spent(job.failures + 1)):
            return S.FAILED
        if verb in (Verb.RETRY, Verb.SNOOZE):
            return S.SCHEDULED
        often = job.max_attempts == 1 or job.interruptions + 1 >= MAX_INTERRUPTIONS
        return S.FAILED if began and often else S.READY

    def _refuse(self, job: Job, token: str) -> str:
        if token in job.accepted:
            return job.accepted[token]
        job.events.append(str(E.REFUSED))
        if job.lease is not None and job.lease.token == token:
            return "refused: expired"
        return f"refused: {'cancelled' if job.state == S.CANCELLED else 'superseded'}"

    # ------------------------------------------------------------------ maintenance

    def rescue_expired(self, answer: Sequence[Any]) -> None:
        over = [job for job in self.seen(S.RUNNING) if job.lease and job.lease.over]
        self._rescue(answer, dict.fromkeys((job.job_id for job in over), True))

    def rescue_child(self, answer: Sequence[Any], *, worker: str, begun: Collection[str]) -> None:
        self._rescue(
            answer,
            {
                job.job_id: job.lease.begun or job.lease.token in begun or job.lease.over
                for job in self.seen(S.RUNNING)
                if job.lease is not None and job.lease.worker == worker
            },
        )

    def _rescue(self, answer: Sequence[Any], lost: Mapping[int, bool]) -> None:
        told = {}
        for job_id, counts in lost.items():
            job = self.jobs[job_id]
            kind = E.RESCUED if counts else E.RELEASED
            if job.lease is not None and job.lease.asked:
                state, kind = S.CANCELLED, E.CANCELLED
            elif counts and job.spent(job.losses + 1):
                state, kind = S.FAILED, E.FAILED
            elif counts and job.losses:
                state, job.due = S.SCHEDULED, False
            else:
                state = S.READY
            job.losses += counts
            job.move(state, kind)
            told[job_id] = (str(state), str(kind))
        assert {each.job_id: (each.state, each.kind) for each in answer} == told

    def promote(self, answer: Sequence[str]) -> None:
        due = [job for job in self.seen(S.SCHEDULED) if job.due]
        for job in due:
            job.state = S.READY
        assert sorted(answer) == sorted(job.queue for job in due)

    def expire(self, answer: Sequence[int]) -> None:
        late = [job for job in self.seen(*WAITING) if job.late]
        for job in late:
            job.move(S.FAILED, E.FAILED)
        assert sorted(answer) == [job.job_id for job in late]

    def mend(self, answer: Any) -> None:
        assert answer == ([], []), "transitions left a row without its partner"

    def prune(self, answer: int, *, old: bool, queue: str | None, limit: int) -> None:
        final = [j for j in self.seen(*FINAL) if queue in (None, j.queue)] if old else []
        for job in final[:limit]:
            del self.jobs[job.job_id]
        assert answer == len(final[:limit])

    # ------------------------------------------------------------------ people

    def cancel(self, answer: Mapping[int, Cancelled], *, ids: Sequence[int], force: bool) -> None:
        told = {}
        for job_id in ids:
            job = self.jobs.get(job_id)
            if job is None:
                told[job_id] = Cancelled.MISSING
            elif job.state in FINAL:
                told[job_id] = Cancelled.FINISHED
            elif job.lease is None or force:
                told[job_id] = Cancelled.CANCELLED
                job.move(S.CANCELLED, E.CANCELLED)
            else:
                told[job_id] = Cancelled.ASKED
                if not job.lease.asked:
                    job.lease.asked = True
                    job.move(S.RUNNING, E.CANCEL_REQUESTED)
        assert answer == told

    def requeue(self, answer: Sequence[int], *, ids: Sequence[int]) -> None:
        chosen = self.among(ids, FINAL)
        for job in chosen:
            job.failures = job.losses = job.interruptions = 0
            job.result, job.late, job.due = None, False, True
            job.move(S.READY, E.REQUEUED)
        assert sorted(answer) == [job.job_id for job in chosen]

    def reschedule(self, answer: Sequence[int], *, ids: Sequence[int], at_once: bool) -> None:
        chosen = self.among(ids, WAITING)
        for job in chosen:
            job.due = at_once
            job.move(S.READY if at_once else S.SCHEDULED, E.RESCHEDULED)
        assert sorted(answer) == [job.job_id for job in chosen]

    def move(self, answer: Sequence[int], *, ids: Sequence[int], queue: Any, priority: Any) -> None:
        chosen = self.among(ids, WAITING)
        for job in chosen:
            job.queue = job.queue if queue is None else queue
            job.priority = job.priority if priority is None else priority
            job.move(job.state, E.MOVED)
        assert sorted(answer) == [job.job_id for job in chosen]

    def time_passes(self) -> None:
        """What was to run out soon has run out."""
        for job in self.jobs.values():
            if job.lease is not None and job.lease.short:
                job.lease.over = True
