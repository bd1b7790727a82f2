"""What ``relay_audit`` looks at, how it tells what it found, and why it could not look."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from django.core.management.base import CommandError
from django.db import connections

from django_relay.audit import Audit
from django_relay.connection import Bookkeeping

from .stage import Stage
from .test_audit import JOB, audit, found


def test_the_offending_jobs_are_printed_with_what_is_wrong(stage: Stage) -> None:
    fine, odd = stage.enqueue(), stage.enqueue()
    stage.db.execute(JOB.format(change="claims = 3"), {"id": odd})
    code, text = audit()
    assert code == 1
    assert f"job {odd} counts 3 claims, but its events tell of 0\n" in text
    assert f"job {fine} " not in text
    assert "2 jobs with 2 events: 1 findings" in text


def test_one_queue_is_audited_alone(stage: Stage) -> None:
    odd = stage.enqueue(queue="odd")
    stage.enqueue(queue="fine")
    stage.db.execute(JOB.format(change="claims = 3"), {"id": odd})
    assert found("--queue", "fine") == {"jobs": 1, "events": 1, "findings": []}
    assert len(found("--queue", "odd")["findings"]) == 1


def test_only_jobs_enqueued_since_a_time_are_audited(stage: Stage) -> None:
    old, new = stage.enqueue(), stage.enqueue()
    for job_id in (old, new):
        stage.db.execute(JOB.format(change="claims = 3"), {"id": job_id})
    stage.set(old, enqueued_at=stage.value("SELECT clock_timestamp()") - timedelta(days=2))
    since = (stage.value("SELECT clock_timestamp()") - timedelta(days=1)).isoformat()
    told = found("--since", since)
    assert told["jobs"] == 1
    assert [each["job_id"] for each in told["findings"]] == [new]


@pytest.mark.parametrize(
    "flags", [("--queue", "nosuch"), ("--since", "2999-01-01"), ("--queue", "x", "--since", "2999")]
)
def test_where_no_job_is_found_nothing_is_said_to_be_in_order(
    stage: Stage, flags: tuple[str, ...]
) -> None:
    stage.enqueue()
    flags = tuple("2999-01-01" if each == "2999" else each for each in flags)
    told = f"No job found with {' '.join(flags)}: nothing was looked at.\n"
    assert audit(*flags) == (3, told)
    assert found(*flags) == {"jobs": 0, "events": 0, "findings": []}


def blind(*flags: str) -> str:
    """Why the audit cannot look: one line, with an exit code of its own."""
    with pytest.raises(CommandError) as told:
        audit(*flags)
    assert told.value.returncode == 2
    assert "\n" not in str(told.value)
    return str(told.value)


def test_a_date_that_is_none_is_told_with_an_example(stage: Stage) -> None:
    assert "write a date or time as 2030-01-31" in blind("--since", "yesterday")


def test_a_backend_that_is_none_is_told(stage: Stage) -> None:
    assert "--backend nothing" in blind("--backend", "nothing")


def test_a_database_that_is_not_there_is_told_in_one_line(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "PORT", "1")
    assert blind().startswith("The database cannot be reached: connection failed: ")


def test_tables_that_are_not_there_are_told_in_one_line(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "NAME", "postgres")
    assert blind() == "The tables of django_relay are not there: run migrate first."


# The driver cannot close its cursor on the server any more, and says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_session_that_is_ended_meanwhile_is_told_as_what_it_is(stage: Stage) -> None:
    stage.fill(1500)

    def end(*counts: int) -> None:
        stage.db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'django_relay test'"
        )

    connection = Bookkeeping("default", pooled=False, patience=30.0, name="test")
    with pytest.raises(psycopg.OperationalError, match="terminat"):
        list(Audit(connection, progress=end))
    connection.close()


def test_progress_is_told_each_thousand_jobs(stage: Stage) -> None:
    stage.fill(2500)
    seen: list[tuple[int, int]] = []
    connection = Bookkeeping("default", pooled=False, patience=30.0, name="test")
    try:
        assert list(Audit(connection, progress=lambda *counts: seen.append(counts))) == []
    finally:
        connection.close()
    assert seen == [(1000, 2500), (2000, 2500)]
