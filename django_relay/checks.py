"""System checks: what is not supported or cannot work is said in plain words, with the remedy.

``check_backend`` looks at one backend's settings and is what its ``check`` returns; the registered
checks look at the surroundings, at several backends together and, when asked to, at the database.
Importable where the Tasks framework itself is missing, since that is one of the things to report.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import combinations
from typing import Any

import django
from django.apps import apps
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connections, router
from django.db.utils import NotSupportedError, OperationalError
from django.utils.connection import ConnectionDoesNotExist

from .options import BadOptions, Options

MAX_NAME = 64
MIN_PYTHON = (3, 11)
MIN_DJANGO = (5, 2)
MIN_POSTGRESQL = 14


def queue_problem(name: Any) -> str:
    """Tell why ``name`` cannot be a queue's, as a sentence without its subject; else nothing."""
    if not isinstance(name, str):
        return f"must be text, not {type(name).__name__}."
    if not name or len(name) > MAX_NAME or not name.isprintable():
        return f"must have 1 to {MAX_NAME} printable characters."
    return ""


def queue_problems(given: Any) -> list[str]:
    """Tell what is wrong with QUEUES, as sentences without their subject."""
    if not isinstance(given, list | tuple | set | frozenset):
        return [f"must be a list of names, not {type(given).__name__}; [] means any queue."]
    return [f"has a name that {problem}" for name in given if (problem := queue_problem(name))]


def check_backend(alias: str, *, queues: Any, options: Any) -> list[CheckMessage]:
    """Check one backend's entry in TASKS. Connects to nothing."""
    where = f"TASKS[{alias!r}]"
    found: list[CheckMessage] = []
    if not apps.is_installed("django_relay"):
        found.append(
            _error(
                "E001",
                f"{where} uses RelayBackend, but django_relay is no installed app.",
                'Add "django_relay" to INSTALLED_APPS and run migrate.',
            )
        )
    if len(alias) > MAX_NAME:
        found.append(
            _error(
                "E003", f"{where}: the alias is too long.", f"Use at most {MAX_NAME} characters."
            )
        )
    found.extend(
        _error("E003", f"{where}['QUEUES'] {problem}", 'Write ["default", "mail"], for instance.')
        for problem in queue_problems(queues)
    )
    try:
        parsed = Options.parse(options)
    except BadOptions as bad:
        found.extend(_error("E002", f"{where}: {p.message}", p.hint) for p in bad.problems)
    else:
        found.extend(_check_database(where, parsed))
    return found


def _check_database(where: str, options: Options) -> Iterator[CheckMessage]:
    database = _database(options)
    if database is None:
        return
    hint = f"Name a PostgreSQL database of DATABASES in {where}['OPTIONS']['database']."
    try:
        connection = connections[database]
    except ConnectionDoesNotExist:
        yield _error("E004", f"{where}: there is no database {database!r}.", hint)
        return
    if connection.vendor != "postgresql":
        yield _error("E004", f"{where}: the database {database!r} is no PostgreSQL.", hint)
        return
    from django.db.backends.postgresql.psycopg_any import is_psycopg3

    if not is_psycopg3:
        yield _error(
            "E004",
            f"{where}: Django uses psycopg2, and RelayBackend needs psycopg 3.",
            "pip install 'psycopg[binary]>=3.2.4'; Django prefers it as soon as it is there.",
        )


