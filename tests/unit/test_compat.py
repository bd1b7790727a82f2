"""Signals are sent so that no receiver, and no logging handler, can disturb the job."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.dispatch import Signal
from django.utils.log import RequireDebugTrue

from django_relay import compat
from django_relay.backend import RelayBackend


class Result:
    """Stands for a TaskResult."""

    id = "17"


def send(signal: Signal) -> list[Exception]:
    return compat.announce(signal, RelayBackend, task_result=Result())  # type: ignore[arg-type]


def test_receivers_are_told_the_backend_class_and_the_result() -> None:
    signal, seen = Signal(), []

    def receiver(sender: Any, task_result: Any, **kwargs: Any) -> None:
        seen.append((sender, task_result.id))

    signal.connect(receiver)
    assert send(signal) == []
    assert seen == [(RelayBackend, "17")]


def test_a_receiver_that_raises_is_named_and_the_others_are_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    signal, seen = Signal(), []

    def clumsy(**kwargs: Any) -> None:
        raise ValueError("a secret")

    def careful(**kwargs: Any) -> None:
        seen.append(1)

    signal.connect(clumsy)
    signal.connect(careful)
    (failure,) = send(signal)
    assert isinstance(failure, ValueError)
    assert seen == [1]
    (record,) = [each for each in caplog.records if each.name == "django_relay.signals"]
    assert "clumsy" in record.getMessage()
    assert "secret" not in record.getMessage()
    assert record.job_id == "17"  # type: ignore[attr-defined]


class Explosive(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError("no disk")


@pytest.mark.parametrize("name", ["django.dispatch", "django_relay.signals"])
def test_a_logging_handler_that_raises_is_no_matter(name: str) -> None:
    signal = Signal()

    def clumsy(**kwargs: Any) -> None:
        raise ValueError

    signal.connect(clumsy)
    logger, handler = logging.getLogger(name), Explosive()
    logger.addHandler(handler)
    try:
        assert send(signal)
    finally:
        logger.removeHandler(handler)


def test_a_receiver_that_exits_is_not_silenced() -> None:
    signal = Signal()

    def leaving(**kwargs: Any) -> None:
        raise KeyboardInterrupt

    signal.connect(leaving)
    with pytest.raises(KeyboardInterrupt):
        send(signal)


def test_the_bases_are_the_frameworks_own_classes() -> None:
    assert compat.TaskOf[[int], str] is compat.Task
    assert compat.ContextOf[..., Any] is compat.TaskContext


class Elsewhere(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        pass


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """The framework's logger as Django's own logging leaves it, and nobody above it."""
    monkeypatch.setattr(compat, "foreign", lambda signal: False)
    monkeypatch.setattr(compat.framework, "propagate", False)
    monkeypatch.setattr(compat.framework, "level", logging.INFO)
    compat.framework.manager._clear_cache()  # type: ignore[attr-defined]
    return compat.framework


@pytest.mark.parametrize("debug", [True, False])
def test_lines_that_djangos_console_drops_are_heard_by_nobody(
    quiet: logging.Logger, settings: Any, monkeypatch: pytest.MonkeyPatch, *, debug: bool
) -> None:
    settings.DEBUG = debug
    console = Elsewhere()
    console.addFilter(RequireDebugTrue())
    monkeypatch.setattr(quiet, "handlers", [console])
    assert compat.heard(compat.task_started) is debug


@pytest.mark.parametrize(
    ("level", "heard"), [(logging.NOTSET, True), (logging.INFO, True), (logging.ERROR, False)]
)
def test_a_handler_of_the_projects_own_is_heard_by_its_level(
    quiet: logging.Logger, monkeypatch: pytest.MonkeyPatch, level: int, *, heard: bool
) -> None:
    monkeypatch.setattr(quiet, "handlers", [Elsewhere(level)])
    assert compat.heard(compat.task_finished) is heard
    assert not compat.heard(compat.task_enqueued)  # which is logged for debugging


def test_a_receiver_of_the_projects_own_is_heard_whatever_is_logged() -> None:
    def receiver(**kwargs: Any) -> None:
        pass

    compat.task_started.connect(receiver)
    try:
        assert compat.heard(compat.task_started)
    finally:
        compat.task_started.disconnect(receiver)
