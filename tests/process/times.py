"""Seconds that tests have measured, for the report at the end of a run."""

from __future__ import annotations

from datetime import datetime

measured: list[tuple[str, float]] = []


def note(what: str, began: datetime, ended: datetime | None) -> float:
    """Keep the time between two instants of the database's clock, and return it in seconds."""
    assert ended is not None
    seconds = (ended - began).total_seconds()
    measured.append((what, seconds))
    return seconds
