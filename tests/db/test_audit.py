"""The audit finds by name what somebody's own SQL has done to a database, and nothing else.

Jobs are brought to their states by transitions; each corruption is then one statement by hand.
"""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_relay import outcomes
from django_relay.audit import Audit
from django_relay.connection import Bookkeeping
from django_relay.states import State

from .stage import ERROR, Stage, ending, success

COPY = """
INSERT INTO django_relay_event (job_id, kind, at, claim, token, worker, data)
SELECT job_id, kind, clock_timestamp(), claim, token, worker, data FROM django_relay_event
WHERE job_id = %(id)s AND kind = '{kind}' ORDER BY id DESC LIMIT 1
"""
LEASE = """
INSERT INTO django_relay_lease (job_id, token, worker, claim, acquired_at, expires_at, renewals)
VALUES ({job}, gen_random_uuid(), 'host-1-abc/1', 1, clock_timestamp(), clock_timestamp(), 0)
"""
EVENT = "UPDATE django_relay_event SET {change} WHERE job_id = %(id)s AND kind = '{kind}'"
JOB = "UPDATE django_relay_job SET {change} WHERE id = %(id)s"

CORRUPTIONS = {
    "a history that is gone": (
        State.SUCCESSFUL,
        "DELETE FROM django_relay_event WHERE job_id = %(id)s",
        "has no events",
    ),
    "a history without its beginning": (
        State.READY,
        "DELETE FROM django_relay_event WHERE job_id = %(id)s AND kind = 'enqueued'",
        "has an impossible history: event 1: claimed cannot follow None",
    ),
    "two successes": (
        State.SUCCESSFUL,
        COPY.format(kind="succeeded"),
        "has an impossible history: event 6: succeeded cannot follow successful",
    ),
    "two claims that overlap": (
        State.RUNNING,
        COPY.format(kind="claimed"),
        "has an impossible history: event 5: claimed cannot follow running",
    ),
    "an event of a kind that there is not": (
        State.READY,
        EVENT.format(change="kind = 'blessed'", kind="rescued"),
        "unknown kind 'blessed'",
    ),
    "a finished job made ready again": (
        State.FAILED,
        JOB.format(change="state = 'ready', finished_at = NULL"),
        "is ready, but its events lead to failed",
    ),
    "a success by hand": (
        State.READY,
        JOB.format(change="state = 'successful', finished_at = clock_timestamp()"),
        "is successful, but its events lead to ready",
    ),
    "a result of a failed job": (
        State.FAILED,
        JOB.format(change="result = '1'"),
        "is failed, but has a result",
    ),
    "a claim too many in the counter": (
        State.READY,
        JOB.format(change="claims = claims + 1"),
        "counts 2 claims, but its events tell of 1",
    ),
    "a claim whose number jumps": (
        State.READY,
        EVENT.format(change="claim = 3", kind="claimed"),
        "has claim 3 where claim 1 was due",
    ),
    "failures forgiven": (
        State.FAILED,
        JOB.format(change="failures = 0"),
        "counts 0 failures, but its events tell of 1",
    ),
    "losses forgiven": (
        State.READY,
        JOB.format(change="losses = 0"),
        "counts 0 losses, but its events tell of 1",
    ),
    "an interruption made up": (
        State.READY,
        JOB.format(change="interruptions = 1"),
        "counts 1 interruptions, but its events tell of 0",
    ),
    "a running job without its lease": (
        State.RUNNING,
        "DELETE FROM django_relay_lease WHERE job_id = %(id)s",
        "is running without a lease",
    ),
    "a lease on a job that waits": (
        State.READY,
        LEASE.format(job="%(id)s"),
        "is ready, but has a lease",
    ),
    "a stolen lease": (
        State.RUNNING,
        "UPDATE django_relay_lease SET token = gen_random_uuid() WHERE job_id = %(id)s",
        "has a lease whose token is not that of its last claim",
    ),
    "a lease of another claim": (
        State.RUNNING,
        "UPDATE django_relay_lease SET claim = 7 WHERE job_id = %(id)s",
        "has a lease of claim 7, but was claimed 2 times",
    ),
    "a token used for two claims": (
        State.SUCCESSFUL,
        "UPDATE django_relay_event SET token = '00000000-0000-0000-0000-000000000001'"
        " WHERE job_id = %(id)s AND token IS NOT NULL",
        "has no fresh token in claim 2",
    ),
    "a claim without a token": (
        State.READY,
        EVENT.format(change="token = NULL", kind="claimed"),
        "has no fresh token in claim 1",
    ),
    "a success under somebody else's token": (
        State.SUCCESSFUL,
        EVENT.format(change="token = gen_random_uuid()", kind="succeeded"),
        "was succeeded under a token that was not its owner's",
    ),
    "a job deleted by hand": (
        State.SUCCESSFUL,
        "DELETE FROM django_relay_job WHERE id = %(id)s",
        "has events, but there is no such job",
    ),
    "a lease of no job": (
        State.READY,
        LEASE.format(job="%(id)s + 1000000"),
        "has a lease, but there is no such job",
    ),
}


