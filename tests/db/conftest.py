"""The stage of a database test: empty tables and real sessions, without a test's transaction.

Transitions commit and lock for themselves, so a test inside one transaction would prove nothing.
The stage therefore has sessions of its own, and empties the tables itself: that takes a quarter of
the time of a transactional test's flush. ``db`` only sees to it that the test database is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.rejecting import Reject, triggers

from .books import PLAN, Books, opened
from .stage import Stage


@pytest.fixture
def stage(db: None) -> Iterator[Stage]:
    """The package's tables, empty, with sessions that commit what they do."""
    made = Stage()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def reject(stage: Stage) -> Iterator[Reject]:
    """Have a trigger reject rows."""
    with triggers(stage.db.execute) as reject:
        yield reject


@pytest.fixture
def books(stage: Stage) -> Iterator[Books]:
    """A bookkeeper without its thread, of two slots."""
    with opened(replace(PLAN, slots=2, async_slots=2)) as made:
        yield made
