"""The page in a real Chromium for who has no mouse or does not see it: the plan, the streams, and what speaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

import pytest
from playwright.sync_api import Browser

from browser import check_names, chromium, expect, focus, opened, told_until
from browser_still import ALERT, TOKEN, Told, a_few, served
from frames import frame, stream
from slackwater.runtime.insight import Insight, OperatorInsight, QueryInsight, StreamInsight
from slackwater.service.api_models import Statistics
from slackwater.service.statistics_out import statistics_of

STREAM = OperatorInsight("p", "stream", -1, 1.0, 1.0, 1e-6, None, ("calm", "picked"))
FILTER = OperatorInsight("port = 80", "test", 0, 1.0, 0.25, 2e-6, 0.5, ("late",))
OTHER = OperatorInsight("port = 53", "test", 0, 1.0, 0.5, None, None, ("wide",))


def measured(*operators: OperatorInsight, late: float = 0.5) -> Insight:
    queries = tuple(
        QueryInsight(name, "ERROR 5%", 0.5, 1.0, 1, rate, 0.01)
        for name, rate in (("calm", 1.0), ("late", late), ("picked", 1.0), ("wide", 1.0))
    )
    return Insight(
        (StreamInsight("p", 3, 1000.0, 500.0, operators, queries, (), 0.4, 1.0, 2.0, 0.5, {}),), 1.5
    )


@dataclass
class Measured(Told):
    """`Watched` of which it is known what its operators cost."""

    known: Insight = field(default_factory=lambda: measured(STREAM, FILTER, OTHER))

    def statistics(self, at: datetime | None = None) -> Statistics:
        return statistics_of(self.known)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def test_queries_in_the_plan_are_opened_by_keys(browser: Browser) -> None:
    watched = Measured()
    with served(watched) as address, opened(browser, address.page) as page:
        leaves = page.locator("#plan").get_by_role("button")
        expect(leaves).to_have_count(4)
        check_names(page)
        expect(page.get_by_role("button", name="late: 50 %, ± 1 % expected")).to_be_visible()
        page.locator("#plan").focus()
        page.keyboard.press("Tab")
        expect(leaves.first).to_be_focused()
        page.keyboard.press("ArrowDown")
        expect(leaves.nth(1)).to_be_focused()
        page.keyboard.press("End")
        expect(leaves.nth(3)).to_be_focused()
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowUp")
        name = leaves.nth(1).get_attribute("data-name") or ""
        # the picture is built anew where another operator comes, and the focus stays
        watched.known = measured(
            STREAM, FILTER, OTHER, OperatorInsight("port = 9", "test", 0, 1.0, 0.1, None)
        )
        told_until(page, watched.tell, lambda: page.locator("#plan .operator").count() == 4)
        expect(leaves.nth(1)).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#query-heading")).to_have_text(name)
        page.keyboard.press("Escape")
        expect(page.locator("#query")).to_be_hidden()
        expect(leaves.nth(1)).to_be_focused()
        # one of them is in the order of Tab, not all
        page.keyboard.press("Shift+Tab")
        assert focus(page) == "plan"


def test_the_plan_is_a_table_too_of_which_nothing_is_announced(browser: Browser) -> None:
    watched = Measured()
    with served(watched) as address, opened(browser, address.page) as page:
        table = page.get_by_role("table", name="The shared plan")
        rows = table.locator("tbody tr")
        expect(rows).to_have_count(3)
        expect(rows.nth(0).locator("th, td")).to_have_text(
            ["stream: p", "", "500 rows a batch", "1 µs", "none", "calm: all; picked: all"]
        )
        expect(rows.nth(1).locator("th, td")).to_have_text(
            [
                "filter: port = 80",
                "p",
                "selects 25 % of all rows",
                "2 µs",
                "lets pass 50 %",
                "late: 50 %, ± 1 % expected",
            ]
        )
        expect(rows.nth(2).locator("td").nth(2)).to_have_text("not measured")
        watched.known = measured(STREAM, FILTER, OTHER, late=0.25)
        last = rows.nth(1).locator("td").last
        told_until(page, watched.tell, lambda: last.text_content() == "late: 25 %, ± 1 % expected")
        assert (
            table.evaluate("table => table.closest('[aria-live], [role=status], [role=alert], output')")
            is None
        )


def test_a_plan_that_is_not_measured_is_a_text(browser: Browser) -> None:
    with served(Told()) as address, opened(browser, address.page) as page:
        expect(page.locator("#plan img")).to_be_visible()
        expect(page.locator("#plan-text")).to_contain_text("query late")
        expect(page.locator("#plan-table")).to_be_hidden()


def test_what_moves_all_the_time_does_not_speak(browser: Browser) -> None:
    with served(Told()) as address, opened(browser, address.page) as page:
        speaking = page.locator("output").evaluate_all(
            "all => all.filter((each) => each.getAttribute('aria-live') !== 'off').map((each) => each.id)"
        )
        assert speaking == []


def test_rows_that_are_late_or_unreadable_are_told_in_words(browser: Browser) -> None:
    watched = Told()
    with served(watched) as address, opened(browser, address.page) as page:
        item = page.locator("#streams li")
        expect(item).to_have_text("p50 rows/s500 ms behind")
        watched.tell(streams=[stream(late=1_234, unreadable=5)])
        expect(item.locator(".stream-lost")).to_have_text("1.23k late, 5 unreadable")


def test_a_batch_that_runs_for_long_is_told_while_it_runs(browser: Browser) -> None:
    """Until it is done nothing else moves."""
    watched = Told()
    with served(watched) as address, opened(browser, address.page) as page:
        long = page.locator("#streams .stream-long")
        expect(page.locator("#streams li")).to_be_visible()
        expect(long).to_be_hidden()
        watched.tell(streams=[stream(batch_seconds=5.0, running_seconds=12.0)])
        expect(long).to_have_text("in a batch for 12 s")
        watched.tell(streams=[stream(batch_seconds=11.0, running_seconds=12.0)])
        expect(long).to_be_hidden()
        watched.tell(streams=[stream(batch_seconds=None, running_seconds=12.0)])
        expect(long).to_have_text("in a batch for 12 s")


def test_a_stream_of_agents_says_what_they_send(browser: Browser) -> None:
    agents = stream("hosts", rows_per_second=0.0, lag_seconds=None, updates=90, updates_per_second=8.7)
    with (
        served(Told(frame(1, [], whole=True, streams=[agents]))) as address,
        opened(browser, address.page) as page,
    ):
        expect(page.locator("#streams li")).to_have_text("hosts8.70 updates/s")
        expect(page.locator("#streams .stream-lag")).to_be_hidden()


def test_a_token_is_taken_out_of_the_address_of_an_open_page(browser: Browser) -> None:
    watched = Told(frame(1, a_few(), whole=True, alerts=[ALERT]))
    with served(watched) as address, opened(browser, address.url, excused={"/api/alerts/busy"}) as page:
        drop = page.locator("#alerts-list button")
        drop.click()
        drop.click()
        expect(page.locator("#token")).to_be_visible()
        page.evaluate("token => { location.hash = `token=${token}`; }", TOKEN)
        expect(page.locator("#token")).to_be_hidden()
        expect(page.locator("#announce")).to_have_text("Alert busy is dropped.")
        assert TOKEN not in page.url
