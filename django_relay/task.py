"""Tasks with a policy of their own, and the ``task`` decorator, the same on every Django.

A ``RelayTask`` is a ``Task`` of the framework with our fields. What it leaves unset, OPTIONS decide
(``policy_of``). ``resolve`` leads from the path stored with a job back to its task, and to nothing
that is no task. Storing and running are elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from asgiref.sync import sync_to_async

from . import storable
from .backoff import Backoff
from .compat import (
    DEFAULT_TASK_BACKEND_ALIAS,
    DEFAULT_TASK_PRIORITY,
    DEFAULT_TASK_QUEUE_NAME,
    InvalidTask,
    Task,
    TaskOf,
    TaskResult,
    task_backends,
)
from .exceptions import TaskNotFound
from .options import UNSET, Options, PartialPolicy, Policy, Unset, max_attempts

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayTask(TaskOf[P, R]):
    """A task and how its jobs are treated. Fields left ``UNSET`` are decided by OPTIONS.

    Raises the framework's InvalidTask for a value that makes no sense.
    """

    #: After how many failed attempts a job has failed; None for never.
    max_attempts: int | Unset | None = UNSET
    #: How long a job waits before it is tried again; a timedelta is taken as a Backoff's base.
    backoff: Backoff | timedelta | Unset = UNSET

    def __post_init__(self) -> None:
        try:
            if self.max_attempts is not UNSET:
                max_attempts(self.max_attempts)
            if self.backoff is not UNSET:
                object.__setattr__(self, "backoff", Backoff.of(self.backoff))
        except (TypeError, ValueError) as reason:
            raise InvalidTask(str(reason)) from None
        run_after: object = self.run_after
        delayed = isinstance(run_after, timedelta)
        if delayed and not _is_ours(self.get_backend()):
            raise InvalidTask(
                f"run_after is a timedelta, which only RelayBackend understands, and the backend "
                f"{self.backend!r} is none. Use a datetime."
            )
        # By name: a class with slots is made anew by dataclass, and super() would miss it.
        Task.__post_init__(self)

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | timedelta | None = None,
        backend: str | None = None,
        max_attempts: int | Unset | None = UNSET,
        backoff: Backoff | timedelta | Unset = UNSET,
    ) -> RelayTask[P, R]:
        """Return a copy with other values. ``run_after`` as a timedelta counts from the enqueue."""
        asked = {
            "priority": priority,
            "queue_name": queue_name,
            "run_after": run_after,
            "backend": backend,
        }
        changes: dict[str, Any] = {name: v for name, v in asked.items() if v is not None}
        if max_attempts is not UNSET:
            changes["max_attempts"] = max_attempts
        if backoff is not UNSET:
            changes["backoff"] = backoff
        return replace(self, **changes)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> TaskResult[P, R]:
        """Enqueue a call; any backend, a test's too, refuses the arguments that ours refuses."""
        self._check(args, kwargs)
        return Task.enqueue(self, *args, **kwargs)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> TaskResult[P, R]:
        """See ``enqueue``."""
        self._check(args, kwargs)
        return await Task.aenqueue(self, *args, **kwargs)

    def enqueue_many(
        self, calls: Iterable[Sequence[Any] | Mapping[str, Any]]
    ) -> list[TaskResult[P, R]]:
        """Enqueue one job a call, all or none, and return their results in order.

        Each call is a list or tuple of arguments, or a mapping of all of them by name. Raises as
        ``enqueue`` does, naming the call by its index. A backend that is not ours, a test's maybe,
        is given the calls one by one.
        """
        backend: Any = self.get_backend()
        if _is_ours(backend):
            many: list[TaskResult[P, R]] = backend.enqueue_many(self, calls)
            return many
        one_by_one: Any = self.enqueue
        return [
            one_by_one(**call) if isinstance(call, Mapping) else one_by_one(*call) for call in calls
        ]

    async def aenqueue_many(
        self, calls: Iterable[Sequence[Any] | Mapping[str, Any]]
    ) -> list[TaskResult[P, R]]:
        """See ``enqueue_many``."""
        many: list[TaskResult[P, R]] = await sync_to_async(self.enqueue_many)(calls)
        return many

    def _check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not _is_ours(self.get_backend()):  # which checks them itself
            storable.arguments(args, kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        del values["func"]
        return _rebuild, (type(self), self.module_path, values)

    # A task and all it holds are frozen, so a copy of it is itself.
    def __copy__(self) -> RelayTask[P, R]:
        return self

    def __deepcopy__(self, memo: Any) -> RelayTask[P, R]:
        return self


def _is_ours(backend: object) -> bool:
    """Whether this is a RelayBackend, whose class lies in a higher layer."""
    return getattr(backend, "accepts_delay", False) is True


def _rebuild(cls: type[RelayTask[..., Any]], path: str, values: dict[str, Any]) -> Any:
    try:
        func = resolve(path).func
    except TaskNotFound as reason:
        raise ValueError(f"Expected {path!r} to point to a Task instance. {reason}") from None
    return cls(func=func, **values)


@overload
def task(
    function: Callable[P, R],
    /,
) -> RelayTask[P, R]: ...


@overload
def task(
    *,
    priority: int = ...,
    queue_name: str = ...,
    backend: str = ...,
    takes_context: Literal[False] = ...,
    max_attempts: int | Unset | None = ...,
    backoff: Backoff | timedelta | Unset = ...,
) -> Callable[[Callable[P, R]], RelayTask[P, R]]: ...


@overload
def task(
    *,
    priority: int = ...,
    queue_name: str = ...,
    backend: str = ...,
    takes_context: Literal[True],
    max_attempts: int | Unset | None = ...,
    backoff: Backoff | timedelta | Unset = ...,
) -> Callable[[Callable[Concatenate[Any, P], R]], RelayTask[P, R]]: ...


def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    priority: int = DEFAULT_TASK_PRIORITY,
    queue_name: str = DEFAULT_TASK_QUEUE_NAME,
    backend: str = DEFAULT_TASK_BACKEND_ALIAS,
    takes_context: bool = False,
    **policy: Any,
) -> Any:
    """Make a task of a module-level function, as Django's ``task`` does, with our keywords too.

    It works under any backend, so that tests may use another: the keywords are then kept and of no
    effect. Raises InvalidTask for values that make no sense and TypeError for unknown keywords.
    """
    known = {each.name for each in fields(RelayTask)} - {each.name for each in fields(Task)}
    for name in policy:
        if name == "run_after":
            raise TypeError(
                "run_after cannot be fixed by @task; use .using(run_after=...) when enqueueing."
            )
        if name not in known:
            raise TypeError(f"@task has no keyword {name!r}; it has {', '.join(sorted(known))}.")

    def decorate(func: Callable[..., Any]) -> Task[..., Any]:
        cls = task_backends[backend].task_class
        if cls is Task:
            cls = RelayTask
        return cls(
            func=func,
            priority=priority,
            queue_name=queue_name,
            backend=backend,
            takes_context=takes_context,
            run_after=None,
            **policy,
        )

    return decorate if function is None else decorate(function)


