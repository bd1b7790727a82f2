"""The replay in a browser: played to the end, stepped, scrubbed, by mouse and by keyboard; and
looked at in both schemes and widths. Every complaint of the console fails the test.

``RELAY_SCREENSHOTS`` names a directory to keep the pictures in.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.template import Context, Engine

from django_relay import recording, replay
from django_relay.recording import Moment, RecordedJob, Recording
from tests.unit.test_recording import CRASH

from .player import clock, current, owner

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

PACKAGE = Path(replay.__file__).resolve().parent.parent
SERVED = """<!doctype html><html lang="en"><head><title>Served</title>
<link rel="stylesheet" href="/replay.css"></head><body>
{% include "django_relay/replay/body.html" %}<script src="/replay.js"></script></body></html>"""
STRICT = "default-src 'none'; script-src 'self'; style-src 'self'"

Open = Callable[[Recording], "Page"]


@pytest.fixture
def opened(watched: Page, tmp_path: Path) -> Open:
    """Opens a recording's self-contained page, as a file."""

    def go(made: Recording) -> Page:
        path = tmp_path / "replay.html"
        path.write_text(replay.self_contained(made), encoding="utf-8")
        watched.goto(path.as_uri())
        return watched

    return go


def two_jobs() -> Recording:
    """CRASH, and a second job with less to tell."""
    job = RecordedJob(8, "shop.tasks.pack", "default", "ready")
    other = Moment(500.0, 8, "enqueued", data={"state": "ready"})
    return replace(CRASH, jobs=(*CRASH.jobs, job), moments=(*CRASH.moments, other))


def test_at_first_the_whole_story_is_there(opened: Open) -> None:
    page = opened(CRASH)
    assert current(page).endswith("Late ending refused")
    assert page.locator(".replay-sign-refused").is_visible()
    assert page.locator("[data-replay-state]").inner_text() == "successful"
    assert owner(page) == "nobody"


def test_it_plays_from_the_beginning_to_the_end(opened: Open) -> None:
    page = opened(CRASH)
    page.get_by_label("Speed").select_option("4")
    page.get_by_role("button", name="Play").click()
    page.wait_for_function(
        "document.querySelector('[data-replay-owner]').textContent.includes('token = A')"
    )
    assert page.get_by_role("button", name="Pause").is_visible()
    page.get_by_role("button", name="Play").wait_for(timeout=10_000)
    assert current(page).endswith("Late ending refused")
    assert float(clock(page).split()[0]) > 3.9


def test_it_pauses_where_it_is(opened: Open) -> None:
    page = opened(CRASH)
    page.get_by_role("button", name="Play").click()
    page.wait_for_function(
        "!document.querySelector('[data-replay-clock]').textContent.startsWith('4')"
    )
    page.get_by_role("button", name="Pause").click()
    before = clock(page)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert clock(page) == before


def test_a_step_goes_from_event_to_event(opened: Open) -> None:
    page = opened(CRASH)
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Play").focus()
    page.keyboard.press("Home")
    told = [current(page)]
    for _ in range(7):
        page.get_by_role("button", name="Step forward").click()
        told.append(current(page))
    assert told == [
        "Enqueued",
        "A Claimed under lease A",
        "SIGKILL to the whole worker",
        "A Lease A runs out",
        "A Taken back from its worker",
        "B Claimed under lease B",
        "B Succeeded under lease B",
        "A Late ending refused",
    ]
    page.get_by_role("button", name="Step back").click()
    assert current(page) == "B Succeeded under lease B"


def test_the_owner_is_told_by_token_and_lease(opened: Open) -> None:
    page = opened(CRASH)
    lines = page.locator("[data-replay-list] li button")
    expected = {
        0: "nobody",
        1: "token = A · lease is valid",
        2: "token = A · lease is valid, nobody renews it",
        3: "token = A · lease has run out",
        4: "nobody",
        5: "token = B · lease is valid",
        6: "nobody",
    }
    for place, said in expected.items():
        lines.nth(place).click()
        assert owner(page) == said, place


def test_scrubbing_shows_the_silence_after_the_kill(opened: Open) -> None:
    page = opened(CRASH)
    scrub = page.get_by_label("Time from enqueue")
    scrub.fill("1500")
    assert clock(page) == "1.500 s"
    assert page.locator(".replay-silent").first.is_visible()
    assert "until 1.880 s" in page.locator(".replay-until").first.text_content()
    assert scrub.get_attribute("aria-valuetext") == "1.500 s, SIGKILL to the whole worker"
    scrub.fill("500")
    assert not page.locator(".replay-silent").first.is_visible()
    assert "until 1.012 s" in page.locator(".replay-until").first.text_content()


def test_the_keyboard_is_enough(opened: Open) -> None:
    page = opened(CRASH)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText").strip() == "Play"
    page.keyboard.press("Home")
    assert current(page) == "Enqueued"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert current(page) == "A Claimed under lease A"
    page.keyboard.press("End")
    assert current(page) == "A Late ending refused"
    page.keyboard.press("Space")
    page.get_by_role("button", name="Pause").wait_for()


def test_what_happens_is_announced(opened: Open) -> None:
    page = opened(CRASH)
    page.locator("[data-replay-list] li button").nth(2).click()
    caption = page.locator("[data-replay-caption]")
    assert caption.get_attribute("aria-live") == "polite"
    assert "nobody renews its lease" in caption.inner_text()


