"""Groups of a query in a real Chromium: any of them can be looked at, whatever its keys are."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from browser import SPOKEN, card, chromium, expect, opened
from browser_still import TOKEN, Told, served
from frames import answer, at, frame, point, query, recording, turn, write_frames
from slackwater.errors import RunError
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.runtime.answers import Answer
from slackwater.service.frame_log import FRAMES
from slackwater.service.keys import has_words, of_group, plain_key
from slackwater.service.recorded import Recorded
from slackwater.service.server import serving
from slackwater.service.watched import Asked, Newest

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
    cut: bool = False

    def answers(self, query: str, asked: Asked) -> Sequence[Answer]:
        if self.broken:
            raise RunError("the disk is full")
        return [a for a in self.given if of_group(a.group, asked)][-asked.limit :]

    def latest(self, query: str, limit: int, search: str = "", until: datetime | None = None) -> Newest:
        found = [a for a in self.given if a.window_end == at(SECONDS) and has_words(a.column, a.keys, search)]
        return Newest(found[:limit], len(found), cut=self.cut)


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
    keys = {"ratio": plain_key(1.0), "account": plain_key(BIG)}
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
        expect(page.locator("#chosen-problem")).to_contain_text("the disk is full")
        watched.broken = False
        watched.tell()
        expect(page.locator("#chosen-problem")).to_be_hidden()
        expect(page.locator("#query-answer")).to_have_text("40")


def test_a_group_that_was_chosen_goes_on_when_the_table_is_closed(browser: Browser) -> None:
    watched = groups()
    with served(watched) as address, opened(browser, address.page) as page:
        card(page, "calm").locator(".open").click()
        page.get_by_text("Latest answers").click()
        page.locator("#latest-list tbody tr").get_by_role("button", name="ratio=2.5").click()
        expect(page.locator("#query-answer")).to_have_text("40")
        page.get_by_text("Latest answers").click()
        watched.given += (told(SECONDS + 1, 2.5, 3, 44.0),)
        watched.tell()
        expect(page.locator("#query-answer")).to_have_text("44")
        expect(page.locator("#query-chart")).to_have_attribute("data-points", str(SECONDS + 1))


def test_a_group_that_was_chosen_follows_the_time_of_a_recording(browser: Browser, tmp_path: Path) -> None:
    given = groups().given
    folder = recording(tmp_path / "r", turns=[turn(1, 1.0)], answers=given, sql=SQL)
    keys = {"ratio": plain_key(1.0), "account": plain_key(BIG)}
    run = [
        frame(s, [query("calm", [point(s, 100)], keys=keys, groups=3)], whole=s == 1)
        for s in range(1, SECONDS + 1)
    ]
    write_frames(folder / FRAMES, run)
    recorded = Recorded(folder)
    try:
        with serving(recorded, port=0, token=TOKEN) as address, opened(browser, address.page) as page:
            card(page, "calm").locator(".open").click()
            page.get_by_text("Latest answers").click()
            page.locator("#latest-list tbody tr").get_by_role("button", name="ratio=2.5").first.click()
            chart = page.locator("#query-chart")
            expect(chart).to_have_attribute("data-points", str(SECONDS))
            page.get_by_text("Latest answers").click()
            page.locator("#time").evaluate(
                "time => { time.value = 1; time.dispatchEvent(new Event('input')); }"
            )
            expect(chart).to_have_attribute("data-points", "2")
    finally:
        recorded.close()


def test_of_many_groups_any_one_is_found(browser: Browser) -> None:
    watched = groups()
    watched.given += tuple(told(SECONDS, 7.0, n, float(n)) for n in range(1000))
    with served(watched) as address, opened(browser, address.page) as page:
        card(page, "calm").locator(".open").click()
        page.get_by_text("Latest answers").click()
        rows = page.locator("#latest-list tbody tr")
        count = page.locator("#latest-count")
        expect(count).to_have_text("50 of 1,003 groups")
        expect(rows).to_have_count(50)
        search = page.get_by_role("searchbox", name="Search groups")
        search.fill("ratio=7 account=77")
        expect(count).to_have_text("11 groups with that")
        expect(page.locator(f"#query > {SPOKEN}")).to_have_text("11 groups with that")
        expect(rows).to_have_count(11)
        rows.get_by_role("button", name="account=777", exact=False).click()
        expect(page.locator("#query-answer")).to_have_text("777")
        search.fill("nobody")
        expect(page.locator("#latest-list .empty")).to_have_text("None has that.")
        # what is searched for is taken back before the sheet is shut
        page.keyboard.press("Escape")
        expect(rows).to_have_count(50)
        expect(page.locator("#query")).to_be_visible()
        watched.cut = True
        search.fill("nobody")
        expect(page.locator("#latest-list .empty")).to_have_text("None of those that are kept has that.")
        search.fill("")
        expect(count).to_have_text("50 of at least 1,003 groups; of so many not all are kept")


def test_whether_a_contract_is_met_is_said_of_the_group_and_of_all(browser: Browser) -> None:
    unmet = answer("calm", SECONDS, 9.0, half=8, keys=(("ratio", 7.5), ("account", 1)), met=False)
    watched = groups()
    watched.given += (unmet,)
    one = watched.shown.queries[0].model_copy(update={"met": False, "groups": 4})
    watched.shown = watched.shown.model_copy(update={"queries": [one]})
    with served(watched) as address, opened(browser, address.page) as page:
        card(page, "calm").locator(".open").click()
        expect(fact(page, "met")).to_have_text("yes")
        expect(fact(page, "met in all groups")).to_have_text("no")
        page.get_by_text("Latest answers").click()
        page.locator("#latest-list tbody tr").get_by_role("button", name="ratio=7.5").click()
        expect(fact(page, "met")).to_have_text("no")
        page.locator("#latest-list tbody tr").get_by_role("button", name="ratio=2.5").click()
        expect(fact(page, "met")).to_have_text("yes")
        expect(fact(page, "met in all groups")).to_have_text("no")


@dataclass
class Held(Grouped):
    """`Watched` whose answers of one group wait until a test lets them go."""

    go: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)

    def answers(self, query: str, asked: Asked) -> Sequence[Answer]:
        if (asked.keys or {}).get("account") == "1":
            self.asked.set()
            assert self.go.wait(30)
        return super().answers(query, asked)


def test_points_of_a_group_that_is_no_longer_shown_are_not_those_of_the_new_one(browser: Browser) -> None:
    first, second = ({"ratio": "1.0", "account": account} for account in (1, 2))
    given = tuple(told(s, 1.0, 1, 100.0) for s in range(1, 6))
    watched = Held(frame(1, [query("calm", [], keys=first, groups=2)], whole=True), given=given)
    with served(watched) as address, opened(browser, address.page) as page:
        assert watched.asked.wait(30)
        chart = card(page, "calm").locator(".chart")
        watched.tell([query("calm", [point(8, 5)], keys=second, groups=2)])
        expect(card(page, "calm").locator(".of")).to_contain_text("account=2")
        expect(chart).to_have_attribute("data-points", "1")
        with page.expect_response(lambda response: "key.account=1" in response.url):
            watched.go.set()
        watched.tell([query("calm", [point(9, 5)], keys=second, groups=2)])
        expect(card(page, "calm").locator(".chart")).to_have_attribute("aria-label", re.compile("12:00:09"))
        expect(chart).to_have_attribute("data-points", "2")


KINDS: list[tuple[Any, Any]] = [
    ([1, 2], [1.5, 2]),
    ({"a": 1.0, "b": None}, {"a": 1.5, "b": None}),
    (None, "null"),
    (None, ""),
    ("NULL", None),
    (True, False),
    (Decimal("1.10"), Decimal("1.2")),
]


@pytest.mark.parametrize(("one", "other"), KINDS)
def test_keys_of_all_kinds_are_told_apart(browser: Browser, one: Any, other: Any) -> None:
    def of(key: Any, second: float, value: float) -> Answer:
        return answer("calm", second, value, keys=(("ratio", key),))

    given = tuple(of(key, s, v) for s in range(1, SECONDS + 1) for key, v in ((one, 1.0), (other, 2.0)))
    shown = query("calm", [point(SECONDS)], keys={"ratio": plain_key(one)}, groups=2)
    with (
        served(Grouped(frame(1, [shown], whole=True), given=given)) as address,
        opened(browser, address.page) as page,
    ):
        card(page, "calm").locator(".open").click()
        page.get_by_text("Latest answers").click()
        picks = page.locator("#latest-list tbody button")
        expect(picks).to_have_count(2)
        texts = picks.all_text_contents()
        assert len(set(texts)) == 2, texts
        assert "[object Object]" not in texts[0]
        expect(picks.nth(0)).to_have_attribute("aria-pressed", "true")
        expect(picks.nth(1)).to_have_attribute("aria-pressed", "false")
        picks.nth(1).click()
        expect(page.locator("#query-answer")).to_have_text("2")
        expect(page.locator("#query-chart")).to_have_attribute("data-points", str(SECONDS))
        expect(picks.nth(1)).to_have_attribute("aria-pressed", "true")
