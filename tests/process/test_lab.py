"""The lab's experiments, run as a user runs them, on databases of these tests' own.

Each is short; what they prove at length is for the documentation's own runs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import call_command

from django_relay import recording

from . import places, times
from .places import Server
from .waiting import wait_until
from .workers import Worker, children_of, runs

pytestmark = pytest.mark.process


@dataclass(frozen=True, slots=True)
class Lab:
    """Runs ``relay_lab`` on a database."""

    url: str
    directory: Path
    server: Path | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.process.lab_settings",
            "DATABASE_URL": self.url,
            "RELAY_TEST_SERVER": str(self.server or ""),
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "django", "relay_lab", *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run to the end and return exit code, output and what was said meanwhile."""
        with self.start(*arguments) as process:
            try:
                out, said = process.communicate(timeout=170 if arguments[0] != "soak" else 500)
            finally:
                process.kill()
        return process.returncode, out, said

    def figures(self, *arguments: str) -> dict[str, Any]:
        """Run an experiment that must succeed, and return its figures."""
        code, out, said = self.run(*arguments, "--format", "json")
        assert code == 0, out + said
        found: dict[str, Any] = json.loads(out)["figures"]
        return found

    def jobs_left(self) -> int:
        with psycopg.connect(self.url) as session:
            row = session.execute("SELECT count(*) FROM django_relay_job").fetchone()
            assert row is not None
            return int(row[0])


