"""The admin in a browser: every page and action, wide and narrow, light and dark, with and without
scripts. The fixtures fail a test on any error of the console and any breach of the strict policy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from django_relay import outcomes
from tests import lives, policy

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

expect: Any = pytest.importorskip("playwright.sync_api").expect

WIDTHS = (390, 1440)
VIEWER = ("view_job", "view_event", "view_lease", "view_worker", "view_job_arguments")


@pytest.fixture
def shop(live_server: Any) -> dict[str, int]:
    return lives.of_every_kind()


@pytest.fixture
def page(sign_in: Callable[..., Page], shop: dict[str, int]) -> Iterator[Page]:
    """Signed in with every permission of the app."""
    return sign_in(lives.user("ada", *VIEWER, *lives.ACTIONS))


def addresses(shop: dict[str, int]) -> list[str]:
    jobs = [f"/job/{job_id}/change/" for job_id in shop.values()]
    history = f"/job/{shop['failed']}/history/"
    return [
        "/",
        "/job/",
        "/job/?state=failed&queue=images",
        *jobs,
        history,
        "/event/",
        "/lease/",
        "/worker/",
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits_and_keeps_the_policy(
    width: int, page: Page, site: str, shop: dict[str, int]
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    for address in addresses(shop):
        answer = page.goto(site + address)
        assert answer is not None
        assert answer.status == 200
        assert answer.headers["content-security-policy"] == policy.POLICY
        wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, f"{address} is {wide} pixels too wide"


CONTRAST = """
element => {
  const parts = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = colour => parts(colour)
    .map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const style = getComputedStyle(element);
  const [a, b] = [light(style.color), light(style.backgroundColor)].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
}
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_state_can_be_read_and_is_told_by_more_than_its_colour(
    scheme: Any, page: Page, site: str
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{site}/job/")
    badges = page.locator("#relay-jobs .relay-badge")
    expect(badges).to_have_count(8)
    for badge in badges.all():
        assert badge.evaluate(CONTRAST) >= 4.5
        assert badge.inner_text().strip()
        assert badge.locator("svg use").count() == 1
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is (scheme == "light")


@pytest.mark.parametrize(
    ("life", "button", "told", "becomes"),
    [
        ("ready", "Cancel…", "1 job cancelled.", "Cancelled"),
        ("running", "Cancel…", "1 job asked to stop.", "Running"),
        ("running", "Cancel by force…", "1 job cancelled.", "Cancelled"),
        ("failed", "Requeue…", "1 job requeued.", "Ready"),
        ("scheduled", "Run now…", "1 job made due.", "Ready"),
    ],
)
@pytest.mark.parametrize("width", WIDTHS)
def test_an_action_on_a_jobs_own_page(
    width: int,
    life: str,
    button: str,
    told: str,
    becomes: str,
    page: Page,
    site: str,
    shop: dict[str, int],
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{site}/job/{shop[life]}/change/")
    page.get_by_role("button", name=button, exact=True).click()
    expect(page.locator("#content h1")).to_have_text(f"{button[:-1]}: job {shop[life]}")
    before = lives.state(shop[life])
    page.locator(".relay-answer button").click()
    expect(page.locator(".messagelist")).to_have_text(told)
    expect(page.locator(".relay-title .relay-badge")).to_have_text(becomes)
    assert (lives.state(shop[life]) == before) is (becomes == "Running")
    page.get_by_role("link", name="History").click()
    expect(page.locator("#change-history tbody tr")).to_have_count(1)


def test_jobs_are_chosen_on_the_list(page: Page, site: str, shop: dict[str, int]) -> None:
    page.goto(f"{site}/job/")
    cancel = page.get_by_role("button", name="Cancel…", exact=True)
    expect(cancel).to_be_disabled()
    page.get_by_label("Choose all jobs of this page").check()
    expect(page.locator("[data-relay-chosen]")).to_have_text("chosen: 8")
    page.get_by_label(f"Choose job {shop['running']}", exact=True).uncheck()
    expect(page.locator("[data-relay-chosen]")).to_have_text("chosen: 7")
    cancel.click()
    expect(page.locator("#content h1")).to_have_text("Cancel: 3 of 7 jobs")
    expect(page.locator(".relay-skipped")).to_have_count(4)
    page.get_by_role("link", name="No, take me back").click()
    assert lives.state(shop["ready"]) == "ready"
    page.get_by_label("Choose all jobs of this page").check()
    cancel.click()
    page.locator(".relay-answer button").click()
    expect(page.locator(".messagelist li")).to_have_count(3)
    assert lives.state(shop["ready"]) == "cancelled"


def test_the_list_is_filtered_searched_and_turned(
    page: Page, site: str, shop: dict[str, int]
) -> None:
    page.goto(f"{site}/job/")
    page.get_by_role("navigation", name="States").get_by_role("link", name="Failed").click()
    expect(page.locator("#relay-jobs tbody tr")).to_have_count(1)
    page.get_by_label("Queue").select_option("mail")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".relay-empty")).to_have_text("No job found.")
    page.get_by_role("link", name="Clear").click()
    search = page.get_by_label("Job’s number")  # noqa: RUF001
    search.fill(str(shop["ready"]))
    search.press("Enter")
    expect(page.locator("#relay-jobs tbody tr")).to_have_count(1)
    page.goto(f"{site}/job/?before={shop['ready']}")
    expect(page.locator("#relay-jobs tbody tr")).to_have_count(7)
    page.get_by_role("link", name="Newer").click()
    expect(page.locator("#relay-jobs tbody tr")).to_have_count(1)
    page.locator(".relay-job a").click()
    expect(page).to_have_url(re.compile(f"/job/{shop['ready']}/change/"))


