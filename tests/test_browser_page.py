"""The page in a real Chromium: keys, search and order, charts in words, and a thousand queries."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from browser import card, cards_in_order, check_names, chromium, expect, focus, opened, told_until
from browser_still import Told, a_few, many, served
from frames import frame, point, query
from slackwater.service.models import QueryFrame


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def label(page: Page, name: str) -> str:
    """What the chart on a card says to those who do not see it."""
    return card(page, name).locator(".chart").get_attribute("aria-label") or ""


def test_search_and_the_form_are_reached_by_keys_and_focus_is_seen(browser: Browser) -> None:
    with served(Told()) as address, opened(browser, address.page) as page:
        expect(page.locator("#count")).to_have_text("4")
        page.keyboard.press("/")
        assert focus(page) == "search"
        page.keyboard.type("LA")
        expect(page.locator("#count")).to_have_text("1 of 4")
        assert cards_in_order(page) == ["late"]
        page.keyboard.type("x")
        expect(page.locator("#empty")).to_have_text("No query is like that.")
        page.keyboard.press("Escape")
        expect(page.locator("#count")).to_have_text("4")
        assert page.locator("#search").input_value() == ""
        page.keyboard.type("subset")
        expect(page.locator("#count")).to_have_text("1 of 4")
    with served(Told()) as address, opened(browser, address.page) as page:
        expect(page.locator("#count")).to_have_text("4")
        seen = []
        for _ in range(4):
            page.keyboard.press("Tab")
            seen.append(focus(page))
        skips = ["Skip to the queries", "Skip to the plan, agents and alerts"]
        assert seen == [*skips, "theme", "new-query"]
        page.keyboard.press("Enter")
        expect(page.locator("#form")).to_be_visible()
        assert focus(page) == "sql"
        # a slash is a slash where one writes
        page.keyboard.type("/")
        assert focus(page) == "sql"
        check_names(page)
        page.keyboard.press("Escape")
        expect(page.locator("#form")).to_be_hidden()
        assert focus(page) == "new-query"


def test_a_card_is_opened_by_keys_and_gives_focus_back(browser: Browser) -> None:
    with served(Told()) as address, opened(browser, address.page) as page:
        opener = card(page, "calm").locator(".open")
        expect(opener).to_be_visible()
        page.locator("#unmet").focus()
        page.keyboard.press("Tab")
        assert focus(page) == "calm"
        page.keyboard.press("Enter")
        expect(page.locator("#query-heading")).to_have_text("calm")
        expect(page.locator("#query-sql")).to_contain_text("CREATE QUERY calm")
        check_names(page)
        page.keyboard.press("Escape")
        expect(page.locator("#query")).to_be_hidden()
        assert focus(page) == "calm"


def test_queries_are_sorted_and_filtered(browser: Browser) -> None:
    with served(Told()) as address, opened(browser, address.page) as page:
        expect(page.locator("#count")).to_have_text("4")
        assert cards_in_order(page) == ["calm", "late", "picked", "wide"]
        for order, wanted in {
            "error": ["wide", "late", "calm", "picked"],
            "load": ["late", "picked", "wide", "calm"],
            "contract met": ["late", "calm", "picked", "wide"],
            "name": ["calm", "late", "picked", "wide"],
        }.items():
            page.get_by_label("sorted by").select_option(order)
            assert cards_in_order(page) == wanted, order
        page.get_by_role("button", name="Not met 1").click()
        assert cards_in_order(page) == ["late"]
        expect(page.locator("#unmet")).to_have_attribute("aria-pressed", "true")
        page.get_by_role("button", name="Not met 1").click()
        expect(page.locator("#count")).to_have_text("4")


def test_charts_say_what_is_missing_and_what_is_not_measured(browser: Browser) -> None:
    modelled = [point(s, 40, half=4, how="modelled" if s in (3, 4) else "sampled") for s in range(1, 8)]
    away = [point(s, None if s in (4, 5, 6) else 30, how="suspended" if s in (4, 5, 6) else "exact") for s in range(1, 7)]  # fmt: skip
    shown = [
        *a_few(),
        query("guessed", modelled, kind="current", how="modelled", last_text="40 ± 4"),
        query("away", away, how="suspended", suspended=True, met=False, last_text="–"),
        query("silent", [], column=None, how=None, met=None, rate=None, error=None, last_text=""),
    ]
    watched = Told(frame(1, shown, whole=True))
    with served(watched) as address, opened(browser, address.page) as page:
        expect(card(page, "wide").locator(".open")).to_be_visible()
        assert (
            label(page, "calm")
            == "calm: 8 answers from 2026-03-01 12:00:01 to 12:00:08 UTC, between 100 and 100, last 100, exact"
        )
        assert "widest interval ± 20, last 50 [30, 70], exact" in label(page, "wide")
        assert "4 answers" in label(page, "picked")
        assert "1 gap, last 9, subset" in label(page, "picked")
        assert "widest interval ± 4, 2 modelled, last 40 [36, 44], sampled" in label(page, "guessed")
        assert "3 suspended, last –, suspended" in label(page, "away")
        assert label(page, "silent") == "silent: no answer yet"
        expect(card(page, "away").locator(".how")).to_have_text("suspended")
        expect(card(page, "guessed").locator(".how")).to_have_text("modelled")
        expect(card(page, "silent").locator(".how")).to_have_text("waiting")
        expect(card(page, "silent").locator("canvas")).to_be_hidden()
        expect(card(page, "wide").locator("canvas")).to_be_visible()
        expect(page.locator("#unmet-count")).to_have_text("2")
        # the same words in the sheet, and its chart
        card(page, "picked").locator(".open").click()
        expect(page.locator("#query-chart")).to_have_attribute("aria-label", label(page, "picked"))
        page.keyboard.press("Escape")
        # a window that comes after another gap
        watched.tell([query("picked", [point(12, 9, how="subset")], how="subset")])
        expect(card(page, "picked").locator(".chart")).to_have_attribute(
            "aria-label", re.compile("5 answers.*2 gaps")
        )


def test_what_is_left_out_evenly_is_gaps_and_windows_over_rows_have_none(browser: Browser) -> None:
    thinned = [point(s, 9, how="subset") for s in (1, 4, 7, 10)]
    hopping = [point(s, 9, how="subset") for s in (4, 8, 16)]
    uneven = [point(s, 9) for s in (1, 1.2, 4, 4.5, 9)]
    shown = [
        query("thinned", thinned, how="subset"),
        query("hopping", hopping, how="subset", slide_seconds=4.0),
        query("uneven", uneven, slide_seconds=None),
    ]
    with served(Told(frame(1, shown, whole=True))) as address, opened(browser, address.page) as page:
        expect(card(page, "uneven").locator("canvas")).to_be_visible()
        assert "3 gaps" in label(page, "thinned")
        assert "1 gap," in label(page, "hopping")
        assert "gap" not in label(page, "uneven")
        lines = page.evaluate(
            """() => import("/page/band_lines.js").then(({ columnsOf }) =>
              [1, null].map((slide) => columnsOf([1, 4, 7].map((at) => ({ at, value: 9, how: "subset" })), { slide })
                .columns[3]))"""
        )
        assert lines == [[9, None, 9, None, 9], [9, 9, 9]], "a line is broken where a window is missing"


def test_one_point_stands_in_the_middle_of_a_minute(browser: Browser) -> None:
    watched = Told(frame(1, [query("calm", [point(5)])], whole=True))
    with served(watched) as address, opened(browser, address.page) as page:
        expect(card(page, "calm").locator("canvas")).to_be_visible()
        spans = page.evaluate(
            """() => import("/page/axes.js").then(({ spread }) =>
              [[[5]], [[5, 9]]].map((data) => spread({ data }, 5, 9)))"""
        )
        assert spans == [[-25, 35], [5, 9]]


def test_of_rows_the_newest_is_shown_and_no_chart(browser: Browser) -> None:
    text = "src=h0 sizes=[1, 2] note=a [b"
    shown = [query("calm", [], kind="rows", column="*", columns=["src", "sizes", "note"], last_text=text)]
    with served(Told(frame(1, shown, whole=True))) as address, opened(browser, address.page) as page:
        expect(card(page, "calm").locator(".value")).to_have_text(text)
        expect(card(page, "calm").locator(".interval")).to_have_text("")
        expect(card(page, "calm").locator(".of")).to_have_text("the newest row")
        expect(card(page, "calm").locator(".chart")).to_have_attribute("data-empty", "rows have no line")
        assert label(page, "calm") == f"calm: the newest row is {text}"
        card(page, "calm").locator(".open").click()
        expect(page.locator("#query-answer")).to_have_text(text)
        assert "met in all" not in (page.locator("#query-facts").text_content() or "")


def test_of_a_thousand_queries_only_those_in_view_are_drawn(browser: Browser) -> None:
    watched = Told(frame(1, many(1_000, 0, 1), whole=True))
    with served(watched) as address, opened(browser, address.page) as page:
        expect(page.locator("#count")).to_have_text("1000")
        expect(card(page, "q0000").locator("canvas")).to_be_visible()
        drawn = page.locator("#cards canvas")
        assert drawn.count() < 60
        # built once: what is marked now must still be there after frames and searches
        page.locator("#cards > li").evaluate_all("all => all.forEach((each) => (each.marked = true))")
        watched.tell(many(1_000, 5_000, 2))
        expect(card(page, "q0003").locator(".value")).to_have_text("5003")
        expect(card(page, "q0003").locator(".chart")).to_have_attribute("data-points", "2")
        assert drawn.count() < 60
        assert page.locator("#cards .open").count() < 60, "a card that nobody has seen is only a name"
        page.locator("#search").fill("q0777")
        expect(page.locator("#count")).to_have_text("1 of 1000")
        expect(card(page, "q0777").locator(".value")).to_have_text("5777")
        expect(card(page, "q0777").locator(".chart")).to_have_attribute("data-points", "2")
        expect(drawn).to_have_count(1)
        page.locator("#search").fill("")
        expect(card(page, "q0000").locator("canvas")).to_be_visible()
        page.locator("#shore").press("End")
        expect(card(page, "q0999").locator("canvas")).to_be_visible()
        expect(card(page, "q0000").locator("canvas")).to_have_count(0)
        assert drawn.count() < 60
        kept = page.locator("#cards > li").evaluate_all("all => all.filter((each) => each.marked).length")
        assert kept == 1_000


CHANGES = """async () => {
  // what is done in the page: changes of its elements, and charts that are drawn
  const seen = { changes: 0, cards: new Set(), draws: 0 };
  const take = (records) => records.forEach(({ target, addedNodes }) => {
    seen.changes += 1;
    const element = target.nodeType === Node.ELEMENT_NODE ? target : target.parentElement;
    const card = element?.closest("#cards > li");
    if (card) seen.cards.add(card.dataset.name);
  });
  const observer = new MutationObserver(take);
  observer.observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
  const { clearRect } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.clearRect = function (...all) {
    seen.draws += 1;
    return clearRect.apply(this, all);
  };
  window.work = () => {
    take(observer.takeRecords());
    const { changes, cards, draws } = seen;
    [seen.changes, seen.cards, seen.draws] = [0, new Set(), 0];
    return { changes, cards: cards.size, draws };
  };
}"""
"""Counts what the page does; `work()` says it, and begins anew."""


def test_a_frame_of_a_thousand_queries_costs_what_is_seen_of_them(browser: Browser) -> None:
    """Counts, not times: the same on any machine."""

    def work_of_a_frame(count: int) -> dict[str, int]:
        watched = Told(frame(1, many(count, 0, 1), whole=True))
        with served(watched) as address, opened(browser, address.page) as page:
            expect(page.locator("#count")).to_have_text(str(count))
            expect(card(page, "q0000").locator("canvas")).to_be_visible()
            expect(page.locator("#plan img")).to_be_visible()
            # the first is measured as the others are, with all that it still brings
            watched.tell(many(count, 1_000, 2))
            expect(card(page, "q0003").locator(".value")).to_have_text("1003")
            page.evaluate(CHANGES)
            frames = 5
            for number in range(frames):
                watched.tell(many(count, 2_000 + number, 3 + number))
                expect(card(page, "q0003").locator(".value")).to_have_text(str(2_003 + number))
            found: dict[str, int] = page.evaluate("work()")
            return {
                "changes": found["changes"] // frames,
                "cards": found["cards"],
                "draws": found["draws"] // frames,
            }

    few, all_ = work_of_a_frame(60), work_of_a_frame(1_000)
    assert few["cards"] >= 9
    assert few["changes"] >= 2 * 9, "value and words of a chart, by card"
    # of sixty as many are in view as of a thousand
    assert all_["cards"] <= few["cards"]
    assert all_["changes"] <= 1.25 * few["changes"] + 20
    assert all_["draws"] <= few["draws"] + 4
    # nor is any card changed in more than a few places
    assert all_["changes"] <= 10 * all_["cards"] + 40


def test_a_thousand_queries_are_found_and_put_in_order(browser: Browser) -> None:
    def told(i: int) -> QueryFrame:
        # orders that have nothing to do with that of the names, nor with each other
        error, load, met = (i * 7 % 1_000) / 1_000, (i * 13 % 1_000) / 1_000, i % 10 != 3
        return query(
            f"q{i:04}",
            [point(1, i, half=1, how="sampled")],
            error=error,
            load=load,
            met=met,
            contract=f"ERROR {i % 7}%",
            how="sampled",
        )

    shown = [told(i) for i in range(1_000)]
    names = {q.name: q for q in shown}
    with served(Told(frame(1, shown, whole=True))) as address, opened(browser, address.page) as page:
        expect(page.locator("#count")).to_have_text("1000")
        page.locator("#cards > li").evaluate_all("all => all.forEach((each) => (each.marked = true))")
        by_name = sorted(names)
        wanted = {
            "error": sorted(by_name, key=lambda name: -(names[name].error or 0)),
            "load": sorted(by_name, key=lambda name: -(names[name].load or 0)),
            "contract met": sorted(by_name, key=lambda name: bool(names[name].met)),
            "name": by_name,
        }
        for order, expected in wanted.items():
            page.get_by_label("sorted by").select_option(order)
            assert cards_in_order(page) == expected, order
            # what is first is drawn, and no more than is seen
            expect(card(page, expected[0]).locator("canvas")).to_be_visible()
            told_until(page, lambda: None, lambda: page.locator("#cards canvas").count() < 60)
        for text, found in {
            "q099": [f"q{i:04}" for i in range(990, 1_000)],
            "ERROR 3%": [f"q{i:04}" for i in range(1_000) if i % 7 == 3],
            "q0": by_name,
            "nothing": [],
        }.items():
            page.locator("#search").fill(text)
            expect(page.locator("#count")).to_have_text(
                "1000" if len(found) == 1_000 else f"{len(found)} of 1000"
            )
            assert cards_in_order(page) == found, text
        page.locator("#search").fill("")
        page.get_by_role("button", name="Not met 100").click()
        expect(page.locator("#count")).to_have_text("100 of 1000")
        assert cards_in_order(page) == [name for name in by_name if not names[name].met]
        page.get_by_label("sorted by").select_option("error")
        assert cards_in_order(page) == [name for name in wanted["error"] if not names[name].met]
        kept = page.locator("#cards > li").evaluate_all("all => all.filter((each) => each.marked).length")
        assert kept == 1_000, "none is built twice"


def test_a_query_that_comes_and_one_that_goes(browser: Browser) -> None:
    watched = Told()
    with served(watched) as address, opened(browser, address.page) as page:
        expect(page.locator("#count")).to_have_text("4")
        watched.tell([query("beside", [point(9)])])
        expect(card(page, "beside")).to_be_visible()
        assert cards_in_order(page)[0] == "beside"
        card(page, "wide").locator(".open").click()
        expect(page.locator("#query")).to_be_visible()
        watched.tell(dropped=["wide"])
        expect(page.locator("#query")).to_be_hidden()
        expect(card(page, "wide")).to_have_count(0)
        expect(page.locator("#announce")).to_have_text("wide is no more.")
