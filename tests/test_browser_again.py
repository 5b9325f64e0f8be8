"""The page in a real Chromium where names come back: other runs, other queries, recordings, and how answers stand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from browser import card, chromium, expect, opened, told_until
from browser_still import TOKEN, Told, a_few, served
from frames import SQL, answer, frame, point, query, recording, turn, write_frames
from service_still import StillControl
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.runtime.insight import Insight, OperatorInsight, QueryInsight, StreamInsight
from slackwater.runtime.recording import version_file
from slackwater.service import events
from slackwater.service.frame_log import FRAMES
from slackwater.service.models import Knobs
from slackwater.service.recorded import Recorded
from slackwater.service.server import listen, serving
from test_browser_reach import Measured

OTHER = "CREATE QUERY calm AS SELECT MIN(size) AS n FROM p GROUP BY window(ts, '2 seconds') WITH EXACT;\n"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def words(page: Page, name: str) -> str:
    """What the chart of a query says of itself."""
    return card(page, name).locator(".chart").get_attribute("aria-label") or ""


# --- answers that stand ------------------------------------------------------------------------------


def standing(page: Page, points: list[dict[str, Any]], until: float) -> tuple[list[Any], list[Any]]:
    """Columns of a chart of current values, and where its query was suspended."""
    found: list[Any] = page.evaluate(
        """async ([points, until]) => {
          const { columnsOf } = await import("/page/band_lines.js");
          const { columns, suspended } = columnsOf(points, { kind: "current", until });
          return [columns, suspended];
        }""",
        [points, until],
    )
    return found[0], found[1]


def test_an_answer_stands_as_it_was_until_the_next_one(browser: Browser) -> None:
    def told(at: float, value: float | None, how: str = "deferred", slope: float = 0.0) -> dict[str, Any]:
        low, high = (None, None) if value is None else (value - 1, value + 1)
        return {"at": at, "value": value, "low": low, "high": high, "how": how, "slope": slope}

    with served(Told()) as address, opened(browser, address.page) as page:
        (at, low, high, solid, dashed), none = standing(page, [told(10, 5), told(40, 7, "modelled")], 50)
        assert at == [10, 40, 40, 50]
        assert solid == [5, 5, None, None], "what was measured stands until it is modelled"
        assert dashed == [None, 5, 7, 7], "and the line goes to what is modelled from there"
        assert (low, high, none) == ([4, 4, 6, 6], [6, 6, 8, 8], [])
        # an agent that is away leaves no interval, and takes nothing from the answer before
        (at, low, _, solid, _), _ = standing(page, [told(10, 5), told(20, None, "bounded"), told(30, 6)], 40)
        assert at == [10, 20, 20, 30, 30, 40]
        assert solid == [5, 5, None, None, 6, 6]
        assert low == [4, 4, None, None, 5, 5]
        # under EXTRAPOLATE value and interval move
        (at, low, high, solid, _), _ = standing(page, [told(10, 5, slope=0.5), told(20, 9)], 20)
        assert (at, solid) == ([10, 20, 20], [5, 10, 9])
        assert (low, high) == ([4, 9, 8], [6, 11, 10])
        (_, _, _, solid, _), away = standing(
            page, [told(10, 5), told(20, None, "suspended"), told(30, 6)], 30
        )
        assert (solid, away) == ([5, 5, None, None, 6], [[20, 30]])


def test_numbers_that_are_shortened_still_say_what_they_said(browser: Browser) -> None:
    with served(Told()) as address, opened(browser, address.page) as page:
        fitting, ticks, width = page.evaluate(
            """async () => {
              const [{ fitting }, { ticks }, { labelled }] = await Promise.all(
                ["card", "format", "axes"].map((name) => import(`/page/${name}.js`)));
              const long = [["1,580,023", "[1,578,100, 1,581,400] (95%)"], ["−1,580,023", "[−1,581,400, −1,578,100] (95%)"],
                ["1,234,567,890", "± 1,234,567 (95%)"]];
              const close = [1_582_500, 1_582_750, 1_583_000];
              return [long.map(([value, interval]) => fitting(value, interval)), ticks(close), labelled(null, ["1,582,500"])];
            }"""
        )
        # outwards, so that the value lies between them
        assert fitting == ["[1.57M, 1.59M] (95%)", "[−1.59M, −1.57M] (95%)", "± 1.24M (95%)"]
        assert ticks == ["1.5825M", "1.58275M", "1.583M"]
        assert width > 55, "all of a label has room"


# --- the same name again -----------------------------------------------------------------------------


def test_another_run_shows_nothing_of_the_one_before(browser: Browser) -> None:
    """A file that is run again has the same event times."""
    points = [point(s, s) for s in range(1, 101)]
    watched = Told(frame(1, [query("calm", points, last_text="100")], whole=True, run="one"))
    with served(watched) as address, opened(browser, address.page) as page:
        expect(card(page, "calm").locator(".value")).to_have_text("100")
        assert words(page, "calm").startswith("calm: 100 answers")
        again = query("calm", [point(1, 500)], last_text="500")
        watched.tell([again], whole=True, run="two")
        expect(card(page, "calm").locator(".value")).to_have_text("500")
        assert words(page, "calm").startswith("calm: 1 answers")
        # the same run that goes on keeps what is there
        watched.tell([query("calm", [point(2, 501)], last_text="501")], run="two")
        expect(card(page, "calm").locator(".value")).to_have_text("501")
        assert words(page, "calm").startswith("calm: 2 answers")


def test_a_run_that_does_not_say_yet_which_it_is_keeps_what_is_known(browser: Browser) -> None:
    points = [point(s, s) for s in range(1, 101)]
    watched = Told(frame(1, [query("calm", points, last_text="100")], whole=True, run="one"))
    with served(watched) as address, opened(browser, address.page) as page:
        expect(card(page, "calm").locator(".value")).to_have_text("100")
        # it was started again: nothing has been answered, and the first frame is of before the start
        watched.tell([query("calm", column=None, last_text="")], whole=True, run="")
        watched.tell([query("calm", [point(101, 101)], last_text="101")], run="one")
        expect(card(page, "calm").locator(".value")).to_have_text("101")
        assert words(page, "calm").startswith("calm: 101 answers")


def test_the_sheet_of_a_query_that_is_another_one_says_what_that_one_is(browser: Browser) -> None:
    watched = Told()
    with served(watched) as address, opened(browser, address.page) as page:
        card(page, "calm").locator(".open").click()
        expect(page.locator("#query-sql")).to_contain_text("SUM(size)")
        contract = page.get_by_role("textbox", name="Contract")
        expect(contract).to_have_value("ERROR 5%")
        contract.fill("ERROR 7%")
        others = [sql for sql in watched.declared.sql().split(";\n") if "calm" not in sql]
        watched.declared = Catalog.from_sql(";\n".join(others) + OTHER, Functions())
        watched.tell([query("calm", [point(9, 1)], contract="EXACT")], dropped=["calm"])
        expect(page.locator("#query-sql")).to_contain_text("MIN(size)")
        expect(contract).to_have_value("EXACT")


def test_focus_goes_on_to_the_next_card_from_one_that_goes(browser: Browser) -> None:
    watched = Told()
    with served(watched) as address, opened(browser, address.page) as page:
        card(page, "calm").locator(".open").focus()
        watched.tell(dropped=["calm"])
        expect(card(page, "calm")).to_have_count(0)
        expect(card(page, "late").locator(".open")).to_be_focused()
        watched.tell(dropped=["late", "picked", "wide"])
        expect(page.locator("#count")).to_have_text("0")
        expect(page.locator("#queries")).to_be_focused()


# --- recordings --------------------------------------------------------------------------------------


def with_a_life_before(folder: Path) -> Path:
    """A recording in which `web` is dropped, created as another one, and dropped again."""
    answers = [answer("web", s, 7) for s in (1, 2)] + [answer("web", s, 99) for s in (5, 6)]
    made = recording(folder, turns=[turn(1, 1.0)], answers=answers)
    first = SQL.replace("COUNT(*) AS n", "SUM(size) AS n")
    ports = SQL[: SQL.index("CREATE QUERY web")] + SQL[SQL.index("CREATE QUERY ports") :]
    for number, sql in enumerate((first, ports, SQL, ports), 1):
        version_file(made, number).write_text(sql)

    def told(number: int, version: int, value: int | None, **more: Any) -> Any:
        web = [] if value is None else [query("web", [point(number, value)], last_text=str(value))]
        return frame(number, web, version=version, whole=number == 1, **more)

    frames = [
        told(1, 1, 7),
        told(2, 1, 7),
        told(3, 2, None, dropped=["web"]),
        told(4, 2, None),
        told(5, 3, 99),
        told(6, 3, 99),
        told(7, 4, None, dropped=["web"]),
    ]
    write_frames(made / FRAMES, frames)
    return made


def test_a_query_that_is_gone_at_the_end_is_looked_at_as_it_was(browser: Browser, tmp_path: Path) -> None:
    recorded = Recorded(with_a_life_before(tmp_path / "r"))
    try:
        with serving(recorded, port=0, token=TOKEN) as address, opened(browser, address.page) as page:
            says = page.locator("#time-says")
            expect(says).to_have_text("2026-03-01 12:00:07 UTC · 6 s of 6 s")
            expect(page.locator("#count")).to_have_text("0")
            page.keyboard.press("ArrowLeft")
            expect(card(page, "web").locator(".value")).to_have_text("99")
            assert words(page, "web").startswith("web: 2 answers"), (
                "those of the query before it are not its own"
            )
            card(page, "web").locator(".open").click()
            expect(page.locator("#query-sql")).to_contain_text("COUNT(*)")
            page.get_by_text("Latest answers").click()
            expect(page.locator("#latest-list tbody tr").first).to_contain_text("99")
            expect(page.locator("#latest-list thead")).to_contain_text("time (UTC)")
            page.keyboard.press("Escape")
            page.get_by_role("slider", name="Time").press("Home")
            expect(card(page, "web").locator(".value")).to_have_text("7")
            card(page, "web").locator(".open").click()
            expect(page.locator("#query-sql")).to_contain_text("SUM(size)")
            page.keyboard.press("Escape")
    finally:
        recorded.close()


def test_a_page_of_a_run_becomes_that_of_a_recording_at_its_address(browser: Browser, tmp_path: Path) -> None:
    watched = Told()
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    recorded = Recorded(with_a_life_before(tmp_path / "r"))
    # while nobody listens Chromium writes of each try that it was refused
    page = browser.new_context().new_page()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(events, "QUIET_S", 0.1)
            with serving(watched, StillControl(watched), token=TOKEN, listening=listening) as address:
                page.goto(address.page)
                expect(page.locator("#count")).to_have_text("4")
                expect(page.locator("#new-query")).to_be_visible()
        with serving(recorded, port=port, token=TOKEN):
            expect(page.locator("#phase")).to_have_text("recorded")
            expect(page.locator("#scrubber")).to_be_visible()
            expect(page.locator("#new-query")).to_be_hidden()
    finally:
        page.context.close()
        recorded.close()


def test_the_tide_line_says_what_is_shown_and_not_what_follows(browser: Browser, tmp_path: Path) -> None:
    made = recording(tmp_path / "r", turns=[turn(1, 1.0)])
    levels = [0.0, 0.75, 0.0]
    write_frames(made / FRAMES, [frame(n, [], whole=n == 1, level=v) for n, v in enumerate(levels, 1)])
    recorded = Recorded(made)
    try:
        with serving(recorded, port=0, token=TOKEN) as address, opened(browser, address.page) as page:
            level = page.locator("#level-chart")
            expect(level).to_have_attribute("aria-label", "Level 0.00; highest shown 0.75")
            page.keyboard.press("ArrowLeft")
            expect(level).to_have_attribute("aria-label", "Level 0.75; highest shown 0.75")
            page.get_by_role("slider", name="Time").press("Home")
            expect(level).to_have_attribute("aria-label", "Level 0.00; highest shown 0.00")
    finally:
        recorded.close()


# --- what is refused, and what has no room -----------------------------------------------------------


def test_a_slider_that_is_moved_on_while_the_token_is_asked_for_asks_once(browser: Browser) -> None:
    knobs = Knobs(load=1, tolerance=1, story=False, chapter="Yours.")
    watched = Told(frame(1, a_few(), whole=True, knobs=knobs))
    with served(watched) as address, opened(browser, address.url, excused={"/api/knobs"}) as page:
        slider = page.locator("#load-knob")
        expect(slider).to_be_visible()
        slider.press("ArrowRight")
        expect(page.locator("#token")).to_be_visible()
        # as a hand does that is still dragging
        slider.evaluate("slider => { slider.value = '0.5'; slider.dispatchEvent(new Event('input')); }")
        page.get_by_role("button", name="Not now").click()
        expect(page.locator("#knobs-trouble")).to_contain_text("this needs the token of the run")
        # had it asked again, it would have done so by now
        page.wait_for_timeout(600)
        expect(page.locator("#token")).to_be_hidden()


def test_a_deep_plan_stays_in_its_panel(browser: Browser) -> None:
    long = "p95_latency_of_checkout_by_region"
    chain = [OperatorInsight("p", "stream", -1, 1.0, 1.0, 1e-6, None, ())]
    chain += [
        OperatorInsight(f"port <> {n} AND size > {n}", "test", n, 1.0, 0.5, 2e-6, 0.5, ("late",) if n == 13 else (long,) if n == 5 else ())
        for n in range(14)
    ]  # fmt: skip
    queries = tuple(QueryInsight(n, "ERROR 5%", 0.5, 1.0, 1, 0.1234, 0.01) for n in ("late", long))
    known = StreamInsight("p", 3, 1e3, 5e2, tuple(chain), queries, (), 0.4, 1.0, 2.0, 0.5, {})
    watched = Measured(known=Insight((known,), 1.5))
    with served(watched) as address, opened(browser, address.page) as page:
        leaf = page.locator(f'#plan .leaf[data-name="{long}"]')
        told_until(page, watched.tell, lambda: leaf.locator(".rate").text_content() == "12.3 %, ≈ 1 %")
        assert (leaf.locator(".name").text_content() or "").endswith("…")
        assert leaf.locator("title").text_content() == f"{long}: 12.3 %, ± 1 % expected", (
            "on a look all is told"
        )
        over = page.locator("#plan").evaluate(
            """plan => [...plan.querySelectorAll(".leaf, .operator")].flatMap((row) => {
              const [left, right] = [[".name, .label"], [".rate, .cost"]].map((names) => row.querySelector(names).getBoundingClientRect());
              return left.right > right.left || right.right > plan.querySelector("svg").getBoundingClientRect().right
                ? [row.textContent] : [];
            })"""
        )
        assert over == []
        assert page.locator("#plan").evaluate("plan => plan.scrollWidth - plan.clientWidth") <= 2
