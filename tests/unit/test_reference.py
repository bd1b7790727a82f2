"""The reference pages tell what is: each of their tables is held against the code."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterable
from dataclasses import fields
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management.base import BaseCommand

import django_relay
from django_relay import checks, exceptions, options, transitions
from django_relay.admin import actions, verbs
from django_relay.backoff import Backoff
from django_relay.compat import Task
from django_relay.context import RelayContext
from django_relay.management.commands import relay_audit
from django_relay.options import BadOptions, Options
from django_relay.results import ERRORS_READ, EVENTS_READ, STATUS
from django_relay.states import FINAL, MAX_INTERRUPTIONS, TRANSITIONS, EventKind, State, Transition
from django_relay.supervisor import FORCED, STOPPED
from django_relay.task import RelayTask
from tests.pages import DOCS, ROOT, code, table

SETTINGS = DOCS / "reference" / "settings.md"
STATES = DOCS / "reference" / "states-and-events.md"
COMMAND = DOCS / "reference" / "command.md"
TASKS = DOCS / "reference" / "task-options.md"
ADMIN = DOCS / "reference" / "admin.md"
ONE_JOB = DOCS / "explanation" / "one-job.md"

UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "day": timedelta(days=1),
    "days": timedelta(days=1),
}


def value(cell: str) -> Any:
    """Read a default or a bound as the tables write them."""
    if literal := code(cell):
        return eval(literal[0], {"Backoff": Backoff})
    if "." in cell or cell.isdigit():
        return float(cell)
    number, unit = cell.split()
    return float(number) * UNITS[unit]


def text(page: Path) -> str:
    return " ".join(page.read_text(encoding="utf-8").split())


# ---------------------------------------------------------------------------------- settings


def test_the_table_of_options_is_the_options() -> None:
    told = {code(name)[0]: (value(default), doc) for name, _, default, _, doc in options_table()}
    real = {
        each.name: (getattr(Options(), each.name), each.metadata["doc"]) for each in fields(Options)
    }
    assert told == real
    assert list(told) == [each.name for each in fields(Options)]


def options_table() -> list[list[str]]:
    return table(SETTINGS, "OPTIONS")


@pytest.mark.parametrize("row", options_table(), ids=lambda row: code(row[0])[0])
def test_an_option_has_the_type_and_the_bounds_that_are_told(row: list[str]) -> None:
    name, kinds = code(row[0])[0], code(row[1])
    if " to " in row[3]:
        low, high = (value(each) for each in row[3].split(" to "))
        step: Any = timedelta(microseconds=1)
        if isinstance(low, float):
            low, high, step = int(low), int(high), 1
        beside = {"lease": low} if name == "stuck_after" else {}
        for good in (low, high):
            assert getattr(Options.parse({**beside, name: good}), name) == good
        for bad in (low - step, high + step):
            with pytest.raises(BadOptions):
                Options.parse({**beside, name: bad})
    if "None" in kinds:
        assert getattr(Options.parse({name: None}), name) is None
    else:
        with pytest.raises(BadOptions):
            Options.parse({name: None})


def test_the_table_of_backoff_is_its_arguments() -> None:
    rows = table(SETTINGS, "Backoff")
    told = {code(name)[0]: value(default) for name, default, _, _ in rows}
    assert told == {each.name: getattr(Backoff(), each.name) for each in fields(Backoff)}
    for name, _, bounds, _ in rows:
        low, high = (value(each) for each in bounds.split(" to "))
        others = {"base": timedelta(milliseconds=1), "cap": timedelta(days=30)}
        for good in (low, high):
            Backoff(**{**others, code(name)[0]: good})
        for bad in (low - low / 2 - low.__class__(1), high * 1.01):
            with pytest.raises(ValueError, match="must lie between"):
                Backoff(**{**others, code(name)[0]: bad})


def test_the_table_of_checks_has_each_number() -> None:
    source = inspect.getsource(checks)
    real = {f"django_relay.{number}" for number in re.findall(r'"(E\d{3})"', source)}
    assert {code(name)[0] for name, _ in table(SETTINGS, "System checks")} == real


def test_what_a_policy_for_tasks_may_say_is_told() -> None:
    doc = next(row[4] for row in options_table() if code(row[0]) == ["tasks"])
    assert doc.startswith(" and ".join(options._POLICY))


# ------------------------------------------------------------------------- states and events


def test_the_table_of_states_is_the_states() -> None:
    told = {
        code(name)[0]: (status, "Final." in doc) for name, status, doc in table(STATES, "States")
    }
    assert told == {state.value: (STATUS[state].name, state in FINAL) for state in State}


def test_the_table_of_transitions_is_the_machine() -> None:
    assert [tuple(row) for row in told_transitions()] == [real(each) for each in TRANSITIONS]


def told_transitions() -> list[list[Any]]:
    return [
        [verb, spread(source), spread(target), frozenset(code(kinds)), by]
        for verb, source, target, kinds, by in table(STATES, "Transitions")
    ]


def spread(cell: str) -> frozenset[str]:
    return frozenset(cell.split(", "))


def real(row: Transition) -> tuple[Any, ...]:
    def states(some: Iterable[State | None], none: str) -> frozenset[str]:
        return frozenset(none if state is None else state.value for state in some)

    every = row.source == frozenset(State) and row.source == row.target
    source = frozenset({"any"}) if every else states(row.source, "-")
    target = frozenset({"unchanged"}) if every else states(row.target, "gone")
    return row.verb, source, target, frozenset(kind.value for kind in row.kinds), row.by


def test_the_table_of_events_is_the_kinds() -> None:
    assert [code(kind)[0] for kind, _ in table(STATES, "Events")] == EventKind.values


def test_each_key_of_an_events_data_is_written_somewhere_and_explained() -> None:
    explained = {name for keys, _ in table(STATES, "Events", number=2) for name in code(keys)}
    source = (
        "".join(path.read_text() for path in (ROOT / "django_relay" / "transitions").glob("*.py"))
        + (ROOT / "django_relay" / "outcomes.py").read_text()
    )
    for kind, data in table(STATES, "Events"):
        named = set(code(data)) - set(EventKind.values)
        assert named <= explained, kind
        assert all(re.search(rf"""['"]{name}['"]""", source) for name in named), kind


