"""What ``relay_lab`` refuses before it starts anything, and what it says of a no-op burst."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_relay.lab import burst
from django_relay.lab.management.commands.relay_lab import Command

ROW = {
    "processes": 1,
    "slots": 4,
    "jobs_per_second": 2000.0,
    "ceiling_jobs_per_second": 100_000.0,
    "share": 0.02,
    "start_ms": {"p50": 1.0, "p95": 2.0, "p99": 3.0},
    "finish_ms": {"p50": 1.0, "p95": 2.0, "p99": 3.0},
}


@pytest.mark.parametrize("flag", ["--record", "--html"])
@pytest.mark.parametrize(
    ("name", "said"), [("", "is a directory: name a file"), ("no/file", "there is no directory")]
)
def test_a_file_that_cannot_be_written_is_refused_at_once(
    flag: str, name: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(CommandError, match=said):
        call_command(Command(), "crash", flag, str(tmp_path / name))


def test_a_recording_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"missing\.json: No such file"):
        call_command(
            Command(), "page", str(tmp_path / "missing.json"), "--html", str(tmp_path / "page.html")
        )


@pytest.mark.parametrize("compared", [True, False])
def test_only_a_burst_that_works_is_compared_with_no_queue(*, compared: bool) -> None:
    assert ("with no queue" in burst._told(ROW, compared=compared)) is compared
