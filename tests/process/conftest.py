"""Fixtures of the process tests: a place on the run's server, and scenes on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from example_project import embedded

from . import places, times
from .places import Place, Server
from .scene import Scene, Scenes, opened


@pytest.fixture(scope="session")
def place(django_db_blocker: Any) -> Iterator[Place]:
    """A database of the process tests' own, on the server of the run."""
    with django_db_blocker.unblock(), places.made(os.environ["DATABASE_URL"]) as made:
        yield made


@pytest.fixture(scope="session")
def scenes(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Scenes:
    """Opens scenes, one at a time, for fixtures that play one for several tests."""
    return lambda name: opened(place, tmp_path_factory.mktemp(name))


@pytest.fixture
def scene(place: Place, tmp_path: Path) -> Iterator[Scene]:
    """Empty tables, and workers that end with the test."""
    with opened(place, tmp_path) as it:
        yield it


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL that a test may stop, start and reconfigure; it has to leave it running."""
    try:
        it = Server()
    except embedded.ServerUnavailable as trouble:
        pytest.skip(f"no PostgreSQL to be harmed: {trouble}")
    yield it
    it.remove()


@pytest.fixture(scope="session")
def harmed_place(server: Server, django_db_blocker: Any) -> Iterator[Place]:
    """A database on the server that may be harmed."""
    with django_db_blocker.unblock(), places.made(server.url) as made:
        yield made


@pytest.fixture
def harmed(harmed_place: Place, tmp_path: Path) -> Iterator[Scene]:
    """A scene on the server that may be harmed; handlers write into a file."""
    with opened(harmed_place, tmp_path) as it:
        it.ledger_file = tmp_path / "ledger"
        yield it


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if times.measured:
        terminalreporter.section("seconds, by the database's clock")
        for what, seconds in times.measured:
            terminalreporter.write_line(f"{seconds:7.2f}  {what}")
