"""The pages of the admin: what they tell of a job, and that no row can break or abuse them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import django
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_relay import outcomes, transitions
from django_relay.admin import attempts, history, jobpage
from tests import lives

SITE = "/admin/django_relay"
MOST_QUERIES = 12
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


def test_no_page_takes_more_than_twelve_queries() -> None:
    made = lives.of_every_kind()
    again = lives.failed(max_attempts=9)
    transitions.requeue(connection, [again], actor="1 ada")
    lives.end(lives.claim(again), outcomes.raised(lives.ERROR, delay=0.0))
    transitions.promote(connection)
    lives.claim(again)
    long = lives.long_lived(200)
    names = ("view_job", "view_event", "view_lease", "view_worker", "view_job_arguments")
    client = Client()
    client.force_login(lives.user("ada", *names, *lives.ACTIONS))
    for address in [*addresses(*made.values(), again, long), f"/job/{long}/history/"]:
        with CaptureQueriesContext(connection) as seen:
            text(client, f"{address}" or "/")
        assert len(seen) <= MOST_QUERIES, address


def test_a_list_of_many_takes_no_more_queries_than_one_of_few(ada: Client) -> None:
    counts = []
    for _ in range(2):
        lives.of_every_kind_of_job()
        with CaptureQueriesContext(connection) as seen:
            text(ada, "/job/")
        counts.append(len(seen))
    assert counts[0] == counts[1]


def story(page: Any) -> Any:
    (told,) = page.replay["stories"]
    return told


def test_a_take_over_can_be_read_from_the_timeline(ada: Client) -> None:
    job_id = lives.taken_over()
    page = shown(ada, job_id)
    told = [(beat.title, beat.worker) for beat in story(page).beats]
    first, second = f"{lives.FIRST}/1", f"{lives.SECOND}/1"
    assert told == [
        ("Enqueued", ""),
        ("Claimed under lease A", first),
        ("Lease A runs out", ""),
        ("Taken back from its worker", first),
        ("Claimed under lease B", second),
        ("Late ending refused", first),
        ("Failed, to be tried again", second),
        ("Given another time", ""),
        ("Claimed under lease C", f"{lives.SECOND}/3"),
        ("Succeeded under lease C", f"{lives.SECOND}/3"),
    ]
    refused, given = story(page).beats[5], story(page).beats[7]
    assert re.fullmatch(
        r"The job was no longer its own, its lease had been over for \S+ s; "
        r"it would have succeeded\. Nothing changes\.",
        refused.note,
    )
    assert given.note == "Due at once; by ada"
    html = text(ada, f"/job/{job_id}/change/")
    for beat in story(page).beats:
        assert f"{beat.title}</strong>" in html, "it is there to be read without the script"


def test_the_attempts_tell_how_each_ended(ada: Client) -> None:
    page = shown(ada, lives.taken_over())
    told = [(a.lease, a.attempt, str(a.outcome)) for a in page.attempts.shown]
    assert told == [
        ("A", 1, "Taken back from its worker"),
        ("B", 1, "Failed, to be tried again"),
        ("C", 2, "Succeeded"),
    ]
    lost, *ran = [attempt.took for attempt in page.attempts.shown]
    assert lost.startswith("31"), "from the claim to the rescue"
    assert ran == ["1.2 s", "400 ms"], "as their workers have told"
    assert page.attempts.shown[0].refused.endswith("it would have succeeded. Nothing changes.")
    assert page.attempts.shown[1].worker == f"{lives.SECOND}/1"
    assert not page.attempts.earlier
    assert (page.job.attempt, page.job.trouble) == ("2 of 3", "lost once")


def test_a_running_job_is_told_until_now_with_the_end_of_its_lease(ada: Client) -> None:
    job_id = lives.running()
    lives.age(job_id, timedelta(seconds=12))
    page = shown(ada, job_id)
    told = story(page)
    (lease,) = told.leases
    assert lease.until is None
    assert lease.ends == [(lease.start, pytest.approx(lease.start + 30_000, abs=5_000))]
    assert 12_000 < told.end < 30_000, "it ends now, before the lease does"
    (attempt,) = page.attempts.shown
    assert str(attempt.outcome) == "Running"
    assert attempt.took.startswith("1")


def test_an_error_is_told_with_its_traceback_folded(ada: Client) -> None:
    page = text(ada, f"/job/{lives.failed()}/change/")
    (details,) = re.findall(r"<details>.*?</details>", page)
    summary, _end, folded = details.partition("</summary>")
    assert "requests.exceptions.ConnectionError" in summary
    assert "Traceback (most recent call last)" in folded
    assert "Traceback" not in summary
    assert "ConnectionError: api.example.com:443: the connection was refused" in page


@pytest.mark.parametrize(
    ("life", "when"),
    [
        ("backing_off", "in 1 min 30 s, after failure 1"),
        ("scheduled", "in 2 h, as asked for"),
        ("snoozed", "in 30 s, put aside by the task"),
        ("lost_twice", "in 4 s, after loss 2"),
        ("rescheduled", "in 10 min, rescheduled"),
    ],
)
def test_the_next_run_is_told_in_words(life: str, when: str, ada: Client) -> None:
    job_id = getattr(lives, life)()
    assert shown(ada, job_id).job.when_note == when
    assert when in text(ada, "/job/")


def test_a_job_that_no_live_worker_serves_says_so(ada: Client) -> None:
    lives.worker(lives.FIRST, queues='["mail"]')
    assert shown(ada, lives.ready(queue="images")).alone
    assert not shown(ada, lives.ready(queue="mail")).alone


def test_a_long_history_is_shown_by_its_ends(ada: Client) -> None:
    job_id = lives.long_lived(10_000)
    with CaptureQueriesContext(connection) as seen:
        page = shown(ada, job_id)
    assert len(seen) <= MOST_QUERIES
    told, half = story(page), jobpage.EVENTS // 2
    kinds = [beat.kind for beat in told.beats]
    assert (kinds.index("gap"), len(kinds)) == (half, jobpage.EVENTS + 1)
    assert page.replay["notes"] == [
        f"Job {job_id} has more than 10,000 events; this page shows the first and the last {half}."
    ]
    assert [lease.letter for lease in told.leases][:2] == ["A", "B"]
    assert told.leases[-1].letter == "GJH", "of claim 5,000"
    assert all(lease.until is not None for lease in told.leases), "none is held through the gap"
    assert [attempt.attempt for attempt in page.attempts.shown] == [*range(4981, 5001)]
    assert page.attempts.earlier
    tracebacks = [attempt for attempt in page.attempts.shown if attempt.traceback]
    assert len(tracebacks) == history.TRACEBACKS


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_history_just_long_enough_is_shown_whole(beyond: int, ada: Client) -> None:
    events = jobpage.EVENTS + beyond
    page = shown(ada, lives.long_lived(events - 1))
    assert [f"has {events} events" in note for note in page.replay["notes"]] == [True][:beyond]
    assert story(page).excerpt.left_out == beyond
    assert page.attempts.earlier is True  # of its sixty it shows twenty
    assert len(page.attempts.shown) == attempts.SHOWN


def test_attempts_count_anew_after_a_requeue(ada: Client) -> None:
    job_id = lives.failed()
    transitions.requeue(connection, [job_id], actor="1 ada")
    lives.end(lives.claim(job_id), outcomes.succeeded("1"))
    told = [(a.lease, a.attempt) for a in shown(ada, job_id).attempts.shown]
    assert told == [("A", 1), ("B", 1)]


def test_arguments_and_results_are_for_those_who_may_see_them(ada: Client) -> None:
    job_id = lives.successful(args='["secret-number"]', kwargs='{"pin": "secret-pin"}')
    address = f"/job/{job_id}/change/"
    assert {"secret-number", "secret-pin", "R-17"} <= set(re.findall(r"[\w-]+", text(ada, address)))
    client = Client()
    client.force_login(lives.user("bob", "view_job", "view_event", *lives.ACTIONS))
    with CaptureQueriesContext(connection) as seen:
        page = text(client, address)
    assert "Can view arguments and results of jobs" in page
    for hidden in ("secret-number", "secret-pin", "R-17"):
        assert hidden not in page
        assert hidden not in text(client, "/job/") + text(client, "/event/")
    columns = re.compile(r'"(args|kwargs|result|metadata)"')
    assert not [query["sql"] for query in seen if columns.search(query["sql"])]


@pytest.mark.parametrize("life", ["running", "successful"])
def test_no_job_is_deleted_and_the_page_says_what_is_done_instead(life: str, ada: Client) -> None:
    job_id = getattr(lives, life)()
    page = ada.post(f"{SITE}/job/{job_id}/delete/", {"post": "yes"}, follow=True)
    (told,) = page.context["messages"]
    assert "Jobs are not deleted here" in str(told)
    assert lives.state(job_id) == life


def test_the_pages_of_single_rows_lead_to_their_job(ada: Client) -> None:
    job_id = lives.running()
    lives.worker(lives.FIRST)
    event = lives.value("SELECT min(id) FROM django_relay_event")
    for address in (f"/event/{event}/change/", f"/lease/{job_id}/change/"):
        assert ada.get(SITE + address)["Location"] == f"{SITE}/job/{job_id}/change/"
    there = ada.get(f"{SITE}/worker/{lives.FIRST}/change/")["Location"]
    assert there == f"{SITE}/worker/#{lives.FIRST}"
    for model in ("event", "lease", "worker"):
        assert "any more" in ada.get(f"{SITE}/{model}/77777/change/", follow=True).content.decode()


def test_the_index_leads_to_the_pages(ada: Client) -> None:
    page = text(ada, "/")
    for model in ("job", "event", "lease", "worker"):
        assert f'href="{SITE}/{model}/"' in page
    assert "/add/" not in page[page.index("content-start") :]


def test_breadcrumbs_are_those_of_this_django(ada: Client) -> None:
    job = text(ada, f"/job/{lives.ready()}/change/")
    stock = ada.get("/admin/auth/user/").content.decode()
    is_list = '<ol class="breadcrumbs">' in stock
    assert is_list is (django.VERSION >= (6, 1))
    assert ('<ol class="breadcrumbs">' in job) is is_list
    assert f'<a href="{SITE}/job/">Jobs</a>' in job


def test_no_page_has_anything_that_a_strict_policy_forbids(ada: Client) -> None:
    made = lives.of_every_kind()
    for address in addresses(*made.values()):
        page = text(ada, address or "/")
        own = page[page.index('id="content-main"') if address else 0 :]
        own = re.sub(r'<script id="replay-data" type="application/json">', "", own)
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|<script(?![^>]* src=)", own)
        assert not re.search(r'(src|href)="(https?:)?//', own)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "Pacific/Kiritimati"])
def test_times_are_told_in_the_zone_of_the_page(zone: str, ada: Client, settings: Any) -> None:
    settings.TIME_ZONE = zone
    job_id = lives.ready()
    lives.age(job_id, timedelta(days=400))
    page = shown(ada, job_id)
    assert page.job.when.ago == "400 days ago"
    (enqueued,) = [fact for fact in page.facts if fact.label == "Enqueued"]
    assert enqueued.title.endswith({"UTC": "UTC", "Asia/Kathmandu": "+0545"}.get(zone, "+14"))
