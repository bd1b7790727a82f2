"""Tasks and the decorator: the same on every Django, and every trap of the framework."""

from __future__ import annotations

import copy
import inspect
import pickle
import sys
import types
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings as django_settings

from django_relay import Backoff, compat, task
from django_relay.compat import InvalidTask, Task
from django_relay.exceptions import TaskNotFound
from django_relay.options import UNSET, Options
from django_relay.task import RelayTask, policy_of, registered, resolve
from tests import tasks

from .test_storable import BAD

BACKENDS = f"{'django_tasks' if compat.NEEDS_BACKPORT else 'django.tasks'}.backends"
framework = sys.modules["django_tasks" if compat.NEEDS_BACKPORT else "django.tasks"]
minute = timedelta(minutes=1)


@pytest.fixture
def others(settings: Any) -> None:
    """Backends of the framework beside ours, as projects use them in tests."""
    settings.TASKS = {
        "default": django_settings.TASKS["default"],
        "dummy": {"BACKEND": f"{BACKENDS}.dummy.DummyBackend"},
        "immediate": {"BACKEND": f"{BACKENDS}.immediate.ImmediateBackend"},
    }


def function() -> None:
    """A function that tests make tasks of."""


# ------------------------------------------------------------------------------- the decorator


def test_the_decorator_keeps_our_keywords_on_every_django() -> None:
    assert type(tasks.stubborn) is RelayTask
    assert isinstance(tasks.stubborn, Task)
    assert tasks.stubborn.priority == 5
    assert tasks.stubborn.max_attempts == 7
    assert tasks.stubborn.backoff == Backoff(base=timedelta(seconds=2))
    assert tasks.tireless.max_attempts is None


def test_the_bare_decorator_leaves_everything_open() -> None:
    assert type(tasks.echo) is RelayTask
    assert tasks.echo.max_attempts is UNSET
    assert tasks.echo.backoff is UNSET
    assert tasks.echo.call(3) == 3
    assert tasks.async_echo.call(3) == 3


def test_the_frameworks_own_decorator_makes_our_tasks_too() -> None:
    made = framework.task(function)
    assert type(made) is RelayTask
    if "kwargs" in inspect.signature(framework.task).parameters:  # not on Django 6.0
        made = framework.task(max_attempts=9, backoff=minute)(function)
        assert (made.max_attempts, made.backoff) == (9, Backoff(base=minute))


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize("backend", ["dummy", "immediate"])
def test_the_decorator_works_under_a_backend_that_knows_nothing_of_us(backend: str) -> None:
    made = task(backend=backend, max_attempts=4, backoff=minute)(tasks.echo.func)
    assert isinstance(made, RelayTask)
    assert made.max_attempts == 4
    assert made.enqueue(3).args == [3]


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"max_attempts": 0}, "max_attempts is 0. Use a whole number of at least 1"),
        ({"max_attempts": -1}, "max_attempts is -1"),
        ({"max_attempts": True}, "of type bool"),
        ({"max_attempts": 2.5}, "of type float"),
        ({"max_attempts": "3"}, "of type str"),
        ({"max_attempts": 10**10}, "max_attempts is 10000000000"),
        ({"backoff": 5}, "backoff is of type int"),
        ({"backoff": None}, "backoff is of type NoneType"),
        ({"backoff": timedelta(0)}, "backoff is 0:00:00"),
        ({"backoff": -minute}, "base must lie between"),
        ({"backoff": timedelta.max}, "base must lie between"),
        ({"priority": 101}, "priority must be a whole number"),
        ({"priority": 3.1}, "priority must be a whole number"),
        ({"priority": float("nan")}, "priority must be a whole number"),
        ({"priority": float("inf")}, "priority must be a whole number"),
        ({"priority": True}, "priority must be a whole number"),
        ({"priority": "high"}, "priority must be a whole number"),
        ({"queue_name": ""}, "queue_name must have 1 to 64"),
        ({"queue_name": "x" * 65}, "queue_name must have 1 to 64"),
        ({"queue_name": "a\x00b"}, "queue_name must have 1 to 64"),
        ({"queue_name": "\ud800"}, "queue_name must have 1 to 64"),
        ({"queue_name": 5}, "queue_name must be text"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(
    keywords: dict[str, Any], error: str
) -> None:
    with pytest.raises(InvalidTask, match=error):
        task(**keywords)(function)


def test_an_unknown_keyword_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(TypeError, match="no keyword 'retries'; it has backoff, max_attempts"):
        task(retries=3)(function)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="run_after cannot be fixed"):
        task(run_after=minute)(function)  # type: ignore[call-overload]