def policy_of(task: Task[..., Any], options: Options) -> Policy:
    """Decide how often a task is tried and how long it waits: its own word comes first."""
    said = PartialPolicy()
    if isinstance(task, RelayTask):
        # __post_init__ has made a Backoff of a timedelta.
        said = PartialPolicy(task.max_attempts, task.backoff)  # type: ignore[arg-type]
    return options.policy(task.module_path, said)


def registered(func: Callable[..., Any]) -> Task[..., Any] | None:
    """Return the task that stands at a function's own path, or None. Imports nothing."""
    found: Any = sys.modules.get(func.__module__)
    for part in func.__qualname__.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, Task) else None


def resolve(path: str) -> Task[..., Any]:
    """Import the task at a dotted path; raise TaskNotFound where there is none.

    Only a task is ever returned: a path to another callable is refused. Whatever the module raises
    while it is imported, an exit included, becomes the reason.
    """
    module, _, rest = path.rpartition(".")
    names = [rest]
    try:
        while module:
            try:
                found: Any = import_module(module)
                break
            except ModuleNotFoundError as missing:
                # "a.b.Class.task": what is not there may be a class, and the module lies above.
                if missing.name is None or not f"{module}.".startswith(f"{missing.name}."):
                    raise
                module, _, rest = module.rpartition(".")
                names.insert(0, rest)
        else:
            raise TaskNotFound(f"The task {path!r} cannot be imported: no such module.")
        for name in names:
            found = getattr(found, name)
    except (KeyboardInterrupt, TaskNotFound):
        raise
    except AttributeError as reason:
        raise TaskNotFound(
            f"The task {path!r} was not found: {storable.text(reason)}. Was it renamed or removed?"
        ) from None
    except BaseException as reason:  # SyntaxError, ImportError, sys.exit() in the module
        raise TaskNotFound(
            f"The task {path!r} cannot be imported: its module raised "
            f"{type(reason).__qualname__}: {storable.text(reason)}"
        ) from None
    if not isinstance(found, Task):
        raise TaskNotFound(
            f"{path!r} leads to something that is no task, and is not called. Is @task missing?"
        )
    return found
