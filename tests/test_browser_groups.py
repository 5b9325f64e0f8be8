"""Groups of a query in a real Chromium: any of them can be looked at, whatever its keys are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from browser import card, chromium, expect, opened
from browser_still import Told, served
from frames import answer, at, frame, point, query
from slackwater.errors import RunError
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.runtime.answers import Answer
from slackwater.service.framing import _plain
from slackwater.service.keys import of_group
from slackwater.service.watched import Asked

SQL = """\
CREATE STREAM p (ts TIMESTAMP, ratio DOUBLE, account BIGINT, size INT) USING scripted TIMESTAMP BY ts;
CREATE QUERY calm AS SELECT ratio, account, SUM(size) AS n FROM p
  GROUP BY ratio, account, window(ts, '1 second') WITH ERROR 5%;
"""
SECONDS = 4
BIG = 2**53


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def told(second: float, ratio: float, account: int, value: float, *, half: float = 0.0) -> Answer:
    keys = (("ratio", ratio), ("account", account))
    return answer("calm", second, value, half=half, keys=keys, rate=0.25 if half else 1.0)


@dataclass
class Grouped(Told):
    """`Watched` with answers of several groups."""

    declared: Catalog = field(default_factory=lambda: Catalog.from_sql(SQL, Functions()))
    given: tuple[Answer, ...] = ()
    broken: bool = False

    def answers(self, query: str, asked: Asked) -> Sequence[Answer]:
        if self.broken:
            raise RunError("the disk is full")
        return [a for a in self.given if of_group(a.group, asked)][-asked.limit :]

    def latest(self, query: str, limit: int) -> Sequence[Answer]:
        return [a for a in self.given if a.window_end == at(SECONDS)]


def groups() -> Grouped:
    """Three groups, of which two have keys that JavaScript takes for one; the card shows the first."""
    given = [
        made
        for s in range(1, SECONDS + 1)
        for made in (
            told(s, 1.0, BIG, 100.0),
            told(s, 1.0, BIG + 1, 70.0, half=7.0),
            told(s, 2.5, 3, 40.0),
        )
    ]
    keys = {"ratio": _plain(1.0), "account": _plain(BIG)}
    shown = query("calm", [point(s, 100) for s in range(1, SECONDS + 1)], keys=keys, groups=3)
    return Grouped(frame(1, [shown], whole=True), given=tuple(given))


def fact(page: Page, name: str) -> Any:
    return page.locator("#query-facts > div").filter(has=page.get_by_text(name, exact=True)).locator("dd")


def test_groups_are_told_apart_by_what_javascript_would_round(browser: Browser) -> None:
    with served(groups()) as address, opened(browser, address.page) as page:
        card(page, "calm").locator(".open").click()
        page.get_by_text("Latest answers").click()
        rows = page.locator("#latest-list tbody tr")
        expect(rows).to_have_count(3)
        pressed = rows.locator("[aria-pressed=true]")
        expect(pressed).to_have_text(f"ratio=1.0 account={BIG}")
        expect(fact(page, "how")).to_have_text("exact")
        rows.get_by_role("button", name=f"account={BIG + 1}").click()
        expect(page.locator("#query-of")).to_contain_text(f"account={BIG + 1}")
        expect(page.locator("#query-chart")).to_have_attribute("data-points", str(SECONDS))
        expect(pressed).to_have_text(f"ratio=1.0 account={BIG + 1}")
        # what is said beside the chart is said of the group in it
        expect(fact(page, "how")).to_have_text("sampled")
        expect(fact(page, "error")).to_have_text("10 %")
        expect(fact(page, "kept")).to_have_text("25 %")
        rows.get_by_role("button", name="ratio=2.5 account=3").click()
        expect(fact(page, "how")).to_have_text("exact")
        expect(page.locator("#query-answer")).to_have_text("40")


def test_a_group_that_cannot_be_had_says_why(browser: Browser) -> None:
    watched = groups()
    excused = {"/api/queries/calm/answers"}
    with served(watched) as address, opened(browser, address.page, excused=excused) as page:
        card(page, "calm").locator(".open").click()
        page.get_by_text("Latest answers").click()
        watched.broken = True
        page.locator("#latest-list tbody tr").get_by_role("button", name="ratio=2.5").click()
        expect(page.locator("#latest-list .problem")).to_contain_text("the disk is full")