def test_the_frameworks_own_rules_hold() -> None:
    with pytest.raises(InvalidTask, match="module level"):
        task(lambda: None)
    with pytest.raises(InvalidTask, match="first argument of 'context'"):
        task(takes_context=True)(function)


# ---------------------------------------------------------------------------------------- using


def test_using_keeps_our_fields_and_changes_a_copy() -> None:
    later = datetime(2030, 1, 1, tzinfo=UTC)
    copied = tasks.stubborn.using(priority=9, run_after=later)
    assert type(copied) is RelayTask
    assert (copied.priority, copied.max_attempts, copied.run_after) == (9, 7, later)
    assert copied.backoff == tasks.stubborn.backoff
    assert tasks.stubborn.priority == 5


def test_using_changes_our_fields_too() -> None:
    assert tasks.stubborn.using(max_attempts=None).max_attempts is None
    assert tasks.stubborn.using(max_attempts=2).using(priority=1).max_attempts == 2
    assert tasks.stubborn.using(backoff=minute).backoff == Backoff(base=minute)
    with pytest.raises(InvalidTask, match="max_attempts is 0"):
        tasks.stubborn.using(max_attempts=0)


@pytest.mark.parametrize("delay", [timedelta(0), minute, timedelta(days=36_500)])
def test_a_delay_may_be_a_timedelta(delay: timedelta) -> None:
    assert tasks.echo.using(run_after=delay).run_after == delay
    assert tasks.plain.using(run_after=delay).run_after == delay


@pytest.mark.parametrize(
    ("when", "error"),
    [
        (datetime(2030, 1, 1), "aware datetime"),  # noqa: DTZ001
        (datetime.max.replace(tzinfo=UTC), "in the years 1900 to 9998"),
        (datetime.min.replace(tzinfo=UTC), "in the years 1900 to 9998"),
        (-minute, "between nothing and 36500 days"),
        (timedelta.max, "between nothing and 36500 days"),
        (5, "a datetime or a timedelta, not int"),
        ("tomorrow", "a datetime or a timedelta, not str"),
    ],
)
def test_a_time_that_makes_no_sense_is_refused(when: Any, error: str) -> None:
    for made in (tasks.echo, tasks.plain):
        with pytest.raises(InvalidTask, match=error):
            made.using(run_after=when)


@pytest.mark.usefixtures("others")
def test_a_delay_is_refused_for_a_backend_that_takes_times_alone() -> None:
    with pytest.raises(InvalidTask, match=r"'dummy' is none\. Use a datetime"):
        tasks.echo.using(backend="dummy", run_after=minute)


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize("backend", ["dummy", "immediate"])
@pytest.mark.parametrize(("value", "why"), BAD, ids=lambda value: type(value).__name__)
def test_other_backends_refuse_the_arguments_that_ours_refuses(
    backend: str, value: Any, why: str
) -> None:
    elsewhere = tasks.echo.using(backend=backend)
    with pytest.raises((TypeError, ValueError), match=why):
        elsewhere.enqueue(value)
    with pytest.raises((TypeError, ValueError), match=why):
        async_to_sync(elsewhere.aenqueue)(value=value)


