"""The lists of the admin: filters, search, and pages by key that look no further than a window."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connection
from django.http import QueryDict
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_relay.admin import listing, windows
from django_relay.admin.places import Place
from tests import lives

SITE = "/admin/django_relay"
pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(db: None) -> Client:
    cache.clear()
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    return client


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of three rows and windows of ten."""
    monkeypatch.setattr(windows, "SIZE", 3)
    monkeypatch.setattr(windows, "WINDOW", 10)


def shown(client: Client, address: str) -> Any:
    page = client.get(address if address.startswith("/") else f"{SITE}/job/{address}")
    assert page.status_code == 200
    return page.context


def ids(context: Any) -> list[int]:
    return [job.row.id for job in context["jobs"]]


def walk(client: Client, address: str, link: str = "older") -> list[list[int]]:
    """Follow a list's links to its end and return the jobs of each page."""
    pages = []
    while address:
        context = shown(client, address)
        pages.append(ids(context))
        address = context[link]
        assert len(pages) < 50, "the links go round in a circle"
    return pages


def test_jobs_come_newest_first_by_pages_there_and_back(ada: Client, small: None) -> None:
    made = [lives.ready() for _ in range(8)][::-1]
    assert walk(ada, "?") == [made[:3], made[3:6], made[6:]]
    back = walk(ada, f"?after={made[-1]}", "newer")
    assert back == [made[4:7], made[1:4], made[:1]]


@pytest.mark.parametrize("state", ["ready", "scheduled", "running", "failed", "cancelled"])
def test_a_state_is_found_however_old_it_is(state: str, ada: Client, small: None) -> None:
    old = [getattr(lives, state)() for _ in range(4)][::-1]
    for _ in range(12):
        lives.successful()
    assert walk(ada, f"?state={state}") == [old[:3], old[3:]]
    assert walk(ada, f"?state={state}&after=0", "newer") == [old[1:], old[:1]]


def test_what_no_index_serves_is_looked_for_window_by_window(ada: Client, small: None) -> None:
    rare = lives.ready(queue="rare")
    for _ in range(25):
        lives.ready()
    pages = walk(ada, "?queue=rare")
    assert pages == [[], [], [rare]]
    text = ada.get(f"{SITE}/job/?queue=rare").content.decode()
    assert "Look further back" in text
    assert "None found so far" in text


def test_a_window_looks_at_what_the_index_has_narrowed_down(ada: Client, small: None) -> None:
    old = lives.failed(queue="rare")
    for _ in range(30):
        lives.successful()
    assert walk(ada, "?state=failed&queue=rare") == [[old]]


def test_too_many_to_sort_are_looked_for_window_by_window(ada: Client, small: None) -> None:
    made = [lives.scheduled() for _ in range(12)][::-1]
    assert walk(ada, "?state=scheduled") == [made[:3], made[3:6], made[6:9], made[9:]]


def test_a_backlog_is_found_whole_however_deep_it_lies(ada: Client, small: None) -> None:
    kinds = [("mail", 0), ("mail", 5), ("default", 0), ("mail", -5)] * 4
    made = [(lives.ready(queue=queue, priority=n), queue) for queue, n in kinds][::-1]
    for _ in range(12):
        lives.successful()
    every = [job_id for job_id, _queue in made]
    mail = [job_id for job_id, queue in made if queue == "mail"]
    for address, wanted in (("?state=ready", every), ("?state=ready&queue=mail", mail)):
        assert [key for page in walk(ada, address) for key in page] == wanted
        back = [key for page in walk(ada, f"{address}&after=0", "newer")[::-1] for key in page]
        assert back == wanted


