"""What goes in is what the handler gets, in type and value; the rest is refused there and then."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from tests.unit.test_storable import BAD, GOOD

from . import spoilt
from .aftercheck import after_check
from .scene import Scene, enqueue

pytestmark = pytest.mark.process


def test_each_value_reaches_its_handler_unchanged_or_is_refused_before_any_sql(
    scene: Scene,
) -> None:
    jobs = []
    with transaction.atomic():
        for value in GOOD:
            jobs.append((enqueue(spoilt.tell, value, named=value), value))
        for value, why in BAD:
            refused = pytest.raises((TypeError, ValueError), match=why)
            with CaptureQueriesContext(connection) as queries, refused as refusal:
                spoilt.tell.enqueue(1, named=value)
            assert "argument 'named'" in str(refusal.value)
            assert len(queries) == 0
        jobs.append((enqueue(spoilt.tell, "after", named="after"), "after"))
    worker = scene.start("a", slots=2)
    scene.succeeds(*(job_id for job_id, _ in jobs), within=60)
    for job_id, value in jobs:
        assert scene.job(job_id).result == [spoilt.told(value)] * 2
    after_check(scene, worker)
