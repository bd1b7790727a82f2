"""The audit finds by name what somebody's own SQL has done to a database, and nothing else.

Jobs are brought to their states by transitions; each corruption is then one statement by hand.
"""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import call_command

from django_relay import outcomes, transitions
from django_relay.outcomes import Ending
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
    "an ending before its claim": (
        State.SUCCESSFUL,
        EVENT.format(change="at = at - interval '1 hour'", kind="succeeded"),
        "has event 5, succeeded, 3,",
    ),
    "a beginning after its end": (
        State.FAILED,
        EVENT.format(change="at = at + interval '1 hour'", kind="enqueued"),
        "s before event 1, enqueued",
    ),
    "a refusal before its claim": (
        State.READY,
        """
        INSERT INTO django_relay_event (job_id, kind, at, claim, token)
        SELECT job_id, 'refused', at - interval '1 hour', claim, token FROM django_relay_event
        WHERE job_id = %(id)s AND kind = 'claimed'
        """,
        "has event 4, refused, 3,",
    ),
    "an event at the end of time": (
        State.READY,
        EVENT.format(change="at = 'infinity'", kind="rescued"),
        "has event 3, rescued, at a time without end",
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
    assert code == (1 if told["findings"] else 0 if told["jobs"] or not flags else 3)
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


@pytest.mark.parametrize(
    ("kind", "moved"),
    [("succeeded", "-0.9 s"), ("refused", "1 h"), ("enqueued", "-1 day")],
)
def test_what_a_clock_or_a_refusal_can_bring_about_is_no_finding(
    stage: Stage, kind: str, moved: str
) -> None:
    job_id = stage.make(State.SUCCESSFUL).job_id
    subject = stage.value(
        "SELECT token::text FROM django_relay_event WHERE job_id = %s AND kind = 'claimed' "
        "ORDER BY id LIMIT 1",
        [job_id],
    )
    late = Ending(job_id, subject, outcomes.succeeded("1"), 1.0)
    transitions.settle(stage.db, [late])
    transitions.requeue(stage.db, [job_id], actor="1 somebody")
    change = f"at = at + interval '{moved}'"
    stage.db.execute(EVENT.format(change=change, kind=kind), {"id": job_id})
    assert found()["findings"] == []


def test_where_time_runs_backwards_once_it_is_told_once(stage: Stage) -> None:
    job_id = stage.make(State.SUCCESSFUL).job_id
    stage.db.execute(
        EVENT.format(change="at = at + interval '1 h'", kind="enqueued"), {"id": job_id}
    )
    assert len(found()["findings"]) == 1