@register()
def check_surroundings(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check Python, Django and, where this Django needs it, the backport of its Tasks framework."""
    found: list[CheckMessage] = []
    if sys.version_info < MIN_PYTHON:
        found.append(_error("E006", "This Python is too old.", "Use Python 3.11 or newer."))
    if django.VERSION < MIN_DJANGO:
        found.append(_error("E006", "This Django is too old.", "Use Django 5.2, 6.0 or newer."))
    if django.VERSION >= (6, 0):
        return found
    if find_spec("django_tasks") is None:
        found.append(
            _error(
                "E007",
                "Django 5.2 has no Tasks framework, and its backport is not installed.",
                "pip install 'django-relay[backport]' and add \"django_tasks\" to INSTALLED_APPS.",
            )
        )
    elif not apps.is_installed("django_tasks"):
        found.append(
            _error(
                "E007",
                "The backport of the Tasks framework is no installed app, so TASKS is not checked.",
                'Add "django_tasks" to INSTALLED_APPS.',
            )
        )
    return found


@register()
def check_overlap(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check that no queue of a database belongs to two backends: workers would mix them up."""
    placed = [(backend, _place(backend)) for backend in _backends()]
    return [
        _error(
            "E005",
            f"TASKS[{one.alias!r}] and TASKS[{two.alias!r}] share a database and "
            f"{_shared(one.queues, two.queues)}, so a worker of one would take jobs of the other.",
            "Give each its own QUEUES (an empty list means any queue), or its own database.",
        )
        for (one, here), (two, there) in combinations(placed, 2)
        if here is not None and here == there and _shared(one.queues, two.queues)
    ]


@register(Tags.database)
def check_databases(
    app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Check the servers of the databases asked about (``check --database``, ``migrate``)."""
    used = {_database(options) for backend in _backends() if (options := _options(backend))}
    found: list[CheckMessage] = []
    for alias in sorted(used.intersection(databases or ()) - {None}, key=str):
        if connections[str(alias)].vendor == "postgresql":
            found.extend(_check_server(str(alias)))
    return found


def _check_server(alias: str) -> Iterator[CheckMessage]:
    try:
        with connections[alias].cursor() as cursor:
            cursor.execute(
                "SELECT current_setting('server_version_num')::integer / 10000, "
                "current_setting('server_encoding')"
            )
            version, encoding = cursor.fetchone()
    except NotSupportedError as refusal:  # Django's own minimum may be higher
        yield _error("E008", f"Database {alias!r}: {refusal}", "Use a newer PostgreSQL.")
        return
    except OperationalError:  # not there: whoever needs it will say so better
        return
    if version < MIN_POSTGRESQL:
        yield _error(
            "E008",
            f"Database {alias!r} is PostgreSQL {version}, which is too old.",
            f"Use PostgreSQL {MIN_POSTGRESQL} or newer.",
        )
    if encoding != "UTF8":
        yield _error(
            "E008",
            f"Database {alias!r} has the encoding {encoding}, which cannot hold every error text.",
            "Create it with ENCODING 'UTF8'.",
        )


def _error(number: str, message: str, hint: str) -> Error:
    return Error(message, hint=hint, id=f"django_relay.{number}")


def _backends() -> list[Any]:
    """Return the RelayBackends of TASKS; others, and what cannot be made, are not our matter."""
    try:
        from .compat import InvalidTaskBackend, task_backends
    except ImportError:
        return []
    found = []
    for alias in task_backends:
        try:
            backend = task_backends[alias]
        except (InvalidTaskBackend, KeyError, TypeError):
            continue
        if hasattr(type(backend), "relay_options"):
            found.append(backend)
    return found


def _options(backend: Any) -> Options | None:
    try:
        return Options.parse(backend.options)
    except BadOptions:
        return None


def _database(options: Options) -> str | None:
    """Return the alias that holds the jobs, or None where that cannot be known."""
    if options.database is not None:
        return options.database
    if not apps.is_installed("django_relay"):
        return None
    return router.db_for_write(apps.get_model("django_relay", "Job"))


def _place(backend: Any) -> tuple[str, ...] | None:
    """Tell which database a backend uses: two aliases may lead to one."""
    options = _options(backend)
    alias = None if options is None else _database(options)
    if alias is None or alias not in connections:
        return None
    settings = connections[alias].settings_dict
    return tuple(str(settings.get(key) or "") for key in ("HOST", "PORT", "NAME"))


def _shared(one: set[str], two: set[str]) -> str:
    """Put into words what queues two backends share; nothing when they share none."""
    if not one or not two:
        return "a queue (one of them takes any)"
    both = sorted(one & two)
    return f"the queue {both[0]!r}" if both else ""