def audit(*flags: str) -> tuple[int, str]:
    """Run the command and return its exit code and what it printed."""
    out = io.StringIO()
    try:
        call_command("relay_audit", *flags, stdout=out, stderr=io.StringIO())
    except SystemExit as end:
        return int(str(end.code)), out.getvalue()
    return 0, out.getvalue()


def found(*flags: str) -> dict[str, Any]:
    code, text = audit("--format", "json", *flags)
    told: dict[str, Any] = json.loads(text)
    assert code == bool(told["findings"])
    return told


def a_job_of_every_kind(stage: Stage) -> list[int]:
    jobs = [stage.make(state).job_id for state in State if state != State.READY]
    for outcome in (
        outcomes.raised(ERROR, delay=60.0),
        outcomes.snoozed(60.0),
        outcomes.released(),
    ):
        job_id = stage.enqueue(priority=50)
        claimed = stage.claim()
        assert claimed.job_id == job_id
        stage.settle(ending(claimed, outcome))
        stage.settle(success(claimed))  # late: told as refused
        jobs.append(job_id)
    return [*jobs, stage.enqueue()]


def test_a_database_that_only_transitions_wrote_is_in_order(stage: Stage) -> None:
    jobs = a_job_of_every_kind(stage)
    told = found()
    assert told["findings"] == []
    assert told["jobs"] == len(jobs)
    assert told["events"] == stage.value("SELECT count(*) FROM django_relay_event")


def test_an_empty_database_is_in_order(stage: Stage) -> None:
    assert audit() == (0, "0 jobs with 0 events: all in order\n")


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_corruption_is_found_by_name(stage: Stage, name: str) -> None:
    state, statement, problem = CORRUPTIONS[name]
    victim = stage.make(state).job_id
    stage.fill(3)
    stage.db.execute(statement, {"id": victim})
    findings = found()["findings"]
    assert {each["job_id"] % 1_000_000 for each in findings} == {victim}
    assert problem in " | ".join(each["problem"] for each in findings)


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


def test_a_date_that_is_none_is_told_with_an_example(stage: Stage) -> None:
    with pytest.raises(CommandError, match="write a date or time as 2030-01-31"):
        audit("--since", "yesterday")


def test_a_backend_that_is_none_is_told(stage: Stage) -> None:
    with pytest.raises(CommandError, match="--backend nothing"):
        audit("--backend", "nothing")


def test_progress_is_told_each_thousand_jobs(stage: Stage) -> None:
    stage.fill(2500)
    seen: list[tuple[int, int]] = []
    connection = Bookkeeping("default", pooled=False, patience=30.0, name="test")
    try:
        assert list(Audit(connection, progress=lambda *counts: seen.append(counts))) == []
    finally:
        connection.close()
    assert seen == [(1000, 2500), (2000, 2500)]
