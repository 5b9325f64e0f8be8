"""The order of cards in a real Chromium: the worst first, live, among a thousand, and without anything that jumps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from browser import card, cards_in_order, chromium, expect, opened
from browser_still import Told, a_few, many, served
from frames import frame, point, query
from slackwater.service.models import QueryFrame

SHIFTS = """() => {
  window.shifts = [];
  new PerformanceObserver((list) => window.shifts.push(...list.getEntries().map((entry) =>
    [entry.value, ...entry.sources.map((source) => source.node?.id || source.node?.className || "")].join(" "))))
    .observe({ type: "layout-shift", buffered: false });
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def sorted_by(page: Page, order: str) -> list[str]:
    page.get_by_label("sorted by").select_option(order)
    return cards_in_order(page)


def test_what_has_no_bound_is_the_largest_error(browser: Browser) -> None:
    none = {"error": None, "rate": 0.0, "last_text": "–"}
    shown = [
        *a_few(),
        query("given_up", [point(1, None, how="suspended")], suspended=True, met=False, how="suspended", **none),
        query("around_0", [point(1, 0, half=50, how="sampled")], how="sampled", error=None),
        query("away", [point(1, 7, how="bounded").model_copy(update={"low": None, "high": None})], how="bounded", met=False, error=None),
        query("nothing", [point(1, 0)], how="exact"),
        query("silent", [], column=None, how=None, met=None, error=None, last_text=""),
        query("to_be", [], column=None, how=None, met=None, error=None, expected_error=0.2, last_text=""),
    ]  # fmt: skip
    with served(Told(frame(1, shown, whole=True))) as address, opened(browser, address.page) as page:
        expect(page.locator("#count")).to_have_text("10")
        worst = ["around_0", "away", "given_up"]
        assert sorted_by(page, "error") == [*worst, "wide", "to_be", "late", "calm", "nothing", "picked", "silent"]  # fmt: skip


def test_a_thousand_are_sorted_live_also_below_a_pointer_that_rests(browser: Browser) -> None:
    def told(second: float, worst: int) -> list[QueryFrame]:
        worse = {"error": 0.9, "load": 3.0, "met": False, "how": "sampled"}
        return [
            each.model_copy(update=worse if i == worst else {"error": 0.1, "load": 0.1})
            for i, each in enumerate(many(1_000, 0, second))
        ]

    watched = Told(frame(1, told(1, 700), whole=True))
    with served(watched) as address, opened(browser, address.page) as page:
        expect(page.locator("#count")).to_have_text("1000")
        for order in ("error", "load", "contract met"):
            assert sorted_by(page, order)[:2] == ["q0700", "q0000"], order
        page.get_by_role("button", name="Not met 1").click()
        assert cards_in_order(page) == ["q0700"]
        expect(page.locator("#count")).to_have_text("1 of 1000")
        page.locator("#unmet").click()
        expect(page.locator("#count")).to_have_text("1000")
        # a pointer that was left where it is does not hold up the order of what is watched
        card(page, "q0700").hover()
        second = 2
        while cards_in_order(page)[0] != "q0007":
            assert second < 120, "the order stands still"
            watched.tell(told(second, 7))
            page.wait_for_timeout(250)
            second += 1
        # who goes by keys keeps the place
        card(page, "q0007").locator(".open").focus()
        page.keyboard.press("Tab")
        before = page.evaluate("document.activeElement.closest('.card').dataset.name")
        for _ in range(20):
            watched.tell(told(second, 900))
            page.wait_for_timeout(250)
            second += 1
        assert page.evaluate("document.activeElement.closest('.card').dataset.name") == before
        assert cards_in_order(page)[0] == "q0007"


def test_frames_move_nothing(browser: Browser) -> None:
    """But for words that end at an edge, and begin elsewhere when they are longer."""
    watched = Told(frame(1, a_few(), whole=True))
    with served(watched) as address, opened(browser, address.page) as page:
        expect(card(page, "wide").locator("canvas")).to_be_visible()
        expect(page.locator("#plan img, #plan svg").first).to_be_visible()
        page.evaluate(SHIFTS)
        for second in range(10, 22):
            wild = {"level": 0.1 * (second % 5), "load": 0.1 * 10 ** (second % 4)}
            value = 7.0 * 10 ** (second % 6)
            queries = [
                query("calm", [point(second, value, half=value / 9, how="sampled")], how="sampled", error=0.11, last_text=f"{value:g} ± {value / 9:.0f} (95%)"),
                query("late", [point(second, 70)], met=second % 2 == 0, last_text="70", contract="ERROR 1%"),
            ]  # fmt: skip
            watched.tell(queries, **wild)
            expect(card(page, "calm").locator(".chart")).to_have_attribute("data-points", str(second - 1))
        moved = {part for shift in page.evaluate("window.shifts") for part in shift.split(" ")[1:]}
        assert moved <= {"how", "interval"}
