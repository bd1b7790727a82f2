"""Experiments on this installation: ``manage.py relay_lab crash|zombie|burst|restart|soak``.

Reads the flags, runs the experiment, hands over what it found: text or JSON on standard output,
progress on standard error. Exit code 1 when something was not as promised.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_relay import recording, replay
from django_relay.lab import burst, crash, restart, soak, stage, zombie
from django_relay.lab.result import Result

EXPERIMENTS: dict[str, Any] = {
    "crash": crash,
    "zombie": zombie,
    "burst": burst,
    "restart": restart,
    "soak": soak,
}


def _number(kind: type[int] | type[float], lowest: float) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
        if not lowest <= value < 10**9:
            raise argparse.ArgumentTypeError(f"{text} is too small or too large (from {lowest})")
        return value

    return parse


def _numbers(text: str) -> tuple[int, ...]:
    parse = _number(int, 1)
    return tuple(parse(part) for part in text.split(","))


class Command(BaseCommand):
    """Runs one experiment with real workers on a queue of its own."""

    help = "Kill, freeze, load and restart things on purpose, and see that no job is lost."
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """One sub-command an experiment, and one that makes a page of a recording."""
        experiments = parser.add_subparsers(dest="experiment", required=True)
        for name, told in (
            ("crash", "kill a worker in mid-job and follow the job through its recovery"),
            ("zombie", "freeze a worker past its leases and refuse what it tries when it wakes"),
            ("burst", "measure throughput and queueing against the handler alone"),
            ("restart", "restart PostgreSQL, or terminate our sessions, under load"),
            ("soak", "a random schedule of faults, and a count of what was lost"),
        ):
            made = experiments.add_parser(name, help=told, description=f"Experiment: {told}.")
            getattr(self, f"_{name}_arguments")(made.add_argument)
            self._common_arguments(made.add_argument, EXPERIMENTS[name])
        page = experiments.add_parser("page", help="make a page of a recording")
        page.add_argument("recording", type=Path, help="a file that --record wrote")
        page.add_argument("--html", type=Path, required=True, help="the page to write")

    def _common_arguments(self, add: Any, experiment: Any) -> None:
        if "repeat" in experiment.Wishes.__dataclass_fields__:
            add("--repeat", type=_number(int, 1), default=1, help="how often (default: 1)")
        add("--format", choices=["text", "json"], default="text")
        add("--record", type=Path, metavar="FILE", help="write the recording")
        add("--html", type=Path, metavar="FILE", help="write the recording as a page")
        add("--keep", action="store_true", help="leave the jobs in the database")

    def _crash_arguments(self, add: Any) -> None:
        self._job_arguments(add)
        add("--kill", choices=list(crash.WHAT), default="group", help="whom (default: %(default)s)")

    def _zombie_arguments(self, add: Any) -> None:
        self._job_arguments(add)

    def _job_arguments(self, add: Any) -> None:
        seconds = _number(float, 0.5)
        add("--lease", type=seconds, default=1.0, help="seconds (default: %(default)s)")
        add("--job-seconds", type=seconds, default=2.0, help="default: %(default)s")

    def _burst_arguments(self, add: Any) -> None:
        add("--jobs", type=_number(int, 1), default=3000, help="default: %(default)s")
        add("--slots", type=_numbers, help="slots of each process, as 1,4,4")
        add("--processes", type=_numbers, help="processes, one for each of --slots, as 1,1,3")
        add(
            "--submit",
            choices=["one", "bulk"],
            default="one",
            help="a commit a job, or one a thousand",
        )
        add("--noop", action="store_true", help="jobs that do nothing")
        add("--backlog", type=_number(int, 0), default=0, help="waiting jobs of another queue")
        add("--finished", type=_number(int, 0), default=0, help="finished jobs already there")

    def _restart_arguments(self, add: Any) -> None:
        add("--lease", type=_number(float, 0.5), default=3.0, help="default: %(default)s")
        add("--jobs", type=_number(int, 10), default=200, help="default: %(default)s")
        add("--only-sessions", action="store_true", help="terminate our sessions, restart nothing")

    def _soak_arguments(self, add: Any) -> None:
        add("--minutes", type=_number(float, 0.05), default=5.0, help="default: %(default)s")
        add("--lease", type=_number(float, 0.5), default=2.0, help="default: %(default)s")
        add("--workers", type=_number(int, 2), default=3, help="default: %(default)s")
        add("--seed", type=_number(int, 0), default=None, help="of the schedule of faults")
        add("--only-sessions", action="store_true", help="terminate sessions, restart nothing")

    def handle(self, *args: Any, **flags: Any) -> None:
        """Run it. An interrupted experiment ends what it started, too."""
        for path in (flags.get("record"), flags["html"]):
            if path is not None:
                _see_that_it_can_be_written(path)
        try:
            if flags["experiment"] == "page":
                self._page(flags["recording"], flags["html"])
                return
            found = self._run(flags)
            found.save(flags["record"], flags["html"])
        except OSError as error:
            where = "" if error.filename is None else f"{error.filename}: "
            raise CommandError(f"{where}{error.strerror or error}.") from None
        except KeyboardInterrupt:
            self.stderr.write("Interrupted; everything that was started is ended.")
            sys.exit(130)
        as_json = flags["format"] == "json"
        self.stdout.write(found.as_json() if as_json else found.as_text())
        if found.problems:
            sys.exit(1)

    def _run(self, flags: dict[str, Any]) -> Result:
        # A terminated lab ends its workers as an interrupted one does.
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        experiment, wishes = _wishes(flags)
        try:
            with stage.opened(self._say, keep=flags["keep"]) as opened:
                return experiment(opened, wishes)
        finally:
            signal.signal(signal.SIGTERM, before)

    def _say(self, text: str) -> None:
        self.stderr.write(text, str)

    def _page(self, source: Path, target: Path) -> None:
        try:
            made = recording.load(source.read_text(encoding="utf-8"))
        except (recording.NotARecording, UnicodeDecodeError) as error:
            raise CommandError(f"{source}: {error}") from None
        target.write_text(replay.self_contained(made), encoding="utf-8")
        self.stdout.write(f"{target} plays {source}.")


def _see_that_it_can_be_written(path: Path) -> None:
    """Raise CommandError now, and not when the experiment has run."""
    if not path.parent.is_dir():
        raise CommandError(f"{path}: there is no directory {path.parent}.")
    if path.is_dir():
        raise CommandError(f"{path} is a directory: name a file.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise CommandError(f"{path} cannot be written: name another file.")


def _wishes(flags: dict[str, Any]) -> tuple[Callable[[Any, Any], Result], Any]:
    """Return the experiment, and what is wished of it."""
    module = EXPERIMENTS[flags["experiment"]]
    names = module.Wishes.__dataclass_fields__
    wished = {name: flags[name] for name in names}
    if "seed" in wished and wished["seed"] is None:
        wished["seed"] = random.SystemRandom().randrange(10**6)
    return module.run, module.Wishes(**wished)
