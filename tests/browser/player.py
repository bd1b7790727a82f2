"""What a reader sees of a replay, read off the page: the clock, the event, the owner, the state."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


def clock(page: Page) -> str:
    return page.locator("[data-replay-clock]").inner_text()


def current(page: Page) -> str:
    return page.locator("[aria-current=step] strong").inner_text()


def owner(page: Page) -> str:
    return page.locator("[data-replay-owner]").inner_text()


def state(page: Page) -> str:
    return page.locator("[data-replay-state]").inner_text()


WATCH = """
() => {
  const clock = document.querySelector("[data-replay-clock]");
  const look = new MutationObserver(() => window.shown.push(clock.textContent));
  window.shown = [];
  look.observe(clock, { childList: true });
}
"""


def play_to_the_end(page: Page) -> None:
    """Play at the highest speed until it pauses by itself."""
    page.get_by_label("Speed").select_option("4")
    page.evaluate(WATCH)
    page.get_by_role("button", name="Play").click()
    page.locator("[data-replay-play]:not(.replay-playing)").wait_for(timeout=60_000)
    assert len(page.evaluate("window.shown")) > 1, "the clock has run"