def test_the_numbers_of_the_page_of_states_are_the_codes() -> None:
    assert f"interrupted {MAX_INTERRUPTIONS} times" in text(STATES)


@pytest.mark.parametrize("row", table(STATES, "Reading and moving jobs by code"))
def test_the_functions_for_people_take_what_is_told(row: list[str]) -> None:
    call = code(row[0])[0]
    function = getattr(transitions, call.partition("(")[0])
    told = re.sub(r"=\)", "=...)", call.partition("(")[2]).rstrip(")").split(", ")
    known = inspect.signature(function).parameters
    assert [each.partition("=")[0] for each in told] == list(known)
    for each in told:
        name, given, default = each.partition("=")
        if given and default not in ("", "..."):
            assert known[name].default == eval(default)


# --------------------------------------------------------------------------------- commands


def flags(name: str) -> dict[str, argparse.Action]:
    """Return the command's own flags, without those that every command of Django has."""
    command = import_module(f"django_relay.management.commands.{name}").Command()
    ours = command.create_parser("manage.py", name)
    every = {
        each
        for action in BaseCommand().create_parser("", "")._actions
        for each in action.option_strings
    }
    return {
        action.option_strings[0]: action
        for action in ours._actions
        if action.option_strings and not set(action.option_strings) & every
    }


@pytest.mark.parametrize(
    ("name", "heading"), [("relay_worker", "Flags"), ("relay_audit", "relay_audit")]
)
def test_the_table_of_flags_is_the_commands(name: str, heading: str) -> None:
    rows = table(COMMAND, heading)
    real = flags(name)
    assert [code(flag)[0] for flag, _, _ in rows] == list(real)
    for flag, default, doc in rows:
        action = real[code(flag)[0]]
        assert doc.endswith(".")
        if action.default not in (None, False):
            assert code(default) == [str(action.default)]
        elif "OPTIONS" in default:
            assert code(default) == [f'OPTIONS["{action.dest}"]']
            assert action.dest in {each.name for each in fields(Options)}
        elif action.const is True:
            assert default == "off"