def test_filters_add_up(ada: Client) -> None:
    wanted = lives.failed(queue="mail", task="shop.tasks.send")
    lives.failed(queue="mail", task="shop.tasks.pack")
    lives.ready(queue="mail", task="shop.tasks.send")
    lives.failed(queue="images", task="shop.tasks.send")
    assert ids(shown(ada, "?state=failed&queue=mail&task=shop.tasks.send")) == [wanted]
    assert ids(shown(ada, "?state=failed&queue=mail&q=tasks.se")) == [wanted]


@pytest.mark.parametrize("search", ["{}", " #{} ", "{}&state=failed&queue=nowhere"])
def test_digits_are_a_key_and_nothing_else(search: str, ada: Client) -> None:
    job_id = lives.ready()
    lives.ready()
    with CaptureQueriesContext(connection) as seen:
        assert ids(shown(ada, f"?q={search.format(job_id)}".replace("#", "%23"))) == [job_id]
    look = [query["sql"] for query in seen if '"django_relay_job"."id" =' in query["sql"]]
    assert len(look) == 1
    assert "LIKE" not in look[0]


def test_a_search_takes_its_text_literally(ada: Client) -> None:
    wanted = lives.ready(task="shop.tasks.ten_%_off")
    lives.ready(task="shop.tasks.tenths")
    assert ids(shown(ada, "?q=ten_%25_")) == [wanted]


@pytest.mark.parametrize(
    "query",
    [
        "q=99999999999999999999999",
        "q=%00",
        "q=" + "x" * 5000,
        "q=%F0%9F%92%A9",
        "q=%D9%A3",
        "q=%C2%B2",
        "state=nonsense",
        "state=%00",
        "queue=%00a",
        "task=<script>",
        "before=-1",
        "before=0",
        "before=9223372036854775808",
        "before=999999999999999999",
        "after=999999999999999999",
        "after=x&before=y",
        "before=%C2%B2",
        "database=nowhere",
        "e=1&o=2&all=&p=99",
    ],
)
def test_no_address_can_break_the_list(query: str, ada: Client) -> None:
    lives.ready()
    shown(ada, f"?{query}")


def test_the_tabs_tell_how_many_and_keep_the_filters(ada: Client) -> None:
    lives.failed(queue="mail")
    lives.failed()
    lives.ready()
    tabs = {tab["state"]: tab for tab in shown(ada, "?queue=mail")["tabs"]}
    assert {state: tab["count"] for state, tab in tabs.items()} == {
        "": "3",
        "blocked": "",
        "scheduled": "0",
        "ready": "1",
        "running": "0",
        "successful": "",
        "failed": "2",
        "cancelled": "0",
    }
    assert tabs["failed"]["url"] == f"{SITE}/job/?state=failed&queue=mail"


def test_names_to_choose_are_those_of_settings_workers_and_new_jobs(
    ada: Client, settings: Any
) -> None:
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["configured"]}}
    lives.worker(lives.FIRST, queues='["served"]')
    lives.worker(lives.SECOND, queues='{"odd": 1}')
    lives.ready(queue="used", task="shop.tasks.send")
    context = shown(ada, "?queue=typed")
    assert context["queues"] == ["configured", "served", "typed", "used"]
    assert context["tasks"] == ["shop.tasks.send"]


@pytest.mark.parametrize("query", ["", "state=ready", "queue=mail", "q=send", "before=5", "q=3"])
def test_no_list_counts_skips_or_sorts_out_the_whole_table(query: str, ada: Client) -> None:
    lives.of_every_kind()
    with CaptureQueriesContext(connection) as seen:
        shown(ada, f"?{query}")
    for sql in (query["sql"].upper() for query in seen):
        assert "OFFSET" not in sql
        assert "DISTINCT" not in sql
        assert "COUNT(" not in sql or "LIMIT" in sql