def test_a_traceback_is_folded_until_it_is_wanted(
    page: Page, site: str, shop: dict[str, int]
) -> None:
    page.goto(f"{site}/job/{shop['failed']}/change/")
    traceback = page.get_by_text("Traceback (most recent call last)")
    expect(traceback).to_be_hidden()
    page.get_by_role("table").locator("summary").click()
    expect(traceback).to_be_visible()


def test_the_events_of_a_job_are_found(page: Page, site: str, shop: dict[str, int]) -> None:
    page.goto(f"{site}/job/{shop['taken over']}/change/")
    page.get_by_role("link", name="All events").click()
    expect(page.locator(".relay-events tbody tr")).to_have_count(9)
    page.get_by_label("What happened").select_option("refused")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".relay-events tbody tr")).to_have_count(1)


def test_workers_lead_to_what_they_run(page: Page, site: str, shop: dict[str, int]) -> None:
    page.goto(f"{site}/worker/")
    expect(page.get_by_text("no worker serves it")).to_be_visible()
    page.locator(".relay-running a").click()
    expect(page).to_have_url(re.compile(f"/job/{shop['running']}/change/"))


def test_everything_can_be_done_without_scripts(
    page: Page, browser: Browser, site: str, shop: dict[str, int]
) -> None:
    kept = page.context.storage_state()
    with browser.new_context(java_script_enabled=False, storage_state=kept) as context:
        plain = context.new_page()
        plain.goto(f"{site}/job/")
        expect(plain.get_by_label("Choose all jobs of this page")).to_be_hidden()
        plain.get_by_label(f"Choose job {shop['scheduled']}", exact=True).check()
        plain.get_by_role("button", name="Run now…", exact=True).click()
        plain.locator(".relay-answer button").click()
        expect(plain.locator(".messagelist")).to_have_text("1 job made due.")
    assert lives.state(shop["scheduled"]) == "ready"


def test_markup_from_a_job_stays_text(page: Page, site: str) -> None:
    markup = '<img src="x" onerror="alert(1)"><script>alert(2)</script>'
    job_id = lives.enqueue(task=f"a.{markup}", queue=markup, args='["<script>"]')
    error = dict.fromkeys(("class", "message", "traceback"), markup)
    lives.end(lives.claim(job_id, by=f"{markup}/1"), outcomes.failed(error))
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    for address in ("/job/", f"/job/{job_id}/change/", "/event/", "/worker/"):
        page.goto(site + address)
        data = page.locator("#content-main script[type='application/json']")
        expect(data).to_have_count(int("change" in address))
        own = page.locator("#content-main :is(script:not([type='application/json']), img)")
        expect(own).to_have_count(0)
    assert dialogs == []
