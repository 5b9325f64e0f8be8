"""The reader's place in a real Chromium: where one has scrolled to, what is selected, and what has the focus stay."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import pytest
from playwright.sync_api import Browser, Page

from browser import card, cards_in_order, chromium, expect, opened, told_until
from browser_still import ALERT, Told, a_few, many, served
from frames import answer, frame, point, query
from slackwater.errors import RunError
from slackwater.service.models import QueryFrame
from slackwater.service.watched import Newest


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def focused(page: Page) -> str:
    found: str = page.evaluate("document.activeElement.id || document.activeElement.textContent")
    return found


def test_a_card_that_falls_does_not_take_the_reader_along(browser: Browser) -> None:
    def told(second: float, fallen: set[int]) -> list[QueryFrame]:
        return [
            each.model_copy(update={"load": 0.0 if i in fallen else 1_000.0 - i})
            for i, each in enumerate(many(320, 0, second))
        ]

    watched = Told(frame(1, told(1, set()), whole=True))
    with served(watched) as address, opened(browser, address.page) as page:
        page.get_by_label("sorted by").select_option("load")
        assert cards_in_order(page)[0] == "q0000"
        shore = page.locator("#shore")
        shore.evaluate("shore => { shore.scrollTop = 800; }")
        # the first one that is seen, and those beside it
        top = page.evaluate(
            """() => [...document.querySelectorAll("#cards > li")].findIndex((each) =>
              each.getBoundingClientRect().bottom > document.getElementById("shore").getBoundingClientRect().top)"""
        )
        fallen = set(range(top, top + 8))
        told_until(
            page, lambda: watched.tell(told(2, fallen)), lambda: f"q{top:04}" in cards_in_order(page)[-8:]
        )
        assert shore.evaluate("shore => shore.scrollTop") == 800


@dataclass
class Answered(Told):
    """`Watched` with the newest answers of two groups."""

    value: float = 1.0
    turned: bool = False
    broken: bool = False

    def latest(self, query: str, limit: int, search: str = "", until: datetime | None = None) -> Newest:
        if self.broken:
            raise RunError("the disk is full")
        both = [answer("calm", 8, self.value + n, keys=(("host", host),)) for n, host in enumerate("ab")]
        return Newest(both[::-1] if self.turned else both, 2)


def two_hosts() -> Answered:
    shown = query("calm", [point(s, 100) for s in range(1, 9)], keys={"host": "a"}, groups=2)
    return Answered(frame(1, [shown], whole=True))


def test_newest_answers_change_in_their_place(browser: Browser) -> None:
    watched = two_hosts()
    excused = {"/api/queries/calm/latest"}
    with served(watched) as address, opened(browser, address.page, excused=excused) as page:
        card(page, "calm").locator(".open").click()
        page.get_by_text("Latest answers").click()
        lines = page.locator("#latest-list tbody tr")
        expect(lines).to_have_count(2)
        # a hand is on a button while answers come, in another order too
        pick = lines.nth(1).get_by_role("button", name="host=b")
        pick.hover()
        page.mouse.down()
        page.evaluate(
            """() => {
              const cell = document.querySelectorAll("#latest-list tbody tr")[0].cells[2];
              getSelection().selectAllChildren(cell);
            }"""
        )
        watched.value, watched.turned = 50.0, True
        values = page.locator("#latest-list tbody td:nth-child(4)")
        told_until(page, watched.tell, lambda: values.all_text_contents() == ["50", "51"])
        assert page.evaluate("String(getSelection())") == "host=a"
        page.mouse.up()
        expect(pick).to_have_attribute("aria-pressed", "true")
        # what cannot be had now does not take away what was there
        watched.broken = True
        trouble = page.locator("#latest-list .problem")
        told_until(page, watched.tell, trouble.is_visible)
        expect(trouble).to_contain_text("the disk is full")
        expect(values).to_have_text(["50", "51"])
        watched.broken = False
        told_until(page, watched.tell, trouble.is_hidden)
        # who is elsewhere sees them in their order
        page.evaluate("getSelection().removeAllRanges()")
        page.locator("#contract").focus()
        page.mouse.move(1, 1)
        watched.value = 70.0
        told_until(page, watched.tell, lambda: values.all_text_contents() == ["71", "70"])


def test_a_sheet_whose_query_goes_gives_the_focus_to_a_card(browser: Browser) -> None:
    watched = Told()
    with served(watched) as address, opened(browser, address.page) as page:
        card(page, "late").locator(".open").click()
        expect(page.locator("#query")).to_be_visible()
        watched.tell(dropped=["late"])
        expect(page.locator("#query")).to_be_hidden()
        expect(card(page, "late")).to_have_count(0)
        assert focused(page) == "picked"


def test_the_focus_goes_on_to_a_card_that_is_shown(browser: Browser) -> None:
    watched = Told()
    with served(watched) as address, opened(browser, address.page) as page:
        expect(page.locator("#count")).to_have_text("4")
        expect(card(page, "wide").locator(".open")).to_be_visible()
        # calm and wide are met, and picked is not asked for
        page.locator("#search").fill("error")
        expect(page.locator("#count")).to_have_text("3 of 4")
        card(page, "late").locator(".open").focus()
        watched.tell(dropped=["late"])
        expect(card(page, "late")).to_have_count(0)
        assert focused(page) == "wide"
        # another one is not what is searched for any more
        watched.tell([query("wide", [point(9)], contract="EXACT"), query("more", [point(9)])])
        expect(page.locator("#count")).to_have_text("2 of 4")
        assert focused(page) == "calm"


def test_an_alert_that_goes_leaves_the_focus_in_the_list(browser: Browser) -> None:
    other = ALERT.model_copy(update={"name": "other"})
    watched = Told(frame(1, a_few(), whole=True, alerts=[ALERT, other]))
    with served(watched) as address, opened(browser, address.page) as page:
        items = page.locator("#alerts-list li")
        expect(items).to_have_count(2)
        page.get_by_role("button", name="Drop the alert other").focus()
        watched.tell(alerts=[ALERT])
        expect(items).to_have_count(1)
        assert focused(page) == "alerts-list"
        page.get_by_role("button", name="Drop the alert busy").focus()
        watched.tell(alerts=[])
        expect(page.locator("#alerts")).to_be_hidden()
        assert focused(page) == "side"


def test_what_is_left_of_a_run_that_is_over_can_be_read(browser: Browser) -> None:
    """While a service is only awaited the charts fade, which may be old, and no text does."""
    faded = """() => [...document.querySelectorAll("#shore, .card .value, .card .chart, .lines, #tide-chart")].map((each) => {
      let left = 1;
      for (let one = each; one !== null; one = one.parentElement) left *= Number(getComputedStyle(one).opacity);
      return left.toFixed(2);
    })"""
    for phase, wanted in (("running", {"0.55", "1.00"}), ("ended", {"1.00"})):
        watched = Told(frame(1, [query("calm", [point(1)])], whole=True, phase=phase))
        # while nobody listens Chromium writes of each try that it was refused
        context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
        page = context.new_page()
        with served(watched) as address:
            page.goto(address.page)
            expect(page.locator("#count")).to_have_text("1")
            expect(card(page, "calm").locator("canvas")).to_be_visible()
        over = "The run is over" if phase == "ended" else "The service does not answer"
        expect(page.locator("#lost")).to_contain_text(re.compile(over))
        expect(page.locator("html")).to_have_attribute("data-lost", "over" if phase == "ended" else "yes")
        # what stays to be read lies on nothing
        assert page.locator("#lost.settled").count() == (phase == "ended")
        page.wait_for_function(f"() => new Set(({faded})()).size === {len(wanted)}")
        assert set(page.evaluate(faded)) == wanted
        assert page.locator(".card .value").evaluate("each => getComputedStyle(each).opacity") == "1"
        context.close()
