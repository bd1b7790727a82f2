"""Run jobs: ``manage.py relay_worker``.

Turns flags and OPTIONS into a plan, says in plain words what cannot work, waits for the database
and hands over to the supervisor. Flags are for what differs from process to process.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from django_relay import compat, logs, wakeup
from django_relay.backend import RelayBackend
from django_relay.connection import NOT_MIGRATED, Bookkeeping
from django_relay.messages import Plan
from django_relay.supervisor import Supervisor

logger = logging.getLogger("django_relay.worker")

#: How often, in seconds, a worker says that it still waits for the database.
REMIND = 60.0
#: The longest, in seconds, that the database may take to answer a question of the bookkeeping's.
PATIENCE = 10.0


def _number(kind: type[int] | type[float], lowest: float, most: float = 10**9) -> Any:
    def parse(text: str) -> int | float:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
        if not lowest <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not from {lowest} to {most}")
        return value

    return parse


class Command(BaseCommand):
    """Takes ready jobs and runs them until it is told to stop."""

    help = "Run jobs from the queues until stopped. SIGTERM or Ctrl-C once: finish; twice: at once."
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Flags are for what differs from process to process; durations are in seconds."""
        add = parser.add_argument
        add("--backend", default="default", help="alias in TASKS (default: %(default)s)")
        add("--queues", help="comma-separated names (default: all of the backend's)")
        add(
            "--processes",
            type=_number(int, 1, 1000),
            default=1,
            help="children (default: %(default)s)",
        )
        add(
            "--slots",
            type=_number(int, 1, 1000),
            default=4,
            help="sync jobs at once in each child (default: %(default)s)",
        )
        add(
            "--async-slots",
            type=_number(int, 1, 10_000),
            help="async jobs at once (default: as --slots)",
        )
        add("--prefetch", help="jobs held beyond the free slots: auto, or a number up to --slots")
        add("--poll", type=_number(float, 0.01), help="seconds between looks when nothing is heard")
        add("--lease", type=_number(float, 0.5), help="seconds a claim holds without a renewal")
        add("--grace", type=_number(float, 0), help="seconds that running jobs get at a stop")
        add("--drain", action="store_true", help="exit when nothing due is left")
        add("--max-jobs", type=_number(int, 1), help="replace a child after so many jobs")
        add("--heartbeat-file", type=Path, help="touched while all is well, for liveness probes")
        add("--reload", action="store_true", help="replace children when code changes")

    def handle(self, *args: Any, **flags: Any) -> None:
        """Run, and exit with 0 when stopped, 1 when unusable, 3 after a second signal."""
        logs.prepare(flags["verbosity"])
        backend = _backend(flags["backend"])
        options = backend.relay_options
        plan = _plan(backend, flags)
        _check_file(flags["heartbeat_file"])
        with _stoppable():
            _await_database(plan)
        started = time.monotonic()
        grace = options.grace.total_seconds() if flags["grace"] is None else flags["grace"]
        supervisor = Supervisor(
            plan,
            processes=flags["processes"],
            grace=grace,
            silence=max(options.silence.total_seconds(), 10 * plan.lease),
            drain=flags["drain"],
            heartbeat_file=flags["heartbeat_file"],
        )
        logger.info("%s", _greeting(plan, flags["processes"]))
        code = supervisor.run()
        counts = ", ".join(f"{n} {kind}" for kind, n in sorted(supervisor.outcomes.items()))
        seconds = time.monotonic() - started
        logger.info("stopped after %.1f s: %s", seconds, counts or "no job was run")
        if code:
            sys.stderr.flush()
            os._exit(code)


def _backend(alias: str) -> RelayBackend:
    try:
        backend = compat.task_backends[alias]
    except compat.InvalidTaskBackend as error:
        raise CommandError(f"--backend {alias}: {error}") from None
    if not isinstance(backend, RelayBackend):
        raise CommandError(
            f"--backend {alias}: TASKS[{alias!r}] is no RelayBackend; set its BACKEND to "
            "'django_relay.backend.RelayBackend' or name another alias."
        )
    problems = [message for message in backend.check() if message.is_serious()]
    if problems:
        raise CommandError("\n".join(f"{each.msg} {each.hint or ''}" for each in problems))
    return backend


