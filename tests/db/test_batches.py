"""A batch of endings is judged one by one, and one bad value spoils nobody else's."""

from __future__ import annotations

import math
import uuid

import psycopg
import pytest
from django.db import connection

from django_relay import outcomes, transitions
from django_relay.outcomes import Outcome, Verb
from django_relay.transitions import Claimed

from .stage import ERROR, Stage, ending, success, told

JSON_NUL = '{"error": {"class": "E", "message": "a\\u0000b", "traceback": ""}}'


def held(stage: Stage) -> Claimed:
    stage.enqueue()
    return stage.claim()


def test_a_batch_is_judged_one_by_one(stage: Stage) -> None:
    good, late, foreign, failing = (held(stage) for _ in range(4))
    stage.age_lease(late.job_id, 3600)
    stranger = foreign._replace(token=str(uuid.uuid4()))
    answers = stage.settle(
        success(good), success(late), success(stranger), ending(failing, outcomes.failed(ERROR))
    )
    assert told(*answers) == ["succeeded", "refused: expired", "refused: superseded", "failed"]
    assert stage.state(foreign.job_id) == "running"
    assert stage.orphans() == []


BAD = {
    "a result that is no JSON": Outcome(Verb.SUCCEED, result="{broken"),
    "a result with a NUL": Outcome(Verb.SUCCEED, result='"a\0b"'),
    "a result with a lone surrogate": Outcome(Verb.SUCCEED, result='"\ud800"'),
    "an error with an escaped NUL": Outcome(Verb.RETRY, data=JSON_NUL),
    "data that is no JSON": Outcome(Verb.SNOOZE, data="{broken", delay=1.0),
    "a result nested too deep": Outcome(Verb.SUCCEED, result="[" * 100_000 + "]" * 100_000),
    "a delay beyond the calendar": Outcome(Verb.SNOOZE, delay=1e300),
    "a delay that is no number": Outcome(Verb.RETRY, delay=math.nan),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_value_that_cannot_be_stored_spoils_its_own_ending_only(
    stage: Stage, bad: Outcome
) -> None:
    jobs = [held(stage) for _ in range(5)]
    endings = [*map(success, jobs[:3]), ending(jobs[3], bad), success(jobs[4])]
    answers = stage.settle(*endings)
    assert told(*answers) == ["succeeded", "succeeded", "succeeded", "retried", "succeeded"]
    error = stage.events(jobs[3].job_id)[-1].data["error"]
    assert error["class"] == "django_relay.storable.Unstorable"


@pytest.mark.django_db(transaction=True, available_apps=["django_relay"])
def test_a_bad_value_spoils_its_own_ending_only_through_django_too(stage: Stage) -> None:
    jobs = [held(stage) for _ in BAD] + [held(stage)]
    endings = [ending(job, bad) for job, bad in zip(jobs, BAD.values(), strict=False)]
    answers = transitions.settle(connection, [*endings, success(jobs[-1])])
    assert {answers[job.token].kind for job in jobs[:-1]} == {"retried"}
    assert answers[jobs[-1].token].kind == "succeeded"


def test_an_error_of_the_database_is_raised_and_not_taken_for_a_bad_value(stage: Stage) -> None:
    job = held(stage)
    settler = stage.connect()
    stage.value("SELECT pg_terminate_backend(%s)", [settler.info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        stage.settle(success(job), session=settler)
    assert stage.state(job.job_id) == "running"


def test_an_ending_that_cannot_even_be_failed_is_left_to_the_end_of_its_lease(stage: Stage) -> None:
    good, hopeless = held(stage), held(stage)
    answers = stage.settle(success(good), ending(hopeless, outcomes.released(), ran=math.nan))
    assert told(*answers) == ["succeeded", "refused: unstorable"]
    assert stage.state(hopeless.job_id) == "running"
    assert stage.lease(hopeless.job_id) is not None