def test_every_command_has_its_section() -> None:
    directory = ROOT / "django_relay" / "management" / "commands"
    commands = {path.stem for path in directory.glob("relay_*.py")}
    assert commands == set(re.findall(r"^## (relay_\w+)$", COMMAND.read_text(), re.MULTILINE))


def test_the_exit_codes_are_the_commands() -> None:
    told = {int(code(number)[0]) for number, _ in table(COMMAND, "Exit codes")}
    assert told == {STOPPED, 1, 2, FORCED}


def test_the_exit_codes_of_the_audit_are_its_own() -> None:
    told = [int(code(number)[0]) for number, _ in table(COMMAND, "relay_audit", number=2)]
    assert told == [0, relay_audit.WRONG, relay_audit.BLIND, relay_audit.NOTHING]


# ------------------------------------------------------------------------------------- tasks


def test_the_table_of_keywords_is_the_decorators() -> None:
    told = [code(name)[0] for name, _, _ in table(TASKS, "Keywords of `@task`")]
    own = {each.name for each in fields(RelayTask)} - {each.name for each in fields(Task)}
    django_own = {"priority", "queue_name", "backend", "takes_context"}
    assert set(told) == own | django_own
    assert len(told) == len(set(told))
    docs = {each.name: each.metadata["doc"] for each in fields(Options)}
    said = {code(name)[0]: doc for name, _, doc in table(TASKS, "Keywords of `@task`")}
    assert said["max_attempts"] == docs["max_attempts"]


def test_using_takes_what_is_told() -> None:
    section = TASKS.read_text().split("## For one enqueue: `using`")[1].split("\n## ")[0]
    named = set(code(section.partition("It takes")[2])) & set(
        inspect.signature(RelayTask.using).parameters
    )
    assert named == set(inspect.signature(RelayTask.using).parameters) - {"self"}


def test_the_table_of_the_context_is_its_attributes() -> None:
    told = {name.rstrip("()") for cell, _ in table(TASKS, "The context") for name in code(cell)}
    real = {name for name in dir(RelayContext) if not name.startswith("_")}
    assert told == (real | {"task_result", "max_attempts", "fence"}) - {"control"} - hidden()
    assert all(hasattr(RelayContext, name) or name == "task_result" for name in told)


def hidden() -> set[str]:
    """Names that a context has from Django and that are not for tasks."""
    return {name for name in ("metadata", "save_metadata") if hasattr(RelayContext, name)}


def test_every_exception_of_the_package_is_on_the_page_of_tasks() -> None:
    public = [name for name in django_relay.__all__ if hasattr(exceptions, name)]
    assert all(f"`{name}" in TASKS.read_text() for name in public)


def test_the_bounds_of_a_result_are_told() -> None:
    assert f"at most the last {ERRORS_READ}" in text(TASKS)
    assert f"the last {EVENTS_READ:,} events" in text(TASKS)


# ------------------------------------------------------------------------------------- admin


def test_the_table_of_permissions_is_the_models() -> None:
    told = [name for cell, _ in table(ADMIN, "Permissions") for name in code(cell)]
    real = []
    for model in apps.get_app_config("django_relay").get_models():
        options = model._meta
        real += [f"{verb}_{options.model_name}" for verb in options.default_permissions]
        real += [name for name, _ in options.permissions]
    assert sorted(told) == sorted(real)


def test_the_table_of_actions_is_the_verbs() -> None:
    told = [
        (label, set(states.split(", ")), code(permission)[0])
        for label, _, states, permission in table(ADMIN, "Actions")
    ]
    real = [(str(v.label), {str(s) for s in v.effects}, v.permission) for v in verbs.VERBS]
    assert told == real
    assert f"up to {actions.MOST} at a time" in text(ADMIN)
