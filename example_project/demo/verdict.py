"""Whether every job of the demo ended as it should; each thing that is wrong is a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings

from django_relay.models import Job
from django_relay.states import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from django_relay.models import Event

    from .batch import Batch


def problems(batch: Batch, events: Iterable[Event], killed: str | None) -> list[str]:
    """Return what is wrong with the batch, given its events in any order; empty when nothing is."""
    histories: dict[int, list[Event]] = {job: [] for job in batch.names}
    for event in sorted(events, key=lambda event: event.pk):
        histories[event.job_id].append(event)
    jobs = Job.objects.in_bulk(list(batch.names))
    found: list[str] = []
    for number, name in batch.names.items():
        job = jobs.get(number)
        if job is None:
            found.append(f"{name}: its row is gone")
        else:
            found += (f"{name}: {what}" for what in _of_one(job, histories[number]))
        found += (
            f"{name}: there is no {file}"
            for file in batch.files[number]
            if not (settings.RESULTS / file).is_file()
        )
    return found + [
        f"{batch.names[n]}: {what}" for n, what in _of_parts(batch, jobs, histories, killed)
    ]


def _of_one(job: Job, history: list[Event]) -> Iterator[str]:
    if job.state != State.SUCCESSFUL:
        yield f"is {job.state}, not successful"
    successes = sum(event.kind == "succeeded" for event in history)
    if successes != 1:
        yield f"succeeded {successes} times"
    if job.failures and not any(event.kind == "retried" for event in history):
        yield "counts a failure that no event tells of"


def _of_parts(
    batch: Batch, jobs: dict[int, Job], histories: dict[int, list[Event]], killed: str | None
) -> Iterator[tuple[int, str]]:
    """The jobs that play a part: taken over, retried, started late."""
    if not any(event.kind == "retried" for event in histories[batch.flaky]):
        yield batch.flaky, "was to fail at first and be retried"
    claimed = _workers(histories[batch.long], "claimed")
    ended = _workers(histories[batch.long], "succeeded")
    if killed is None:
        yield batch.long, "its worker was to be killed"
    elif not _workers(histories[batch.long], "rescued"):
        yield batch.long, "was to be rescued from the killed worker"
    elif not ended or ended[-1] == claimed[0]:
        yield batch.long, "was to be finished by another worker than the killed one"
    early = [
        event
        for event in histories[batch.later]
        if event.kind == "claimed" and event.at < jobs[batch.later].run_after
    ]
    if early:
        yield batch.later, "began before its time"


def _workers(history: list[Event], kind: str) -> list[str]:
    return [event.worker.rpartition("/")[0] for event in history if event.kind == kind]