@pytest.mark.parametrize(
    "query", ["", "job={}", "kind=claimed", "kind=nonsense", "job=x", "before=9"]
)
def test_events_are_listed_by_job_and_by_kind(query: str, ada: Client) -> None:
    job_id = lives.taken_over()
    lives.ready()
    context = shown(ada, f"{SITE}/event/?{query.format(job_id)}")
    kinds = [line.event.kind for line, _url in context["lines"]]
    if query.startswith("job={"):
        assert len(kinds) == 9
        assert kinds[0] == "succeeded"
    if query == "kind=claimed":
        assert kinds == ["claimed"] * 3


def test_events_go_by_pages(ada: Client, small: None) -> None:
    job_id = lives.taken_over()
    seen: list[int] = []
    address = f"{SITE}/event/?job={job_id}"
    while address:
        context = shown(ada, address)
        seen += [line.event.id for line, _url in context["lines"]]
        address = context["older"]
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == 9


def test_workers_are_alive_silent_or_stopped_by_the_databases_clock(ada: Client) -> None:
    lives.of_every_kind()
    lives.worker("shop-0-9-c")
    lives.execute("UPDATE django_relay_worker SET stopped_at = now() WHERE id = 'shop-0-9-c'")
    context = shown(ada, f"{SITE}/worker/")
    conditions = {worker.id: worker.condition for worker in context["workers"]}
    assert conditions == {lives.FIRST: "alive", lives.SECOND: "silent", "shop-0-9-c": "stopped"}
    (busy,) = [worker for worker in context["workers"] if worker.running]
    assert (busy.id, busy.busy, busy.capacity) == (lives.FIRST, 1, 12)
    queues = {queue.name: queue for queue in context["queues"]}
    assert queues["nobody"].alone
    assert queues["nobody"].waited == "32 min"
    assert not queues["default"].alone


def test_the_oldest_of_a_queue_is_found_behind_every_priority(ada: Client) -> None:
    for priority in (5, 0, -5):
        lives.ready(queue="mail", priority=priority)
    old = lives.ready(queue="mail", priority=-100)
    lives.age(old, lives.timedelta(hours=32))
    (queue,) = shown(ada, f"{SITE}/worker/")["queues"]
    assert (queue.name, queue.ready, queue.waited) == ("mail", "4", "1 day 8 h")


def test_leases_tell_whose_and_until_when(ada: Client) -> None:
    live, over = lives.running(), lives.running()
    lives.age(over, lives.timedelta(seconds=40))
    first, second = shown(ada, f"{SITE}/lease/")["leases"]
    assert (first.job_id, first.over, first.until.ago) == (over, True, "10 s ago")
    assert (second.job_id, second.over, second.letter) == (live, False, "A")
    assert shown(ada, f"{SITE}/lease/?worker={lives.FIRST}")["leases"]
    assert not shown(ada, f"{SITE}/lease/?worker=shop-1")["leases"]


def test_with_several_databases_each_link_keeps_the_one_that_was_chosen(
    ada: Client, settings: Any, rf: Any
) -> None:
    backend = settings.TASKS["default"]
    other = backend | {"QUEUES": ["far"], "OPTIONS": {"database": "elsewhere"}}
    settings.TASKS = {"default": backend | {"QUEUES": ["near"]}, "other": other}
    request = rf.get("/", {"database": "elsewhere"})
    request.user = User.objects.get()
    place = Place.of(request, "admin")
    assert (place.database, place.databases) == ("elsewhere", ("default", "elsewhere"))
    assert place.job(7) == f"{SITE}/job/7/change/?database=elsewhere"
    assert place.listed("job", state="ready") == f"{SITE}/job/?state=ready&database=elsewhere"
    near = Place.of(rf.get("/", {"database": "nowhere"}), "admin")
    assert (near.database, near.link("job_changelist")) == ("default", f"{SITE}/job/")
    assert "?database=elsewhere" in ada.get(f"{SITE}/job/").content.decode()


def test_a_look_up_by_key_ignores_other_filters() -> None:
    filters = listing.Filters.of(QueryDict("q=17&state=failed&queue=mail"))
    assert filters == listing.Filters(key=17, text="17")
