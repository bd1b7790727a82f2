"""The replay in the admin's page of a job: played, stepped and scrubbed under the strict policy;
read without a script, printed, wide and narrow, light and dark; and of jobs as none should be.

``RELAY_SCREENSHOTS`` names a directory to keep the pictures in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import lives, policy

from .player import clock, current, owner, play_to_the_end, state

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

expect: Any = pytest.importorskip("playwright.sync_api").expect

Open = Callable[[int], "Page"]
TOLD = [
    "Enqueued",
    "A Claimed under lease A",
    "A Lease A runs out",
    "A Taken back from its worker",
    "B Claimed under lease B",
    "A Late ending refused",
    "B Failed, to be tried again",
    "Given another time",
    "C Claimed under lease C",
    "C Succeeded under lease C",
]


@pytest.fixture
def opened(sign_in: Callable[..., Page], site: str) -> Iterator[Open]:
    """Opens the page of a job, to a user who may see everything."""
    page = sign_in(lives.user("ada", "view_job", "view_event", "view_job_arguments"))

    def go(job_id: int) -> Page:
        answer = page.goto(f"{site}/job/{job_id}/change/")
        assert answer is not None
        assert answer.status == 200
        assert answer.headers["content-security-policy"] == policy.POLICY
        return page

    yield go
    expect(page.locator("[data-replay-trouble]")).to_be_hidden()


def test_it_opens_with_the_whole_story_and_plays_to_its_end(opened: Open) -> None:
    page = opened(lives.taken_over())
    assert current(page) == TOLD[-1]
    assert state(page) == "successful"
    end = clock(page)
    play_to_the_end(page)
    assert (current(page), clock(page)) == (TOLD[-1], end)
    assert page.locator(".replay-sign-refused").is_visible()


def test_it_steps_from_event_to_event(opened: Open) -> None:
    page = opened(lives.taken_over())
    page.get_by_role("button", name="Play").focus()
    page.keyboard.press("Home")
    told = [current(page)]
    for _ in TOLD[1:]:
        page.get_by_role("button", name="Step forward").click()
        told.append(current(page))
    assert told == TOLD
    page.get_by_role("button", name="Step back").click()
    assert current(page) == TOLD[-2]
    page.keyboard.press("ArrowLeft")
    assert current(page) == TOLD[-3]
    caption = page.locator("[data-replay-caption]")
    assert caption.get_attribute("aria-live") == "polite"
    assert caption.inner_text() == "Given another time. Due at once; by ada."


def test_it_can_be_scrubbed(opened: Open) -> None:
    page = opened(lives.taken_over())
    scrub = page.get_by_label("Time from enqueue")
    scrub.fill("0")
    assert clock(page) == "0.000 s"
    assert owner(page) == "nobody"
    scrub.fill("1200")
    assert owner(page) == "token = A · lease is valid"
    assert str(scrub.get_attribute("aria-valuetext")).endswith("Claimed under lease A")
    page.locator("[data-replay-list] li button").nth(2).click()
    assert owner(page) == "token = A · lease has run out"


def test_lanes_and_lines_name_the_workers_as_they_call_themselves(opened: Open) -> None:
    page = opened(lives.taken_over())
    workers = [f"{lives.FIRST}/1", f"{lives.SECOND}/1", f"{lives.SECOND}/3"]
    assert page.locator(".replay-lane-name").all_text_contents() == ["In the queue", *workers]
    assert page.locator(".replay-who").first.inner_text().strip() == f"· {lives.FIRST}/1"


def test_a_long_name_is_shortened_in_its_lane_and_told_in_the_list(opened: Open) -> None:
    worker = f"ip-10-0-117-42.eu-central-1.compute.internal-{'x' * 40}-28722-629f546f/1"
    job_id = lives.enqueue()
    lives.claim(job_id, by=worker)
    page = opened(job_id)
    lane = page.locator(".replay-lane-name").last
    assert str(lane.text_content()).startswith("ip-10-0-117")
    assert "…" in str(lane.text_content())
    assert lane.locator("title").text_content() == worker
    assert worker in page.locator(".replay-who").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0


def test_a_running_job_is_followed_until_now(opened: Open) -> None:
    job_id = lives.running()
    lives.age(job_id, timedelta(seconds=12))
    page = opened(job_id)
    assert 12 <= float(clock(page).split()[0]) < 30
    assert owner(page) == "token = A · lease is valid"
    assert "until 3" in str(page.locator(".replay-until").first.text_content())
    play_to_the_end(page)
    assert owner(page) == "token = A · lease is valid"
    assert state(page) == "running"


@pytest.mark.parametrize("life", ["ready", "scheduled", "cancelled", "backing_off", "lost_twice"])
def test_a_job_in_any_state_plays(opened: Open, life: str) -> None:
    page = opened(getattr(lives, life)())
    page.get_by_role("button", name="Step back").click()
    play_to_the_end(page)


def test_a_long_history_says_what_it_shows(opened: Open) -> None:
    page = opened(lives.long_lived(10_000))
    expect(page.get_by_text("this page shows the first and the last 60.")).to_be_visible()
    lines = page.locator("[data-replay-list] li")
    expect(lines).to_have_count(121)
    expect(lines.nth(60)).to_have_text("Events are left out here")
    page.get_by_role("button", name="Step back").click()
    lines.nth(60).locator("button").click()
    assert owner(page) == "nobody"
    page.get_by_role("link", name="All events").click()
    expect(page.locator(".relay-events tbody tr")).to_have_count(50)


ODD = {
    "no events at all": "DELETE FROM django_relay_event WHERE job_id = %(id)s",
    "no beginning": "DELETE FROM django_relay_event WHERE job_id = %(id)s AND kind = 'enqueued'",
    "no claims": "DELETE FROM django_relay_event WHERE job_id = %(id)s AND kind = 'claimed'",
    "unknown kinds": "UPDATE django_relay_event SET kind = 'blessed' WHERE job_id = %(id)s",
    "no workers": "UPDATE django_relay_event SET worker = NULL WHERE job_id = %(id)s",
    "no leases": "UPDATE django_relay_event SET claim = NULL, token = NULL WHERE job_id = %(id)s",
    "no data": "UPDATE django_relay_event SET data = NULL WHERE job_id = %(id)s",
    "data of another kind": "UPDATE django_relay_event SET data = '[7]' WHERE job_id = %(id)s",
    "times without end": "UPDATE django_relay_event SET at = 'infinity' WHERE job_id = %(id)s "
    "AND kind IN ('claimed', 'succeeded')",
    "times without beginning": "UPDATE django_relay_event SET at = '-infinity' "
    "WHERE job_id = %(id)s AND kind IN ('enqueued', 'rescued', 'refused')",
    "times that run backwards": "UPDATE django_relay_event SET at = now() - id * interval '1 h' "
    "WHERE job_id = %(id)s",
    "an hour's claim": "UPDATE django_relay_event SET at = at - interval '1 h' "
    "WHERE job_id = %(id)s AND kind <> 'succeeded'",
}


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_history_can_be_followed(opened: Open, odd: str) -> None:
    job_id = lives.taken_over()
    lives.execute(ODD[odd], {"id": job_id})
    page = opened(job_id)
    expect(page.locator("[data-replay-player]")).to_be_visible()
    page.get_by_role("button", name="Step back").click()
    page.get_by_label("Time from enqueue").fill("100")
    play_to_the_end(page)


def test_it_is_read_without_javascript(opened: Open, browser: Browser, site: str) -> None:
    job_id = lives.taken_over()
    kept = opened(job_id).context.storage_state()
    with browser.new_context(java_script_enabled=False, storage_state=kept) as context:
        page = context.new_page()
        page.goto(f"{site}/job/{job_id}/change/")
        assert page.locator("[data-replay-list] li strong").all_inner_texts() == TOLD
        expect(page.locator("[data-replay-player]")).to_be_hidden()
        expect(page.get_by_text("Due at once; by ada.")).to_be_visible()


def test_printed_it_shows_the_end_and_no_controls(opened: Open) -> None:
    page = opened(lives.taken_over())
    page.get_by_role("button", name="Play").focus()
    page.keyboard.press("Home")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator(".replay-sign-refused")).to_be_visible()
    expect(page.get_by_role("button", name="Play")).to_be_hidden()
    expect(page.locator("[data-replay-list] li").last).to_be_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert current(page) == "Enqueued"


def test_it_follows_the_theme_that_the_admin_was_set_to(opened: Open) -> None:
    page = opened(lives.taken_over())
    page.emulate_media(color_scheme="light")
    light = page.locator(".replay").evaluate("each => getComputedStyle(each).color")
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    assert page.locator(".replay").evaluate("each => getComputedStyle(each).color") != light


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_the_page(opened: Open, tmp_path: Path, width: int, scheme: Any) -> None:
    directory = Path(os.environ.get("RELAY_SCREENSHOTS") or tmp_path)
    running = lives.running()
    lives.age(running, timedelta(seconds=12))
    made = {"taken-over": lives.taken_over(), "running": running, "failed": lives.failed()}
    made |= {"long": lives.long_lived(300), "scheduled": lives.scheduled()}
    for name, job_id in made.items():
        page = opened(job_id)
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.locator("[data-replay-list] li button").last.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        right = page.evaluate(
            "Math.max(...[...document.querySelectorAll('.replay-svg text:not([hidden])')]"
            ".map((each) => each.getBoundingClientRect().right))"
        )
        assert right <= width
        page.screenshot(path=directory / f"admin-{name}-{width}-{scheme}.png", full_page=True)
