"""Signals are sent so that no receiver, and no logging handler, can disturb the job."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.dispatch import Signal

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