def test_a_reader_who_wants_less_motion_gets_steps(opened: Open) -> None:
    page = opened(CRASH)
    page.emulate_media(reduced_motion="reduce")
    page.get_by_label("Speed").select_option("4")
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Play").wait_for(timeout=10_000)
    assert clock(page) == "3.920 s"


def test_each_of_several_jobs_can_be_followed(opened: Open) -> None:
    page = opened(two_jobs())
    assert page.locator("[data-replay-list]").nth(1).is_hidden()
    page.get_by_label("Job", exact=True).select_option(label="8, ready")
    assert page.locator("[data-replay-list]").nth(0).is_hidden()
    assert page.locator("[data-replay-list]").nth(1).locator("li").count() == 1
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Play").wait_for(timeout=10_000)


def test_one_event_and_none_and_ten_thousand_make_a_page_that_works(opened: Open) -> None:
    page = opened(replace(CRASH, moments=CRASH.moments[:1], sights=(), marks=()))
    assert current(page) == "Enqueued"
    page = opened(replace(CRASH, moments=(), sights=(), marks=()))
    page.get_by_role("button", name="Play").click()
    page = opened(replace(CRASH, jobs=(), moments=(), sights=(), marks=()))
    assert not page.locator("[data-replay-player]").is_visible()
    assert page.get_by_text("There is no job here to follow.").is_visible()
    moments = [
        Moment(n * 1.0, 7, ("claimed", "snoozed")[n % 2], n // 2, recording.letter(n // 2), "w 1/1")
        for n in range(10_000)
    ]
    page = opened(replace(CRASH, moments=tuple(moments), sights=(), marks=()))
    assert page.locator("[data-replay-list] li:not([data-kind=gap])").count() == 400
    page.get_by_role("button", name="Step back").click()


def test_data_that_cannot_be_read_are_told_and_the_list_stays(
    watched: Page, tmp_path: Path
) -> None:
    page = replay.self_contained(CRASH)
    start = page.index('type="application/json">') + len('type="application/json">')
    path = tmp_path / "broken.html"
    path.write_text(
        page[:start]
        + '{"words": {}, "stories": [{"id": 7, "beats": 5}]}</script>'
        + page[page.index("</script>", start) + 9 :]
    )
    watched.goto(path.as_uri())
    assert watched.get_by_role("alert").inner_text().startswith("This recording cannot be played")
    assert not watched.locator("[data-replay-player]").is_visible()
    assert watched.get_by_text("Late ending refused").is_visible()


def test_it_is_read_without_javascript(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "replay.html"
    path.write_text(replay.self_contained(CRASH), encoding="utf-8")
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(path.as_uri())
    assert page.locator("[data-replay-list] li").count() == 8
    assert page.get_by_text("Late ending refused").is_visible()
    assert not page.locator("[data-replay-player]").is_visible()
    page.context.close()


def test_served_with_a_strict_policy_it_plays_all_the_same(watched: Page) -> None:
    libraries = {"i18n": "django.templatetags.i18n"}
    engine = Engine(dirs=[str(PACKAGE / "templates")], libraries=libraries)
    body = engine.from_string(SERVED).render(Context(replay.context(CRASH)))

    def answer(route: Route) -> None:
        name = route.request.url.rpartition("/")[2]
        headers = {"Content-Security-Policy": STRICT}
        if name in ("replay.css", "replay.js"):
            route.fulfill(path=PACKAGE / "static" / "django_relay" / name, headers=headers)
        else:
            route.fulfill(body=body, content_type="text/html", headers=headers)

    watched.route("http://replay.test/**", answer)
    watched.goto("http://replay.test/")
    watched.get_by_role("button", name="Step back").click()
    assert current(watched) == "B Succeeded under lease B"


def test_printed_it_shows_the_end_and_no_controls(opened: Open) -> None:
    page = opened(CRASH)
    page.keyboard.press("Tab")
    page.keyboard.press("Home")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".replay-sign-refused").is_visible()
    assert not page.get_by_role("button", name="Play").is_visible()
    assert page.locator("[data-replay-list] li").last.is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert current(page) == "Enqueued"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_the_page(opened: Open, tmp_path: Path, width: int, scheme: str) -> None:
    ranks = {"p50": 1900.0, "p95": 3000.0, "p99": 3100.0}
    row = {"processes": 3, "slots": 4, "jobs_per_second": 862.0, "ceiling_jobs_per_second": 1063.0}
    row |= {"share": 0.81, "start_ms": ranks, "finish_ms": ranks}
    burst = replace(CRASH, experiment="burst", jobs=(), figures={"configurations": [row]})
    directory = Path(os.environ.get("RELAY_SCREENSHOTS") or tmp_path)
    for made in (two_jobs(), burst):
        page = opened(made)
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if made is not burst:
            page.locator("[data-replay-list] li button").nth(3).click()
            right = page.evaluate(
                "Math.max(...[...document.querySelectorAll('.replay-svg text:not([hidden])')]"
                ".map((each) => each.getBoundingClientRect().right))"
            )
            assert right <= width
        page.screenshot(path=directory / f"{made.experiment}-{width}-{scheme}.png", full_page=True)
