"""Audit a live database: ``manage.py relay_audit``.

Exit code 1 when something is wrong, 2 when it cannot look, and 3 when no job was there to look at
although some were asked for.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from django_relay import compat
from django_relay.audit import Audit, Finding
from django_relay.backend import RelayBackend
from django_relay.connection import NOT_MIGRATED, Bookkeeping

WRONG, BLIND, NOTHING = 1, 2, 3


class Command(BaseCommand):
    """Replays each job's events through the state machine and compares counters and leases."""

    help = "Hold the events of every job against the state machine. Reads only."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Which jobs to look at, and how to tell."""
        parser.add_argument("--backend", default="default", help="alias in TASKS")
        parser.add_argument("--since", help="only jobs enqueued since this date or time (ISO 8601)")
        parser.add_argument("--queue", help="only jobs of this queue")
        parser.add_argument("--format", choices=["text", "json"], default="text")

    def handle(self, *args: Any, **flags: Any) -> None:
        """Print what is wrong, or say that nothing is, and exit with a code that says so."""
        as_json = flags["format"] == "json"
        try:
            audit = _audit(flags)
            if not as_json and self.stderr.isatty():
                audit.progress = self._show
            findings = self._run(audit, tell=not as_json)
        except (psycopg.Error, ImproperlyConfigured) as error:
            raise _cannot_look(_why(error)) from None
        asked = [f"--{name} {flags[name]}" for name in ("queue", "since") if flags[name]]
        nothing = bool(asked) and not audit.jobs and not findings
        if as_json:
            self.stdout.write(_document(audit, findings))
        elif nothing:
            self.stdout.write(f"No job found with {' '.join(asked)}: nothing was looked at.")
        else:
            found = f"{len(findings)} findings" if findings else "all in order"
            self.stdout.write(f"{audit.jobs} jobs with {audit.events} events: {found}")
        if findings or nothing:
            sys.exit(WRONG if findings else NOTHING)

    def _run(self, audit: Audit, *, tell: bool) -> list[Finding]:
        findings = []
        try:
            for finding in audit:
                findings.append(finding)
                if tell:
                    self.stdout.write(f"job {finding.job_id} {finding.problem}")
        finally:
            audit.connection.close()
        return findings

    def _show(self, jobs: int, total: int) -> None:
        share = jobs / max(total, 1)
        bar = "#" * round(40 * share)
        self.stderr.write(f"\r[{bar:40}] {jobs} of {total} jobs ", str, ending="")


def _audit(flags: dict[str, Any]) -> Audit:
    """Make the audit that is asked for; raise CommandError where the flags do not allow one."""
    try:
        backend = compat.task_backends[flags["backend"]]
    except compat.InvalidTaskBackend as error:
        raise _cannot_look(f"--backend {flags['backend']}: {error}") from None
    if not isinstance(backend, RelayBackend):
        raise _cannot_look(f"--backend {flags['backend']}: TASKS has no RelayBackend there.")
    pooled = backend.relay_options.pooled
    connection = Bookkeeping(backend.database, pooled=pooled, patience=30.0, name="audit")
    return Audit(connection, since=_since(flags["since"]), queue=flags["queue"])


def _cannot_look(why: str) -> CommandError:
    return CommandError(why, returncode=BLIND)


def _why(error: Exception) -> str:
    """Say in one line why the database cannot be read."""
    if isinstance(error, NOT_MIGRATED):
        return "The tables of django_relay are not there: run migrate first."
    said = " ".join(str(error).split())
    if isinstance(error, psycopg.OperationalError):
        return f"The database cannot be reached: {said}"
    return f"The database cannot be audited: {said}"


def _since(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _cannot_look(
            f"--since {text}: write a date or time as 2030-01-31T08:00+00:00."
        ) from None
    return moment if moment.tzinfo else timezone.make_aware(moment)


def _document(audit: Audit, findings: list[Finding]) -> str:
    return json.dumps(
        {
            "jobs": audit.jobs,
            "events": audit.events,
            "findings": [{"job_id": f.job_id, "problem": f.problem} for f in findings],
        },
        indent=2,
    )
