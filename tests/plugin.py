"""Gives a test run a PostgreSQL of its own, unless DATABASE_URL names one.

A plugin, named in pyproject.toml, and not a fixture or conftest.py: pytest-django reads the
settings before either of those runs. Workers of pytest-xdist and worker processes under test
inherit DATABASE_URL and so share the server of the run; it ends with the run, however that ends.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from example_project import embedded

if TYPE_CHECKING:
    from collections.abc import Generator

_seats: list[embedded.Seat] = []


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, object, object]:
    asked = early_config.known_args_namespace
    if "DATABASE_URL" not in os.environ and not (asked.help or asked.version):
        try:
            seat = embedded.borrow()
        except embedded.ServerUnavailable as trouble:
            raise pytest.UsageError(str(trouble)) from trouble
        _seats.append(seat)
        os.environ["DATABASE_URL"] = seat.url
    return (yield)


def pytest_report_header() -> str | None:
    return "PostgreSQL: a server of this run" if _seats else "PostgreSQL: DATABASE_URL"


def pytest_unconfigure() -> None:
    while _seats:
        _seats.pop().leave()
        os.environ.pop("DATABASE_URL", None)
