"""A job and its events as the framework's TaskResult, at any moment of its life.

Reading never fails for what a job may be: its task may be gone (then ``result.task`` is a stand-in
with the right path), its errors' classes may not import, it may have a million events. For that,
only the last ``EVENTS_READ`` events count: ``errors`` holds at most the last ``ERRORS_READ`` failed
attempts, and ``worker_ids``, whose number is ``attempts``, what those events tell. Writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, cast

from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist
from django.utils import timezone
from django.utils.module_loading import import_string

from . import storable
from .compat import Task, TaskError, TaskResult, TaskResultStatus
from .exceptions import JobCancelled, TaskNotFound
from .models import Event, Job
from .options import UNSET, Options
from .outcomes import Outcome
from .states import WAITING, EventKind, State
from .task import RelayTask, policy_of, resolve
from .transitions import Claimed, Enqueued, Session, Settled

EVENTS_READ = 2_000
ERRORS_READ = 100

#: The workers of a job's earlier claims whose handlers may have begun, oldest first.
Past = tuple[str, ...]

STATUS: dict[str, TaskResultStatus] = {
    **dict.fromkeys(WAITING, TaskResultStatus.READY),
    State.RUNNING: TaskResultStatus.RUNNING,
    State.SUCCESSFUL: TaskResultStatus.SUCCESSFUL,
    State.FAILED: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
}

# Locks nothing. The last events of each job, without their bulk: the index on (job_id, id) is read
# backwards and no further than the limit. `unbegun` claims were given back before a handler began.
RECENT = f"""
SELECT v.job_id, v.id, v.kind, v.claim, v.worker, v.unbegun
FROM unnest(%(ids)s::bigint[]) AS j(id) CROSS JOIN LATERAL (
  SELECT
    e.job_id, e.id, e.kind, e.claim, e.worker,
    CASE WHEN e.kind = 'released' THEN e.data->>'began' = 'false' ELSE false END AS unbegun
  FROM django_relay_event AS e
  WHERE e.job_id = j.id
  ORDER BY e.id DESC
  LIMIT {EVENTS_READ}
) AS v
ORDER BY v.id
"""

_Recent = tuple[int, int, str, int | None, str | None, bool | None]


def enqueued(
    stored: Enqueued,
    task: Task[..., Any],
    *,
    backend: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> TaskResult[..., Any]:
    """Describe a job that has just been stored."""
    return TaskResult(
        task=task,
        id=str(stored.id),
        status=STATUS[stored.state],
        enqueued_at=stored.enqueued_at,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=list(args),
        kwargs=dict(kwargs),
        backend=backend,
        errors=[],
        worker_ids=[],
    )


def pasts(connection: Session, job_ids: Sequence[int]) -> dict[int, Past]:
    """Read who ran these jobs before the claim they are under now, by job id."""
    recent: dict[int, list[_Recent]] = {}
    for row in _recent(connection, job_ids):
        recent.setdefault(row[0], []).append(row)
    return {job_id: tuple(_workers(rows, current=False)) for job_id, rows in recent.items()}


def running(
    backend: str, task: Task[..., Any], job: Claimed, past: Past, worker: str
) -> TaskResult[..., Any]:
    """Describe a job whose handler is about to begin, without asking the database."""
    claimed_at = _shown(job.acquired_at)
    return TaskResult(
        task=_copy(
            task,
            backend=backend,
            queue_name=job.queue,
            priority=job.priority,
            run_after=_shown(_asked_for(job)),
        ),
        id=str(job.job_id),
        status=TaskResultStatus.RUNNING,
        enqueued_at=_shown(job.enqueued_at),
        started_at=_shown(job.started_at) or claimed_at,
        finished_at=None,
        last_attempted_at=claimed_at,
        args=storable.reading(job.args),
        kwargs=storable.reading(job.kwargs),
        backend=backend,
        errors=[],
        worker_ids=[*past, worker],
    )


def finished(
    backend: str,
    task: Task[..., Any],
    job: Claimed,
    past: Past,
    worker: str,
    outcome: Outcome,
    settled: Settled,
) -> TaskResult[..., Any]:
    """Describe a job whose accepted outcome was its last, without asking the database.

    ``errors`` holds what this attempt raised; ``get_result`` has those of the earlier ones too.
    """
    errors = []
    if settled.state == State.CANCELLED:
        errors = [_cancelled(None, outcome.error)]
    elif settled.state == State.FAILED:
        errors = [_error(outcome.error or {})]
    result = replace(
        running(backend, task, job, past, worker),
        status=STATUS[settled.state or State.FAILED],
        finished_at=_shown(settled.at),
        errors=errors,
    )
    if settled.state == State.SUCCESSFUL and outcome.result is not None:
        object.__setattr__(result, "_return_value", json.loads(outcome.result))
    return result


def read(
    database: str, backend: str, job_id: int, *, connection: Session, options: Options
) -> TaskResult[..., Any] | None:
    """Read a job of this backend as it is now, or None where there is none (any more).

    A job that nobody has touched yet costs one query, others two or three.
    """
    job = (
        Job.objects.using(database)
        .select_related("lease")
        .filter(pk=job_id, backend=backend)
        .first()
    )
    if job is None:
        return None
    # After the job, so that the events tell at least what its state tells.
    touched = job.claims > 0 or job.finished_at is not None
    recent = _recent(connection, [job_id]) if touched else []
    result: TaskResult[..., Any] = TaskResult(
        task=_task(job, backend, options),
        id=str(job.pk),
        status=STATUS.get(job.state, TaskResultStatus.READY),  # unknown: a newer release's
        enqueued_at=job.enqueued_at,
        finished_at=job.finished_at,
        **_times(job),
        args=job.args,
        kwargs=job.kwargs,
        backend=backend,
        errors=_errors(database, job, recent),
        worker_ids=_workers(recent, current=True),
    )
    if job.state == State.SUCCESSFUL:
        object.__setattr__(result, "_return_value", job.result)
    return result


def _recent(connection: Session, job_ids: Sequence[int]) -> list[_Recent]:
    with connection.cursor() as cursor:
        cursor.execute(RECENT, {"ids": list(job_ids)})
        return cast("list[_Recent]", cursor.fetchall())


def _workers(recent: Iterable[_Recent], *, current: bool) -> list[str]:
    """Tell the workers of the claims whose handler may have begun, with or without the newest."""
    claims: dict[int, str] = {}
    newest = 0
    for _, _, kind, claim, worker, unbegun in recent:
        if claim is None:
            continue
        if kind == EventKind.CLAIMED:
            claims[claim] = worker or ""
            newest = claim
        elif unbegun:
            claims.pop(claim, None)
    return [worker for claim, worker in claims.items() if current or claim != newest]


def _times(job: Job) -> dict[str, datetime | None]:
    """Tell when the job started and was last tried; while it runs, its lease knows better."""
    started, last = job.started_at, job.last_attempted_at
    if job.state == State.RUNNING:
        try:
            begun = job.lease.begun_at or job.lease.acquired_at
        except ObjectDoesNotExist:  # somebody's own SQL; a rescue mends it
            begun = None
        started, last = started or begun, begun or last
    return {"started_at": started, "last_attempted_at": last}


def _errors(database: str, job: Job, recent: Iterable[_Recent]) -> list[TaskError]:
    kinds = {EventKind.RETRIED, EventKind.FAILED}
    ids = [event_id for _, event_id, kind, *_ in recent if kind in kinds][-ERRORS_READ:]
    if job.state == State.CANCELLED:
        ids += [event_id for _, event_id, kind, *_ in recent if kind == EventKind.CANCELLED][-1:]
    if not ids:
        return []
    errors = []
    for event in Event.objects.using(database).filter(pk__in=ids).order_by("pk"):
        data = event.data if isinstance(event.data, dict) else {}
        error = said if isinstance(said := data.get("error"), dict) else {}
        cancelled = event.kind == EventKind.CANCELLED
        errors.append(_cancelled(event.actor, error) if cancelled else _error(error))
    return errors


def _cancelled(actor: str | None, error: Mapping[str, Any] | None) -> TaskError:
    """Describe a cancellation: it is the reason why, also where the handler raised at its end."""
    said = f"{_path(JobCancelled)}: cancelled{f' by {actor}' if actor else ''}\n"
    before = str(error.get("traceback") or "") if error else ""
    return TaskError(exception_class_path=_path(JobCancelled), traceback=before + said)


def _error(error: Mapping[str, Any]) -> TaskError:
    """Describe a failed attempt by a class that imports, and by its traceback."""
    said = f"{error.get('class', 'unknown error')}: {error.get('message', '')}\n"
    candidates = (error.get("class"), error.get("importable"))
    path = next((each for each in candidates if _imports(each)), None) or _path(Exception)
    return TaskError(exception_class_path=path, traceback=str(error.get("traceback") or said))


def _imports(path: Any) -> bool:
    if not isinstance(path, str):
        return False
    try:
        found = import_string(path)
    except KeyboardInterrupt:
        raise
    except BaseException:  # the module may be gone, or raise anything while it is imported
        return False
    return isinstance(found, type) and issubclass(found, BaseException)


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _task(job: Job, backend: str, options: Options) -> Task[..., Any]:
    """Return the job's task as it was enqueued, or a stand-in where its path leads nowhere."""
    try:
        task = resolve(job.task)
    except TaskNotFound as reason:
        task = stand_in(job.task, str(reason))
    changes: dict[str, Any] = {
        "backend": backend,
        "queue_name": job.queue,
        "priority": job.priority,
        "run_after": _asked_for(job),
    }
    if isinstance(task, RelayTask) and policy_of(task, options).max_attempts != job.max_attempts:
        changes["max_attempts"] = job.max_attempts
    return _copy(task, **changes)


