"""What the heartbeat says of leases that it could not renew."""

from __future__ import annotations

import time

import pytest

from django_relay.connection import Bookkeeping
from django_relay.heartbeat import Heartbeat, Report, Reports
from tests.process.waiting import wait_until
from tests.rejecting import Reject

from .stage import Stage


def test_a_lease_that_the_database_will_not_have_renewed_is_told_once(
    stage: Stage, reject: Reject, caplog: pytest.LogCaptureFixture
) -> None:
    stage.enqueue()
    stage.enqueue()
    bad, good = stage.claim_up_to(2, lease=2.0).jobs
    reports = Reports()
    reports.add(Report("a/1", job.job_id, job.token, time.monotonic(), None) for job in (bad, good))
    reject(f"NEW.job_id = {bad.job_id}", "lease")
    connection = Bookkeeping("default", pooled=False, patience=20.0, name="test")
    told: list[dict[str, object]] = []
    heart = Heartbeat(connection, reports, lambda child, said: told.append(said), lease=2.0)
    heart.start()
    renewals = lambda: [said for said in told if said["kind"] == "renewed"]  # noqa: E731
    wait_until(lambda: len(renewals()) >= 3, 20, what="three renewals")
    heart.stop()
    heart.join(20)
    assert renewals()[0]["kept"] == [good.token]
    assert caplog.text.count("leases not renewed: RaiseException") == 1