@pytest.mark.usefixtures("others")
def test_a_plain_task_rebound_to_us_stays_plain_and_inherits() -> None:
    made = compat.task_backends["dummy"].task_class(
        func=tasks.plain.func, priority=0, backend="dummy", queue_name="default", run_after=None
    )
    rebound = made.using(backend="default")
    assert type(rebound) is Task
    options = Options.parse({"max_attempts": 8, "tasks": {"tests.*": {"backoff": minute}}})
    policy = policy_of(rebound, options)
    assert (policy.max_attempts, policy.backoff.base) == (8, minute)


def test_what_the_task_says_comes_first() -> None:
    options = Options.parse({"tasks": {"tests.tasks.*": {"max_attempts": 9}}})
    assert policy_of(tasks.stubborn, options).max_attempts == 7
    assert policy_of(tasks.tireless, options).max_attempts is None
    assert policy_of(tasks.echo, options).max_attempts == 9


# ----------------------------------------------------------------------------- copies and pickles

EACH = [tasks.echo, tasks.stubborn, tasks.tireless, tasks.told, tasks.Shelf.kept]


@pytest.mark.parametrize("made", EACH, ids=lambda made: made.name)
def test_a_task_survives_pickles_and_copies(made: RelayTask[..., Any]) -> None:
    changed = made.using(priority=3, max_attempts=11, backoff=minute, run_after=minute)
    for original in (made, changed):
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            assert pickle.loads(pickle.dumps(original, protocol)) == original
        assert copy.copy(original) == original
        assert copy.deepcopy([original]) == [original]
    assert pickle.loads(pickle.dumps(made)).max_attempts is made.max_attempts


def test_a_task_is_frozen_and_has_no_room_for_more() -> None:
    with pytest.raises(FrozenInstanceError):
        tasks.echo.max_attempts = 3  # type: ignore[misc]
    assert not hasattr(tasks.echo, "__dict__")
    assert hash(tasks.echo) == hash(copy.copy(tasks.echo))


def test_a_pickle_of_a_task_that_is_gone_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = pickle.dumps(tasks.echo)
    monkeypatch.setattr(tasks, "echo", None)
    with pytest.raises(ValueError, match=r"Expected .* to point to a Task"):
        pickle.loads(kept)


# -------------------------------------------------------------------------------------- resolving


@pytest.fixture
def broken(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, text in (
        ("relay_exits", "import sys; sys.exit(0)"),
        ("relay_syntax", "def f(:"),
        ("relay_needs", "import relay_surely_missing"),
        ("relay_raises", "raise ValueError('a\\x00b')"),
    ):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.startswith("relay_")]:
        del sys.modules[name]


@pytest.mark.parametrize("made", [*EACH, tasks.plain], ids=lambda made: made.name)
def test_a_path_leads_to_its_task(made: Any) -> None:
    assert resolve(made.module_path) is made
    assert registered(made.func) is made


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("os.system", "no task, and is not called"),
        ("tests.tasks.not_a_task", "Is @task missing"),
        ("tests.tasks.removed", "renamed or removed"),
        ("tests.renamed.echo", "renamed or removed"),
        ("nowhere.tasks.echo", "no such module"),
        ("relay_exits.f", "raised SystemExit: 0"),
        ("relay_syntax.f", "raised SyntaxError"),
        ("relay_needs.f", "raised ModuleNotFoundError: No module named 'relay_surely_missing'"),
        ("relay_raises.f", r"raised ValueError: a\\x00b"),
        ("echo", "no such module"),
        ("", "no such module"),
        ("..", "cannot be imported"),
        (".tests.tasks.echo", "cannot be imported"),
        ("tests.tasks.echo.func", "Is @task missing"),
    ],
)
def test_a_path_that_leads_to_no_task_says_why(path: str, reason: str) -> None:
    with pytest.raises(TaskNotFound, match=reason):
        resolve(path)


def test_a_restored_task_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("relay_restored")
    monkeypatch.setitem(sys.modules, "relay_restored", module)
    with pytest.raises(TaskNotFound):
        resolve("relay_restored.echo")
    module.echo = tasks.echo  # type: ignore[attr-defined]
    assert resolve("relay_restored.echo") is tasks.echo
