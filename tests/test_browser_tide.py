"""The tide line in a real Chromium: what it says is true, and its numbers can be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from browser import chromium, expect, opened
from browser_still import Told, a_few, served
from frames import at, frame, point, query
from slackwater.service.models import Knobs

SLACK = "Slack water. Every answer is as exact as its contract could ask."
CALM: dict[str, Any] = {"level": 0.0, "load": 0.5, "kept_load": 0.5, "capacity": 1.0}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def test_what_a_level_of_nothing_means_is_said_as_it_is(browser: Browser) -> None:
    exact = query("exact", [point(1)])
    watched = Told(frame(1, [exact], whole=True, **CALM))
    with served(watched) as address, opened(browser, address.page) as page:
        says = page.locator("#level-says")
        expect(says).to_have_text(SLACK)
        watched.tell([query("exact", [point(2)], met=False, how="bounded")])
        unmet = "1 contract is not met for another reason."
        expect(says).to_have_text(f"Slack water: nothing is shed. {unmet}")
        # one that is not met for what was shed is not met for no other reason
        watched.tell([query("burst", [point(3)], met=False, how="sampled")])
        left = "Nothing is shed any more; the newest windows of some queries still lack rows."
        expect(says).to_have_text(f"{left} {unmet}")
        watched.tell([query("exact", [point(4)])])
        expect(says).to_have_text(left)
        watched.tell([query("burst", [point(5)], suspended=True)])
        watched.tell([query("other", [point(5)], met=False), query("exact", [point(5)], met=False)])
        expect(says).to_have_text(f"{left} 2 contracts are not met for another reason.")
        watched.tell([query(name, [point(6)]) for name in ("exact", "burst", "other")])
        expect(says).to_have_text(SLACK)
        for phase, words in (
            ("failed", "The run has failed. Nothing is answered any more."),
            ("stopped", "The run was stopped. This is how it was at last."),
            ("ended", "The streams have ended. These are the last answers."),
        ):
            watched.tell(phase=phase)
            expect(says).to_have_text(words)


def point_at(page: Page, share: float) -> None:
    """The mouse over so much of the chart of the load."""
    box = page.locator("#tide-chart .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + share * box["width"], box["y"] + 30)


def test_values_of_the_tide_line_can_be_read_where_the_pointer_is(browser: Browser) -> None:
    unmeasured = {"load": None, "kept_load": None, "capacity": None, "level": 0.0}
    watched = Told(frame(1, [query("q", [point(1)])], whole=True, **unmeasured))
    with served(watched) as address, opened(browser, address.page) as page:
        unit, reading = page.locator("#tide-unit"), page.locator("#tide-reading")
        legend = page.locator(".legend .key:visible")
        expect(unit).to_have_text("rows/s · UTC")
        expect(legend).to_have_text(["rows that arrive; the load is not measured yet", "level ℓ"])
        expect(reading).to_be_hidden()
        point_at(page, 0.99)
        expect(reading).to_have_text("12:00:01 · 50 rows/s · ℓ 0.00")
        watched.tell(at=at(2), load=3.0, kept_load=1.5, capacity=2.0, level=0.25)
        expect(unit).to_have_text("s a batch · UTC")
        expect(legend).to_have_text(["load, of which shed", "kept", "capacity", "level ℓ"])
        point_at(page, 0.999)
        expect(reading).to_have_text("12:00:02 · load 3 s · kept 1.5 s · capacity 2 s · ℓ 0.25")
        # on the side where the pointer is not
        expect(reading).to_have_attribute("data-side", "left")
        page.mouse.move(2, 2)
        expect(reading).to_be_hidden()
        # the unit stays where there is little room
        page.set_viewport_size({"width": 700, "height": 800})
        expect(unit).to_be_visible()


OVERLAPS = """async () => {
  // charts follow the width a moment later
  for (let n = 0; n < 3; n += 1) await new Promise(requestAnimationFrame);
  const parts = "#level-value, #level-says, #tide .facts dd, .legend .key, .legend .unit, .spans button, #chapter, #knobs input, #knobs output";
  const boxes = [...document.querySelectorAll(parts)].map((each) => {
    // of texts what they take, and not their boxes
    const range = document.createRange();
    range.selectNodeContents(each);
    return [each, each.matches("button, input") ? each.getBoundingClientRect() : range.getBoundingClientRect()];
  }).filter(([, box]) => box.width && box.height);
  const over = (one, other) => Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1
    && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 1;
  const found = boxes.flatMap(([one, box], i) => boxes.slice(i + 1)
    .filter(([, other]) => over(box, other)).map(([other]) => `${one.textContent || one.id} / ${other.textContent || other.id}`));
  const { scrollWidth } = document.scrollingElement;
  return [...found, ...(scrollWidth > innerWidth ? [`${scrollWidth} wide`] : [])];
}"""


def test_nothing_lies_on_another_thing_however_wide_the_screen_is(browser: Browser) -> None:
    knobs = Knobs(
        load=1, tolerance=1, story=True, chapter="An agent is lost: answers that rest on it say so."
    )
    watched = Told(frame(1, a_few(), whole=True, knobs=knobs))
    with served(watched) as address, opened(browser, address.page) as page:
        found = {}
        for shown in (knobs, None):
            watched.tell(knobs=shown)
            expect(page.locator("#knobs")).to_be_visible(visible=shown is not None)
            for width in (360, 640, 641, 700, 720, 741, 901, 920, 1024, 1081, 1100, 1240, 1440):
                page.set_viewport_size({"width": width, "height": 844})
                found[width, shown is not None] = page.evaluate(OVERLAPS)
        assert {place: over for place, over in found.items() if over} == {}
