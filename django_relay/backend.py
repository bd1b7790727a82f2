"""The backend: stores a task's call as a job, gives back what became of it, checks its settings.

Backends are made when a module with tasks is imported, and once per thread, so nothing is imported
at the top that needs the models, nothing is kept but the parsed OPTIONS, and bad OPTIONS are no
reason to fail before somebody enqueues. Running jobs is the worker's part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router
from django.db.transaction import TransactionManagementError, atomic

from . import checks
from .backoff import Backoff
from .compat import (
    DEFAULT_TASK_QUEUE_NAME,
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    announce,
    heard,
    task_enqueued,
)
from .options import BadOptions, Options, PartialPolicy
from .task import RelayTask, policy_of
from .validation import aware, calls_of, check_path, check_priority, check_run_after, encoded

if TYPE_CHECKING:
    from django.core.checks import CheckMessage

    from .transitions import NewJob

P = ParamSpec("P")
R = TypeVar("R")

MAX_ID = 2**63 - 1

_ID = re.compile(r"[1-9][0-9]{0,18}")


class RelayBackend(BaseTaskBackend):
    """Stores jobs in the user's own PostgreSQL, in the caller's own transaction."""

    task_class = RelayTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True
    #: ``run_after`` may be a timedelta, counted from the enqueue by the database's clock.
    accepts_delay = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        self.queues_given = params.get("QUEUES", [DEFAULT_TASK_QUEUE_NAME])
        # What is no list of names is reported by the check and the first enqueue, not by an import.
        sound = not checks.queue_problems(self.queues_given)
        super().__init__(alias, {**params, "QUEUES": self.queues_given if sound else []})

    @cached_property
    def relay_options(self) -> Options:
        """OPTIONS, parsed; raises ImproperlyConfigured naming each option that will not do."""
        try:
            return Options.parse(self.options)
        except BadOptions as bad:
            raise ImproperlyConfigured(f"TASKS[{self.alias!r}]: {bad}") from None

    @property
    def database(self) -> str:
        """The alias of the database that holds this backend's jobs, for writing and reading."""
        if not apps.is_installed("django_relay"):
            raise ImproperlyConfigured('Add "django_relay" to INSTALLED_APPS and run migrate.')
        from .models import Job

        return self.relay_options.database or router.db_for_write(Job)

    def validate_task(self, task: Task[..., Any]) -> None:
        """Raise InvalidTask unless this backend can run ``task``; reads no OPTIONS."""
        check_priority(task.priority)
        check_run_after(task.run_after)
        problem = checks.queue_problem(task.queue_name)
        if problem:
            raise InvalidTask(f"queue_name {problem}")
        run_after: object = task.run_after
        if isinstance(run_after, timedelta):
            # Django asks a datetime's questions; of a delay there is nothing left to ask.
            names = ("func", "takes_context", "priority", "queue_name")
            view = SimpleNamespace(**{name: getattr(task, name) for name in names}, run_after=None)
            super().validate_task(view)  # type: ignore[arg-type]
        else:
            super().validate_task(task)

    def enqueue(
        self, task: Task[P, R], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> TaskResult[P, R]:
        """Store a job in the caller's transaction, or raise and store nothing.

        Raises InvalidTask for the task, TypeError or ValueError for its arguments (naming the one),
        ImproperlyConfigured for the settings; all of these before any SQL.
        """
        self.validate_task(task)
        job = self._new_job(task, *encoded(task, args, kwargs))
        from . import results, transitions

        connection = self._connection()
        stored = transitions.enqueue(connection, job, prepare=self._may_prepare(connection))
        result = results.enqueued(stored, task, backend=self.alias, args=args, kwargs=kwargs)
        self._announce(connection, [result])
        return cast("TaskResult[P, R]", result)

    def enqueue_many(
        self, task: Task[P, R], calls: Iterable[Sequence[Any] | Mapping[str, Any]]
    ) -> list[TaskResult[P, R]]:
        """Store one job a call, all or none, and return their results in the order of the calls.

        Each call is a list or tuple of arguments, or a mapping of all of them by name. A thousand
        jobs go in one statement. Raises as ``enqueue`` does, naming the call by its index.
        """
        self.validate_task(task)
        job = self._new_job(task, "", "")
        given = calls_of(calls)
        texts = [
            encoded(task, args, kwargs, which=f"calls[{number}]: ")
            for number, (args, kwargs) in enumerate(given)
        ]
        from . import results, transitions

        connection = self._connection()
        # One statement is all or none by itself; more of them need a transaction.
        several = len(texts) > transitions.BATCH
        with atomic(using=connection.alias, savepoint=False) if several else nullcontext():
            stored = transitions.enqueue_many(connection, job, texts)
        made = [
            results.enqueued(each, task, backend=self.alias, args=args, kwargs=kwargs)
            for each, (args, kwargs) in zip(stored, given, strict=True)
        ]
        self._announce(connection, made)
        return cast("list[TaskResult[P, R]]", made)

    def _connection(self) -> Any:
        database = self.database
        connection = connections[database]
        if connection.vendor != "postgresql":
            raise ImproperlyConfigured(
                f"The database {database!r} is no PostgreSQL. Name one that is in "
                f"TASKS[{self.alias!r}]['OPTIONS']['database']."
            )
        return connection

    def _may_prepare(self, connection: Any) -> bool:
        """Whether the server may keep our statement on the caller's session.

        A project behind a transaction pooler says so: to us, or to Django as its documentation of
        poolers asks. Not in a transaction, which would be lost if the session had forgotten it.
        """
        pooler = connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS")
        return connection.get_autocommit() and not (self.relay_options.pooled or pooler)

    def _announce(self, connection: Any, made: Sequence[TaskResult[..., Any]]) -> None:
        if heard(task_enqueued):
            failures = [
                failure
                for result in made
                for failure in announce(task_enqueued, type(self), task_result=result)
            ]
            _check_transaction(connection, failures)

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Read a job of this backend; raise TaskResultDoesNotExist if there is none of that id."""
        from . import results

        job_id = _job_id(result_id)
        if job_id is None:
            raise TaskResultDoesNotExist(result_id)
        database = self.database
        found = results.read(
            database,
            self.alias,
            job_id,
            connection=connections[database],
            options=self.relay_options,
        )
        if found is None:
            raise TaskResultDoesNotExist(result_id)
        return found

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Report what is wrong with this backend's settings, each with its remedy."""
        return checks.check_backend(self.alias, queues=self.queues_given, options=self.options)

    def backoff_of(
        self, task: Task[..., Any] | None, path: str, metadata: Mapping[str, Any] | None = None
    ) -> Backoff:
        """Decide how a job waits after a failure: what its enqueue said, its task, OPTIONS.

        ``task`` is None where the path leads to none; ``metadata`` is the job's.
        """
        said = Backoff.read((metadata or {}).get("backoff"))
        if said is not None:
            return said
        if task is None:
            return self.relay_options.policy(path, PartialPolicy()).backoff
        return policy_of(task, self.relay_options).backoff

    def _new_job(self, task: Task[..., Any], args: str, kwargs: str) -> NewJob:
        from .transitions import NewJob

        problems = checks.queue_problems(self.queues_given)
        if problems:
            raise ImproperlyConfigured(f"TASKS[{self.alias!r}]['QUEUES'] {problems[0]}")
        path = task.module_path
        own = check_path(task, path)
        policy = policy_of(task, self.relay_options)
        # The worker asks the task itself how long to wait, unless this enqueue said otherwise.
        kept = getattr(task, "backoff", None) == getattr(own, "backoff", None)
        return NewJob(
            backend=self.alias,
            queue=task.queue_name,
            task=path,
            args=args,
            kwargs=kwargs,
            priority=int(task.priority),
            run_after=aware(task.run_after),
            max_attempts=policy.max_attempts,
            metadata=None if kept else json.dumps({"backoff": policy.backoff.data()}),
            notify=self.relay_options.notify,
        )


def _job_id(result_id: object) -> int | None:
    """Read a result's id, and an int as one; whatever cannot be the id of a job gives None."""
    if isinstance(result_id, str) and _ID.fullmatch(result_id):
        result_id = int(result_id)
    if type(result_id) is int and 0 < result_id <= MAX_ID:
        return result_id
    return None


def _check_transaction(connection: Any, failures: Sequence[Exception]) -> None:
    """Raise if a receiver has broken the caller's transaction: then the job is not stored.

    Unsaid, PostgreSQL would roll the transaction back at its COMMIT and report success.
    """
    if not connection.in_atomic_block and connection.autocommit:
        return
    # Imported here: psycopg is there, for the job has just been stored through it.
    from psycopg.pq import TransactionStatus

    raw = connection.connection
    aborted = raw is None or raw.info.transaction_status == TransactionStatus.INERROR
    if aborted or connection.needs_rollback:
        raise TransactionManagementError(
            "A receiver of task_enqueued broke the transaction, so the job is not stored. Let it "
            "wrap its queries in transaction.atomic()."
        ) from (failures[0] if failures else None)
