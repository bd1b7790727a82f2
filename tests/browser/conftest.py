"""A browser on the admin: signed in, watched for errors and for breaches of the strict policy.

Skipped with a reason where Chromium or its driver is missing. The site runs in a thread, so these
tests commit, and the tables are emptied after each.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = os.environ.get("RELAY_CHROMIUM") or shutil.which("chromium")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# The driver runs an event loop in the tests' own thread.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing = ""
    if CHROMIUM is None:
        missing = "no Chromium: apt-get install chromium, or set RELAY_CHROMIUM"
    elif not config.pluginmanager.hasplugin("playwright"):
        missing = "no driver: pip install pytest-playwright"
    for item in items:
        if "browser" in item.path.parts:
            item.add_marker("browser")
            # Of the driver's plugin, which pytest's next major release will not accept any more.
            item.add_marker(pytest.mark.filterwarnings("ignore:Session-scoped fixtures"))
            if missing:
                item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    return browser_type_launch_args | {"executable_path": CHROMIUM, "args": list(ARGUMENTS)}


@pytest.fixture
def watched(page: Page) -> Iterator[Page]:
    """A page on which every error of the console and of a script fails the test."""
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda said: (
            complaints.append(f"{said.type}: {said.text} ({said.location.get('url')})")
            if said.type in ("error", "warning") and "favicon" not in str(said.location)
            else None
        ),
    )
    yield page
    assert complaints == []


@pytest.fixture
def sign_in(watched: Page, live_server: Any) -> Callable[[User], Page]:
    """Sign a user in, and give the page, from which addresses count from the site's root."""

    def enter(user: User) -> Page:
        client = Client()
        client.force_login(user)
        cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
        domain = urlsplit(live_server.url).hostname
        watched.context.add_cookies(
            [{"name": settings.SESSION_COOKIE_NAME, "value": cookie, "domain": domain, "path": "/"}]
        )
        return watched

    return enter


@pytest.fixture
def site(live_server: Any) -> str:
    return f"{live_server.url}/admin/django_relay"