@pytest.fixture(scope="module")
def lab(django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab on a database that no other worker has served."""
    with django_db_blocker.unblock(), places.made(os.environ["DATABASE_URL"]) as place:
        yield Lab(place.url, tmp_path_factory.mktemp("lab"))


@pytest.fixture
def lab_with_server(django_db_blocker: Any, tmp_path: Path) -> Iterator[Lab]:
    """A lab on a server that it may restart."""
    with django_db_blocker.unblock():
        server = Server()
        try:
            with places.led_to(server.url):
                call_command("migrate", verbosity=0)
            yield Lab(server.url, tmp_path, server.directory)
        finally:
            server.remove()


@pytest.mark.parametrize("whom", ["child", "supervisor", "group"])
def test_a_job_survives_the_crash_of_its_worker(lab: Lab, tmp_path: Path, whom: str) -> None:
    record, html = tmp_path / "crash.json", tmp_path / "crash.html"
    flags = ["--kill", whom, "--record", str(record), "--html", str(html)]
    figures = lab.figures("crash", "--lease", "1", "--job-seconds", "2", *flags)
    assert figures["attempts"] == 2
    assert figures["refusals"] == 1
    times.measured.append((f"lab: kill of {whom} to success", figures["kill_to_success_seconds"]))
    text = record.read_text()
    assert os.uname().nodename not in text, "a recording does not tell the host"
    made = recording.load(text)
    kinds = [moment.kind for moment in made.moments]
    assert kinds == ["enqueued", "claimed", "rescued", "claimed", "succeeded", "refused"]
    assert [moment.lease for moment in made.moments] == [None, "A", "A", "B", "B", "A"]
    assert made.marks[0].what.startswith("SIGKILL")
    assert len({sight.ends_ms for sight in made.sights}) > 3, "the lease's end is seen to move"
    assert "Late ending refused" in html.read_text()
    assert lab.jobs_left() == 0


def test_a_crash_can_be_repeated(lab: Lab) -> None:
    figures = lab.figures(
        "crash", "--repeat", "3", "--kill", "child", "--job-seconds", "0.5", "--lease", "0.6"
    )
    assert figures["repeats"] == 3
    assert figures["refusals"] == 3
    assert set(figures["distribution"]) == {"p50", "p95", "p99", "max"}


def test_a_frozen_worker_is_refused_everything_when_it_wakes(lab: Lab, tmp_path: Path) -> None:
    record = tmp_path / "zombie.json"
    figures = lab.figures("zombie", "--record", str(record))
    assert figures["refused"] == ["release", "retry", "succeed"]
    assert figures["renewals_answered_gone"] == 3
    assert figures["accepted"] == 3
    assert figures["nothing_changed"] is True
    whats = [mark.what.split()[0] for mark in recording.load(record.read_text()).marks]
    assert whats == ["SIGSTOP", "SIGCONT", "SIGTERM"]


def test_a_frozen_worker_can_be_woken_again_and_again(lab: Lab, tmp_path: Path) -> None:
    record = tmp_path / "zombie.json"
    figures = lab.figures("zombie", "--repeat", "2", "--record", str(record))
    assert figures["repeats"] == 2
    assert figures["refused"] == ["release", "release", "retry", "retry", "succeed", "succeed"]
    assert figures["accepted"] == figures["renewals_answered_gone"] == figures["jobs"] == 6
    assert figures["nothing_changed"] is True
    made = recording.load(record.read_text())
    assert len(made.jobs) == 3, "one run is recorded"
    assert made.settings["repeat"] == 2


def test_a_burst_is_measured_beside_its_ceiling(lab: Lab, tmp_path: Path) -> None:
    html = tmp_path / "burst.html"
    figures = lab.figures(
        "burst", "--jobs", "60", "--slots", "1,2", "--processes", "1,2", "--html", str(html)
    )
    one, two = figures["configurations"]
    assert (one["processes"], one["slots"], two["processes"], two["slots"]) == (1, 1, 2, 2)
    for row in (one, two):
        assert row["done"] == 60
        assert row["jobs_per_second"] > 0
        assert row["share"] == pytest.approx(
            row["jobs_per_second"] / row["ceiling_jobs_per_second"], rel=0.01
        )
        for ranks in (row["start_ms"], row["finish_ms"]):
            assert 0 <= ranks["p50"] <= ranks["p95"] <= ranks["p99"]
    assert "More execution slots" in html.read_text()
    assert lab.jobs_left() == 0


def test_a_burst_can_be_repeated_for_medians(lab: Lab, tmp_path: Path) -> None:
    html = tmp_path / "burst.html"
    few = ["--jobs", "20", "--slots", "1,2", "--noop", "--html", str(html)]
    rows = lab.figures("burst", "--repeat", "3", *few)["configurations"]
    assert [row["slots"] for row in rows] == [1, 2]
    for row in rows:
        assert row["repeats"] == len(row["runs"]) == 3
        assert row["jobs_per_second"] == sorted(row["runs"])[1] == row["distribution"]["p50"]
        assert row["done"] == row["jobs"] == 20
    assert "Medians of 3 local trials each." in html.read_text()


def test_a_burst_may_find_a_backlog_and_old_rows(lab: Lab) -> None:
    furnished = ["--backlog", "300", "--finished", "300"]
    code, out, said = lab.run(
        "burst", "--jobs", "20", "--slots", "2", "--noop", "--submit", "bulk", "--keep", *furnished
    )
    assert code == 0, out + said
    with psycopg.connect(lab.url) as session:
        rows = session.execute(
            "SELECT queue, state, count(*) FROM django_relay_job GROUP BY 1, 2"
        ).fetchall()
    found = {(queue, state): count for queue, state, count in rows}
    assert found["relay_lab_backlog", "ready"] == 300
    assert found["relay_lab_backlog", "cancelled"] == 300
    assert found["relay_lab", "successful"] >= 20


def test_terminated_sessions_lose_nothing(lab: Lab) -> None:
    figures = lab.figures("restart", "--jobs", "60", "--lease", "2")
    assert set(figures["resumed_seconds"]) == {"sessions"}, "no server was the lab's to restart"
    assert figures["lost"] == 0
    assert figures["accepted_outcomes_per_job"] == {"1": figures["jobs"]}


def test_sessions_can_be_terminated_again_and_again(lab: Lab) -> None:
    figures = lab.figures("restart", "--repeat", "2", "--jobs", "40", "--lease", "2")
    assert figures["repeats"] == 2
    assert figures["accepted"] >= 80
    assert figures["accepted_outcomes_per_job"] == {"1": figures["jobs"]}
    both = [run["sessions"] for run in figures["runs"]]
    assert figures["resumed_seconds"] == {"sessions": min(both)}, "the lower of two is their median"
    assert figures["distribution"]["sessions"]["max"] == max(both)


def test_a_restarted_server_loses_nothing(lab_with_server: Lab) -> None:
    figures = lab_with_server.figures("restart", "--jobs", "60", "--lease", "3")
    assert set(figures["resumed_seconds"]) == {"sessions", "fast", "immediate"}
    assert max(figures["resumed_seconds"].values()) < 5
    assert figures["lost"] == 0
    assert figures["accepted_outcomes_per_job"] == {"1": figures["jobs"]}
    assert figures["duplicates_unexplained"] == 0
    assert figures["audit_findings"] == 0


@pytest.mark.slow
@pytest.mark.timeout(520)
def test_a_minute_of_random_faults_loses_nothing(lab_with_server: Lab) -> None:
    figures = lab_with_server.figures("soak", "--minutes", "1", "--seed", "20260901")
    assert figures["lost"] == 0
    assert figures["accepted_outcomes_per_job"] == {"1": figures["jobs"]}
    assert figures["duplicates_unexplained"] == 0
    assert figures["audit_findings"] == 0
    assert sum(figures["faults"].values()) > 10


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have."""
    children = children_of(pid)
    return [*children, *(each for child in children for each in descendants(child))]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_the_lab_ends_its_workers(lab: Lab, number: signal.Signals) -> None:
    with lab.start("crash", "--job-seconds", "60") as process:
        try:
            family = wait_until(
                lambda: found if len(found := descendants(process.pid)) >= 4 else None,
                60,
                what="two workers and their children",
            )
            process.send_signal(number)
            process.communicate(timeout=60)
            assert process.returncode == {signal.SIGKILL: -9}.get(number, 130)
            wait_until(lambda: not any(map(runs, family)), 20, what="the end of all it started")
        finally:
            process.kill()


def test_it_refuses_to_begin_while_another_worker_would_take_its_jobs(lab: Lab) -> None:
    log = lab.directory / "any.log"
    worker = Worker("any", log, queues=["relay_lab"], env=lab.environment)
    try:
        wait_until(lambda: "queues relay_lab" in worker.said, 60, what="a worker of that queue")
        code, _, said = wait_until(
            lambda: found if (found := lab.run("crash"))[0] else None, 60, what="a refusal"
        )
        assert code == 1
        assert "is running" in said
        assert "--queues" in said
    finally:
        worker.stop()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hello", "no JSON document"),
        ('{"format": "django_relay.recording", "version": 0}', "has version 0"),
        ('{"format": "django_relay.recording", "version": 1, "jo', "only a part of one"),
    ],
)
def test_a_page_is_made_of_recordings_only(lab: Lab, tmp_path: Path, text: str, told: str) -> None:
    source, page = tmp_path / "given.json", tmp_path / "page.html"
    source.write_text(text)
    code, _, said = lab.run("page", str(source), "--html", str(page))
    assert code == 1
    assert told in said
    assert "Traceback" not in said
    assert not page.exists()