def _plan(backend: RelayBackend, flags: dict[str, Any]) -> Plan:
    if not os.environ.get("DJANGO_SETTINGS_MODULE"):
        raise CommandError("Set DJANGO_SETTINGS_MODULE: the children need it to find the settings.")
    options = backend.relay_options
    lease = flags["lease"] or options.lease.total_seconds()
    slots = flags["slots"]
    return Plan(
        worker=f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(4)}",
        backend=backend.alias,
        database=backend.database,
        queues=_queues(backend, flags["queues"]),
        slots=slots,
        async_slots=flags["async_slots"] or slots,
        lane=False,
        prefetch=_prefetch(flags["prefetch"], options.prefetch),
        lease=lease,
        poll=flags["poll"] or options.poll.total_seconds(),
        max_jobs=flags["max_jobs"],
        reload=flags["reload"],
        pooled=options.pooled,
        notify=options.notify and not options.pooled,
        patience=min(max(lease / 2, 1.0), PATIENCE),
        verbosity=flags["verbosity"],
    )


def _queues(backend: RelayBackend, given: str | None) -> list[str] | None:
    known = sorted(backend.queues)
    if given is None:
        return known or None
    names = [name.strip() for name in given.split(",") if name.strip()]
    unknown = [name for name in names if known and name not in known]
    if unknown or not names:
        raise CommandError(
            f"--queues {given}: {', '.join(unknown) or 'no name'} is not among the backend's "
            f"QUEUES ({', '.join(known) or 'any'})."
        )
    return names


def _prefetch(given: str | None, default: int | str) -> int | None:
    value = default if given is None else given
    if value == "auto":
        return None
    try:
        number = int(value)
    except ValueError:
        number = -1
    if not 0 <= number <= 1000:
        raise CommandError(f"--prefetch {value}: use auto, or a number from 0 to 1000.")
    return number


def _check_file(path: Path | None) -> None:
    try:
        if path is not None:
            path.touch()
    except OSError as error:
        raise CommandError(f"--heartbeat-file {path}: it cannot be written ({error}).") from None


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Let a signal end the waiting, also in process 1, which ignores SIGTERM by itself, and in a
    shell's background, where SIGINT is ignored."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before: dict[signal.Signals, Any] = {}
    try:
        with contextlib.suppress(ValueError):  # not the main thread: who runs us there stops us
            for number in (signal.SIGTERM, signal.SIGINT):
                before[number] = signal.signal(number, stop)
        yield
    except KeyboardInterrupt:
        raise CommandError("stopped while waiting for the database", returncode=0) from None
    finally:
        for number, given in before.items():
            signal.signal(number, given)


def _await_database(plan: Plan) -> None:
    """Wait until the database answers, telling so once; exit with 1 where it is not migrated."""
    connection = Bookkeeping(
        plan.database, pooled=plan.pooled, patience=plan.patience, name="start"
    )
    told = float("-inf")
    while True:
        try:
            with connection.watched():
                wakeup.probe(connection, plan.queues)
        except NOT_MIGRATED:
            raise CommandError(
                f"The tables of django_relay are not in database {plan.database!r}, or are not "
                "those of this version: run manage.py migrate first."
            ) from None
        except psycopg.Error as error:
            if time.monotonic() - told >= REMIND:
                logger.warning("waiting for the database: %s", logs.first_line(error))
                told = time.monotonic()
            time.sleep(0.5)
        else:
            connection.close()
            return


def _greeting(plan: Plan, processes: int) -> str:
    settings = connections[plan.database].settings_dict
    where = f"{settings['NAME']} on {settings['HOST'] or 'the local socket'}"
    queues = "any queue" if plan.queues is None else f"queues {', '.join(plan.queues)}"
    return (
        f"relay_worker {plan.worker}: {queues}, {processes} x {plan.slots} slots, "
        f"database {plan.database} ({where}), lease {plan.lease:g} s"
    )
