"""Where a page reads and where its links lead: one database, one admin site, one viewer.

The jobs lie where the RelayBackends of TASKS say. With several such databases each page shows one,
chosen by ``?database=``, and every link keeps the choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import ImproperlyConfigured
from django.db import router
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from django_relay.models import Job

CHOICE = "database"


def databases() -> list[str]:
    """Return the aliases that hold jobs, the first backend's first."""
    found = [alias for backend in backends() if (alias := _alias(backend))]
    return list(dict.fromkeys(found)) or [router.db_for_write(Job)]


def backends() -> list[Any]:
    """Return the RelayBackends of TASKS; what cannot be made is for the system checks to tell."""
    try:
        from django_relay.compat import InvalidTaskBackend, task_backends
    except ImportError:  # Django 5.2 without its backport: a check says so
        return []
    found = []
    for alias in task_backends:
        try:
            backend = task_backends[alias]
        except (InvalidTaskBackend, ImproperlyConfigured, KeyError, TypeError):
            continue
        if hasattr(type(backend), "relay_options"):
            found.append(backend)
    return found


def _alias(backend: Any) -> str | None:
    try:
        return str(backend.database)
    except ImproperlyConfigured:
        return None


@dataclass(frozen=True, slots=True)
class Place:
    """A database to read, a site to stay in, and a viewer who is shown only links that open."""

    database: str
    databases: tuple[str, ...]
    site: str
    user: Any

    @classmethod
    def of(cls, request: HttpRequest, site: str) -> Place:
        known = databases()
        chosen = request.GET.get(CHOICE, "")
        user = getattr(request, "user", None)
        return cls(chosen if chosen in known else known[0], tuple(known), site, user)

    @property
    def choice(self) -> dict[str, str]:
        """The query that keeps the choice of a database; empty for the first."""
        return {} if self.database == self.databases[0] else {CHOICE: self.database}

    def may(self, permission: str) -> bool:
        """Tell whether the viewer has a permission of the app."""
        return bool(self.user.has_perm(f"django_relay.{permission}"))

    def link(self, name: str, *args: Any, **query: Any) -> str:
        """Return the address of a page of the app, or nothing where the site has no such page."""
        try:
            path = reverse(f"admin:django_relay_{name}", args=args, current_app=self.site)
        except NoReverseMatch:
            return ""
        kept = {key: value for key, value in query.items() if value not in (None, "")}
        asked = urlencode(kept | self.choice)
        return f"{path}?{asked}" if asked else path

    def job(self, job_id: int) -> str:
        """Return the address of a job's page, or nothing where the viewer may not open it."""
        return self.link("job_change", job_id) if self.may("view_job") else ""

    def listed(self, model: str, **query: Any) -> str:
        """Return the address of a list, or nothing where the viewer may not open it."""
        return self.link(f"{model}_changelist", **query) if self.may(f"view_{model}") else ""
