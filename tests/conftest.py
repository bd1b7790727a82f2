"""Fixtures that every test may use; the server itself comes from tests/plugin.py."""

from __future__ import annotations

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the browser's tests last: their driver leaves an event loop running in this thread."""
    items.sort(key=lambda item: "browser" in item.path.parts)
