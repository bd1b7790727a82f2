"""Fixtures that every test may use; the server itself comes from tests/plugin.py."""

from __future__ import annotations

import signal

import pytest

# A shell that runs the tests in the background has them ignore Ctrl-C, and every worker would
# inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the browser's tests last: their driver leaves an event loop running in this thread."""
    items.sort(key=lambda item: "browser" in item.path.parts)
