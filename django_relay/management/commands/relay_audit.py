"""Audit a live database: ``manage.py relay_audit``. Exit code 1 when something is wrong."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from django_relay import compat
from django_relay.audit import Audit, Finding
from django_relay.backend import RelayBackend
from django_relay.connection import Bookkeeping


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
        """Print what is wrong and exit with 1, or say that nothing is."""
        try:
            backend = compat.task_backends[flags["backend"]]
        except compat.InvalidTaskBackend as error:
            raise CommandError(f"--backend {flags['backend']}: {error}") from None
        if not isinstance(backend, RelayBackend):
            raise CommandError(f"--backend {flags['backend']}: TASKS has no RelayBackend there.")
        as_json = flags["format"] == "json"
        pooled = backend.relay_options.pooled
        connection = Bookkeeping(backend.database, pooled=pooled, patience=30.0, name="audit")
        audit = Audit(connection, since=_since(flags["since"]), queue=flags["queue"])
        if not as_json and self.stderr.isatty():
            audit.progress = self._show
        findings = []
        try:
            for finding in audit:
                findings.append(finding)
                if not as_json:
                    self.stdout.write(f"job {finding.job_id} {finding.problem}")
        finally:
            connection.close()
        if as_json:
            self.stdout.write(_document(audit, findings))
        else:
            self.stdout.write(
                f"{audit.jobs} jobs with {audit.events} events: "
                + (f"{len(findings)} findings" if findings else "all in order")
            )
        if findings:
            sys.exit(1)

    def _show(self, jobs: int, total: int) -> None:
        share = jobs / max(total, 1)
        bar = "#" * round(40 * share)
        self.stderr.write(f"\r[{bar:40}] {jobs} of {total} jobs ", str, ending="")


def _since(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
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
