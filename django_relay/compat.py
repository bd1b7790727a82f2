"""The one place that knows Django's Tasks framework from its backport.

Django 6.0 has it as ``django.tasks``; for Django 5.2 it is the package ``django_tasks``, which
gives two exceptions other names. The rest of the package imports the names from here.
``announce`` is how signals are sent: it never raises.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

import django
from django.conf import settings
from django.utils.log import RequireDebugTrue

#: Whether this Django has no Tasks framework of its own.
NEEDS_BACKPORT = django.VERSION < (6, 0)

if TYPE_CHECKING or not NEEDS_BACKPORT:
    from django.tasks import task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import (
        DEFAULT_TASK_BACKEND_ALIAS,
        DEFAULT_TASK_PRIORITY,
        DEFAULT_TASK_QUEUE_NAME,
        Task,
        TaskContext,
        TaskError,
        TaskResult,
        TaskResultStatus,
    )
    from django.tasks.exceptions import (
        InvalidTask,
        InvalidTaskBackend,
        TaskResultDoesNotExist,
        TaskResultMismatch,
    )
    from django.tasks.signals import task_enqueued, task_finished, task_started
else:
    try:
        from django_tasks import task_backends
    except ImportError as error:
        raise ImportError(
            "Django 5.2 has no Tasks framework of its own. Install its backport with "
            "pip install 'django-relay[backport]' and add 'django_tasks' to INSTALLED_APPS."
        ) from error
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import (
        DEFAULT_TASK_BACKEND_ALIAS,
        DEFAULT_TASK_PRIORITY,
        DEFAULT_TASK_QUEUE_NAME,
        Task,
        TaskContext,
        TaskError,
        TaskResult,
        TaskResultStatus,
    )
    from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
    from django_tasks.signals import task_enqueued, task_finished, task_started

if TYPE_CHECKING:
    from django.dispatch import Signal
    from django.tasks.base import Task as TaskOf
    from django.tasks.base import TaskContext as ContextOf
else:

    class TaskOf:
        """``TaskOf[P, R]`` is ``Task``: Django's own takes no parameters when the code runs."""

        def __class_getitem__(cls, parameters: Any) -> type:
            return Task

    class ContextOf:
        """``ContextOf[P, R]`` is ``TaskContext``."""

        def __class_getitem__(cls, parameters: Any) -> type:
            return TaskContext


__all__ = [
    "DEFAULT_TASK_BACKEND_ALIAS",
    "DEFAULT_TASK_PRIORITY",
    "DEFAULT_TASK_QUEUE_NAME",
    "NEEDS_BACKPORT",
    "BaseTaskBackend",
    "ContextOf",
    "InvalidTask",
    "InvalidTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskOf",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultMismatch",
    "TaskResultStatus",
    "announce",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]

_logger = logging.getLogger("django_relay.signals")


def announce(
    signal: Signal, sender: type[BaseTaskBackend], *, task_result: TaskResult[..., Any]
) -> list[Exception]:
    """Send one of the framework's signals and return what its receivers raised.

    The stored state follows the job and not its receivers, so nothing they raise comes out of here,
    nor what a logging handler raises while an error is being logged. Errors are logged with the
    receiver's name. Exceptions that are no ``Exception`` (a Ctrl-C, a timeout) do pass.
    """
    failures: list[Exception] = []
    try:
        for receiver, answer in signal.send_robust(sender=sender, task_result=task_result):
            if isinstance(answer, Exception):
                failures.append(answer)
                _logger.error(
                    "A receiver of a task signal raised %s: %s.%s, about job %s",
                    type(answer).__name__,
                    getattr(receiver, "__module__", "?"),
                    getattr(receiver, "__qualname__", type(receiver).__qualname__),
                    task_result.id,
                    extra={"job_id": task_result.id},
                )
    except Exception as error:  # a logging handler that raises, here or inside send_robust
        failures.append(error)
    return failures


#: Where the framework logs that tasks start and end.
framework = logging.getLogger(BaseTaskBackend.__module__.partition(".backends")[0])


def heard(signal: Signal) -> bool:
    """Whether anybody would notice that a task was enqueued, has started, or has succeeded.

    The framework itself receives those signals to log them; where nobody else does and its lines
    would be shown nowhere, a job need not be described to nobody.
    """
    level = logging.DEBUG if signal is task_enqueued else logging.INFO
    return _shown(level) or foreign(signal)


def _shown(level: int) -> bool:
    """Whether a handler would take a line of the framework's logger.

    With Django's own logging it is made, and dropped by the console's filter unless DEBUG is on.
    """
    logger: logging.Logger | None = framework if framework.isEnabledFor(level) else None
    while logger is not None:
        for handler in logger.handlers:
            dropped = any(isinstance(each, RequireDebugTrue) for each in handler.filters)
            if level >= handler.level and (settings.DEBUG or not dropped):
                return True
        logger = logger.parent if logger.propagate else None
    return False


def foreign(signal: Signal) -> bool:
    """Whether anybody but the framework receives a signal, and might take its time."""
    return any(key[0] not in _OWN for key, *_ in signal.receivers)


def _own_receivers() -> frozenset[int]:
    """The framework's receivers, as a signal's list of receivers names them."""
    own = vars(import_module(f"{framework.name}.signals"))
    return frozenset(id(each) for name, each in own.items() if name.startswith("log_task_"))


_OWN = _own_receivers()
