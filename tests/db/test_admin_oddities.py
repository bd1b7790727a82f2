"""Rows that no program of ours would write: markup, odd types, times at the calendar's edges, rows
without their partners. Each opens, and none keeps another from opening."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from django_relay import outcomes, transitions
from django_relay.replay import wording
from tests import lives

SITE = "/admin/django_relay"
pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    return client


def shown(client: Client, job_id: int) -> Any:
    page = client.get(f"{SITE}/job/{job_id}/change/")
    assert page.status_code == 200
    return page.context["shown"]


def text(client: Client, address: str) -> str:
    page = client.get(SITE + address)
    assert page.status_code == 200
    return re.sub(r"\s+", " ", page.content.decode())


def addresses(*job_ids: int) -> list[str]:
    fixed = ["", "/job/", "/job/?state=ready", "/job/?queue=mail&q=send", "/event/", "/lease/"]
    pages = [f"/job/{job_id}/change/" for job_id in job_ids]
    return [*fixed, "/worker/", *pages, *(f"/event/?job={job_id}" for job_id in job_ids)]


@pytest.mark.parametrize("large", ["9" * 30_000, "1e400", "[" * 50 + "]" * 50, '"\\ud800"', "{}"])
def test_a_value_is_shown_as_far_as_a_page_can_bear_it(large: str, ada: Client) -> None:
    job_id = lives.ready(args=f"[{large}]")
    value = shown(ada, job_id).values[0]
    assert value.cut is (len(large) > 20_000)
    assert len(value.text) <= 20_000


SCRIPT = "<script>alert(1)</script>"


def test_everything_that_comes_from_a_job_is_escaped(ada: Client) -> None:
    error = {"class": f"a.{SCRIPT}", "message": SCRIPT, "traceback": SCRIPT}
    markup = f'["{SCRIPT}"]'
    changes: Any = {"queue": SCRIPT, "task": f"a.{SCRIPT}", "args": markup}
    changes |= {"kwargs": f'{{"{SCRIPT}": 1}}', "metadata": markup, "backend": SCRIPT}
    bad, good, run = (lives.enqueue(**changes) for _ in range(3))
    lives.end(lives.claim(bad, by=SCRIPT), outcomes.failed(error))
    lives.end(lives.claim(good), outcomes.succeeded(markup))
    lives.claim(run, by=f"{SCRIPT}/1")
    transitions.cancel(connection, [run], actor=f"1 {SCRIPT}")
    lives.worker(SCRIPT, queues=markup)
    lives.execute(
        "INSERT INTO django_relay_event (job_id, kind, at, data) VALUES (%s, '<b>odd</b>', now(), "
        "%s), (%s, 'refused', now(), %s)",
        [run, markup, run, f'{{"reason": "{SCRIPT}", "would_have": "{SCRIPT}"}}'],
    )
    pages = [*addresses(bad, good, run), f"/job/?queue={SCRIPT}&task={SCRIPT}&q={SCRIPT}"]
    pages += [f"/lease/?worker={SCRIPT}", f"/job/{bad}/history/"]
    asked = ada.post(f"{SITE}/job/act/cancel/", {"job": [bad, run], "back": SCRIPT})
    for page in [*(text(ada, address or "/") for address in pages), asked.content.decode()]:
        assert SCRIPT not in page
        assert "<b>odd" not in page
    assert "&lt;script&gt;" in text(ada, f"/job/{run}/change/")


ODD: dict[str, str] = {
    "a task that is no path": "task = 'nothing'",
    "an empty task": "task = ''",
    "an empty queue": "queue = ''",
    "arguments that are no list": "args = '{\"a\": 1}', kwargs = '[1]'",
    "arguments of another kind": "args = 'null', kwargs = '12', metadata = '\"x\"'",
    "the first times there are": "enqueued_at = '1900-01-01 UTC', run_after = '1900-01-01 UTC'",
    "the last times there are": "run_after = '9999-12-30 UTC', start_before = '9999-12-30 UTC'",
    "an end before its beginning": "last_attempted_at = now() + interval '1 day'",
    "a time-out beyond belief": "timeout = '178000000 years'",
    "counters at their limit": "claims = 1000000000, failures = 1000000000, losses = 1000000000",
    "no events of its claims": "claims = 7, failures = 7",
    "no limit of attempts": "max_attempts = NULL",
    "every name": "unique_name = 'u', unique_key = 'u', limit_key = 'l', limit_n = 1",
}


@pytest.mark.parametrize("life", ["scheduled", "running", "failed", "successful"])
@pytest.mark.parametrize("odd", ODD)
def test_an_odd_row_opens_and_keeps_no_other_from_opening(odd: str, life: str, ada: Client) -> None:
    job_id, other = getattr(lives, life)(), lives.ready()
    lives.execute(f"UPDATE django_relay_job SET {ODD[odd]} WHERE id = %s", [job_id])
    for address in [*addresses(job_id, other), f"/job/{job_id}/history/"]:
        text(ada, address or "/")
    asked = ada.post(f"{SITE}/job/act/cancel/", {"job": [job_id, other]})
    assert asked.status_code == 200


@pytest.mark.parametrize(
    "data",
    [
        "[]",
        '"text"',
        "null",
        "1e300",
        '{"error": "text"}',
        '{"error": {"class": 1, "message": null, "traceback": []}}',
        '{"ran_ms": "long", "renewals": [], "late_ms": true, "run_after": "infinity"}',
        '{"ran_ms": 1e300, "run_after": "10000-01-01", "why": {}, "reason": 1, "would_have": []}',
        '{"state": 7, "run_after": "2020-13-77T00:00:00", "began": "x", "queue": {}}',
        '{"n": ' + "9" * 5000 + "}",
        '{"deep": ' + "[" * 900 + "]" * 900 + "}",
    ],
)
@pytest.mark.parametrize("at", ["-infinity", "infinity", "294276-12-31"])
def test_an_odd_event_opens(at: str, data: str, ada: Client) -> None:
    job_id = lives.running()
    kinds = ["retried", "refused", "rescued", "rescheduled", "moved", "released", "never heard of"]
    for kind in kinds:
        lives.execute(
            "INSERT INTO django_relay_event (job_id, kind, at, claim, data) "
            "VALUES (%s, %s, %s, 1, %s)",
            [job_id, kind, at, data],
        )
    for address in addresses(job_id):
        text(ada, address or "/")
    told = [beat.title for beat in shown(ada, job_id).replay["stories"][0].beats]
    assert told[2:] == [str(wording.name(kind)) for kind in kinds]
    assert told[-1] == "never heard of"


@pytest.mark.parametrize("table", ["lease", "event"])
def test_rows_without_their_job_open(table: str, ada: Client) -> None:
    job_id = lives.running()
    lives.execute("DELETE FROM django_relay_job WHERE id = %s", [job_id])
    assert str(job_id) in text(ada, f"/{table}/")
    text(ada, "/worker/")
    page = ada.get(f"{SITE}/{table}/", follow=True)
    assert page.status_code == 200


@pytest.mark.parametrize("life", ["running", "taken_over", "lost_twice"])
def test_a_job_without_its_history_opens(life: str, ada: Client) -> None:
    job_id = getattr(lives, life)()
    for kind in ("enqueued", "claimed", None):
        lives.execute(
            "DELETE FROM django_relay_event WHERE job_id = %s AND kind = COALESCE(%s, kind)",
            [job_id, kind],
        )
        text(ada, f"/job/{job_id}/change/")
    page = shown(ada, job_id)
    assert page.attempts.shown == []
    assert page.replay["stories"][0].beats == []
    assert "There are no events." in text(ada, f"/job/{job_id}/change/")


def test_a_running_job_without_its_lease_opens(ada: Client) -> None:
    job_id = lives.running()
    lives.execute("DELETE FROM django_relay_lease")
    assert shown(ada, job_id).lease is None
    text(ada, "/job/")


@pytest.mark.parametrize("key", ["0", "-1", "abc", "9" * 40, "12345678", "1%2F..", "%C2%B2", "_5F"])
def test_a_job_that_is_not_there_is_said_to_be_gone(key: str, ada: Client) -> None:
    page = ada.get(f"{SITE}/job/{key}/change/", follow=True)
    assert page.status_code == 200
    (told,) = page.context["messages"]
    assert "There is no job" in str(told)
