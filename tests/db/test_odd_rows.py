"""Rows outside every check: no batch is stopped by one, the audit tells them, the admin opens them.

What a real worker makes of them is in tests/process/test_odd_rows.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from django_relay import compat, transitions
from django_relay.audit import Audit
from django_relay.connection import Bookkeeping
from django_relay.states import State
from django_relay.transitions import Held
from tests import odd

from .stage import ACTOR, Stage, success, told

DUE = "UPDATE django_relay_job SET state = 'scheduled', run_after = now() - interval '1 minute'"
LATE = "UPDATE django_relay_job SET start_before = now() - interval '1 minute'"

Write = Callable[..., None]


@pytest.fixture
def write(stage: Stage) -> Iterator[Write]:
    """Execute statements as long as there are no checks; they are back afterwards, NOT VALID."""

    def execute(*statements: str) -> None:
        with odd.before_the_checks(stage.db):
            for statement in statements:
                stage.db.execute(statement)

    yield execute
    stage.empty()
    odd.validate(stage.db)


def findings(stage: Stage) -> dict[int, str]:
    """What the audit finds, by job."""
    connection = Bookkeeping("default", pooled=False, patience=30.0, name="test")
    found: dict[int, list[str]] = {}
    try:
        for finding in Audit(connection):
            found.setdefault(finding.job_id, []).append(finding.problem)
    finally:
        connection.close()
    return {job_id: "; ".join(problems) for job_id, problems in found.items()}


def _claim(stage: Stage) -> list[int]:
    taken = [*stage.claim_up_to(5).jobs, *stage.claim_up_to(5, bounded=False).jobs]
    return [job.job_id for job in [*taken, *stage.claim_up_to(1, alone=True).jobs]]


def _lose(stage: Stage) -> None:
    for job in stage.claim_up_to(2).jobs:
        stage.end_lease(job.job_id)


def _lose_the_leases_too(stage: Stage) -> None:
    _lose(stage)
    stage.db.execute("DELETE FROM django_relay_lease")


#: What is done to two jobs, and the batch that takes both: it answers with the jobs that it moved.
BATCHES: dict[str, tuple[Callable[[Stage], object], Callable[[Stage], list[int]]]] = {
    "claim": (lambda stage: None, _claim),
    "promote": (
        lambda stage: stage.db.execute(DUE),
        lambda stage: [0 for _ in transitions.promote(stage.db)],
    ),
    "expire": (
        lambda stage: stage.db.execute(LATE),
        lambda stage: transitions.expire(stage.db),
    ),
    "rescue": (
        _lose,
        lambda stage: [job.job_id for job in transitions.rescue_expired(stage.db)],
    ),
    "mend": (
        _lose_the_leases_too,
        lambda stage: [job.job_id for job in transitions.mend(stage.db)[0]],
    ),
}


@pytest.mark.parametrize("what", odd.JOBS)
@pytest.mark.parametrize("batch", BATCHES)
def test_a_job_outside_its_bounds_is_straightened_and_its_batch_goes_on(
    what: str, batch: str, stage: Stage, write: Write
) -> None:
    bad, good = stage.enqueue(), stage.enqueue()
    before, act = BATCHES[batch]
    before(stage)
    write(f"UPDATE django_relay_job SET {odd.JOBS[what]} WHERE id = {bad}")
    assert bad in findings(stage)
    moved = act(stage)
    transitions.straighten_jobs(stage.db, [bad])
    assert len(moved) in (1, 2)
    assert stage.state(good) != {"promote": "scheduled", "claim": "ready"}.get(batch, "running")
    odd.validate(stage.db)
    assert stage.orphans() == []


@pytest.mark.parametrize("what", odd.JOBS)
def test_a_job_outside_its_bounds_is_claimed_though_no_other_is_there(
    what: str, stage: Stage, write: Write
) -> None:
    bad = stage.enqueue()
    write(f"UPDATE django_relay_job SET {odd.JOBS[what]} WHERE id = {bad}")
    assert _claim(stage) == [bad]


@pytest.mark.parametrize("what", odd.LEASES)
def test_a_lease_outside_the_calendar_is_ended_or_straightened(
    what: str, stage: Stage, write: Write
) -> None:
    bad, good = stage.enqueue(), stage.enqueue()
    held = {job.job_id: job for job in stage.claim_up_to(2).jobs}
    write(f"UPDATE django_relay_lease SET {odd.LEASES[what]} WHERE job_id = {bad}")
    assert "a lease with times outside the bounds" in findings(stage)[bad]
    assert transitions.straighten_leases(stage.db) == [bad]
    assert transitions.straighten_leases(stage.db) == []
    odd.validate(stage.db)
    reported = [Held(job.job_id, job.token, 1.0) for job in held.values()]
    kept = transitions.renew(stage.db, reported, lease=60).kept
    ended = "end" in what and "deadline" not in what
    assert kept == {job.token for job in held.values() if job.job_id == good or not ended}
    assert [job.job_id for job in transitions.rescue_expired(stage.db)] == ([bad] if ended else [])


def test_a_job_outside_its_bounds_is_put_right_when_it_ends(stage: Stage, write: Write) -> None:
    stage.enqueue()
    held = stage.claim()
    write("UPDATE django_relay_job SET priority = 5000")
    assert told(*stage.settle(success(held))) == ["succeeded"]
    assert (stage.job(held.job_id) or {})["priority"] == 100


ODD = {
    **odd.JOBS,
    "a state that there is not": "state = 'enchanted'",
    "a time that never comes": "run_after = 'infinity', start_before = 'infinity'",
    "arguments that are no list": "args = '{\"a\": 1}'",
    "keywords that are no object": "kwargs = '[1]'",
}


@pytest.mark.parametrize("life", ["ready", "running", "failed"])
@pytest.mark.parametrize("what", ODD)
def test_the_audit_tells_and_the_admin_opens_what_no_check_allows(
    what: str, life: str, stage: Stage, write: Write
) -> None:
    job_id, other = stage.make(State(life)).job_id, stage.enqueue()
    write(
        f"UPDATE django_relay_job SET {ODD[what]} WHERE id = {job_id}",
        "UPDATE django_relay_lease SET expires_at = 'infinity', begun_at = '-infinity'",
    )
    if not (life == "failed" and what.startswith("an end although")):
        assert job_id in findings(stage)
    assert other not in findings(stage)
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    addresses = ["job/", "event/", "lease/", "worker/", "job/?state=ready", "job/?state=failed"]
    pages = [f"job/{each}/change/" for each in (job_id, other)]
    for address in ["", *addresses, *pages, f"event/?job={job_id}", f"job/{job_id}/history/"]:
        assert client.get(f"/admin/django_relay/{address}").status_code == 200, address


def test_a_job_in_a_state_that_is_not_known_stays_where_it_is(stage: Stage, write: Write) -> None:
    bad, good = stage.enqueue(priority=9), stage.enqueue()
    write(f"UPDATE django_relay_job SET state = 'enchanted' WHERE id = {bad}")
    assert [job.job_id for job in stage.claim_up_to(5).jobs] == [good]
    transitions.promote(stage.db)
    transitions.expire(stage.db)
    assert transitions.mend(stage.db) == ([], [])
    transitions.prune(stage.db, older_than=timedelta(0))
    assert stage.state(bad) == "enchanted"
    assert transitions.requeue(stage.db, [bad], actor=ACTOR) == []
    assert "is enchanted" in findings(stage)[bad]
    result = compat.task_backends["default"].get_result(str(bad))
    assert not result.is_finished