def _shown(at: datetime | None) -> datetime | None:
    """Show a time of the bookkeeping session, always aware, as the project's own would be read."""
    if at is None or settings.USE_TZ or timezone.is_naive(at):
        return at
    return timezone.make_naive(at, timezone.get_default_timezone())


def _asked_for(job: Job | Claimed) -> datetime | None:
    """Return when the job is to run, or was; None where it was to run at once."""
    return job.run_after if job.run_after > job.enqueued_at else None


def _copy(task: Task[..., Any], **changes: Any) -> Task[..., Any]:
    """Copy a task without validating it: what ran yesterday may not be allowed today."""
    copy: Task[..., Any] = object.__new__(type(task))
    for each in fields(task):
        value = changes.get(each.name, getattr(task, each.name))
        object.__setattr__(copy, each.name, value)
    return copy


def stand_in(path: str, reason: str) -> Task[..., Any]:
    """Make a task of the given path whose call raises TaskNotFound with the reason."""

    def missing(*args: Any, **kwargs: Any) -> Any:
        raise TaskNotFound(reason)

    module, _, missing.__qualname__ = path.rpartition(".")
    missing.__module__, missing.__name__ = module, missing.__qualname__
    task: RelayTask[..., Any] = object.__new__(RelayTask)
    values = {"func": missing, "takes_context": False, "max_attempts": UNSET, "backoff": UNSET}
    for each in fields(RelayTask):
        object.__setattr__(task, each.name, values.get(each.name))
    return task
