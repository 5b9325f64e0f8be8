"""The top of the page in a real Chromium: which run it is, its streams, and whether there is news of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from browser import SPOKEN, chromium, expect, opened
from browser_still import TOKEN, Told, a_few, served
from frames import frame, query, recording, stream, turn, write_frames
from slackwater.service.frame_log import FRAMES
from slackwater.service.recorded import Recorded
from slackwater.service.server import serving


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def in_the_flow(page: Page, place: str) -> bool:
    """Whether something lies between the top and the tide line, on neither of them."""
    ends = []
    for each in (".top", place, "#tide"):
        box = page.locator(each).bounding_box()
        assert box is not None
        ends.append((box["y"], box["y"] + box["height"]))
    return ends[0][1] <= ends[1][0] < ends[1][1] <= ends[2][0]


def test_streams_say_how_they_are_and_those_with_trouble_come_first(browser: Browser) -> None:
    states = [
        stream("a", state="idle"),
        stream("b", state="ended"),
        stream("c", state="stopped"),
        stream("d"),
    ]
    watched = Told(frame(1, a_few(), whole=True, name="traffic.sql", streams=states))
    with served(watched) as address, opened(browser, address.page) as page:
        expect(page).to_have_title("traffic.sql · Slackwater")
        expect(page.locator("#run-name")).to_have_text("traffic.sql")
        names, more = page.locator("#streams .stream-name"), page.locator("#more-streams")
        expect(names).to_have_text(["c", "a", "b", "d"])
        expect(page.locator("#streams .stream-state")).to_have_text(["stopped", "idle", "ended", ""])
        expect(more).to_be_hidden()
        many = [stream(f"s{n}", late=3 if n in (2, 8) else 0) for n in range(9)]
        watched.tell(streams=many)
        expect(names).to_have_text(["s2", "s8", "s0", "s1"])
        expect(more).to_have_text("+5 more")
        # none of their words is cut off, however narrow the screen is
        for width in (1100, 720, 390):
            page.set_viewport_size({"width": width, "height": 844})
            for words in ("s2", "s8", "3 late"):
                expect(page.get_by_text(words, exact=True).first).to_be_in_viewport(ratio=1)
            assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        more.click()
        expect(names).to_have_count(9)
        expect(more).to_have_attribute("aria-expanded", "true")
        more.click()
        expect(names).to_have_count(4)
        watched.tell(streams=[each.model_copy(update={"unreadable": 1}) for each in many])
        expect(more).to_have_text("+5 more, 5 with trouble")


def test_a_run_that_is_silent_is_told_though_its_service_is_there(browser: Browser) -> None:
    watched = Told()
    with served(watched) as address, opened(browser, f"{address.url}/page/mark.svg", silent_after=5) as page:
        page.clock.install()
        page.goto(address.page)
        silent = page.locator("#silent")
        expect(page.locator("#plan-note")).to_have_text("as declared")
        page.clock.fast_forward(4_000)
        expect(silent).to_be_hidden()
        page.clock.run_for(4_000)
        expect(silent).to_contain_text("No news from the run for")
        assert in_the_flow(page, "#silent")
        expect(page.locator(SPOKEN)).to_have_text("There is no news from the run; what is shown is old.")
        expect(page.locator("#lost")).to_be_hidden()
        watched.tell()
        expect(silent).to_be_hidden()
        # nothing is to come of a run that is over, and that is not hidden behind what is said of it
        watched.tell(phase="failed", message="it broke " * 60)
        expect(page.locator("#failed")).to_be_visible()
        page.clock.run_for(8_000)
        expect(silent).to_be_hidden()
        for width in (1440, 390):
            page.set_viewport_size({"width": width, "height": 844})
            assert in_the_flow(page, "#failed")
            assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


def test_what_is_said_of_a_service_that_stays_away_hides_nothing(browser: Browser) -> None:
    with served(Told()) as address, opened(browser, address.page) as page:
        expect(page.locator("#count")).to_have_text("4")
        page.clock.install()
        page.evaluate(
            """async () => {
              const { banners } = await import("/page/status.js");
              banners.lost({ mode: "live", phase: "running" }, { refused: false });
            }"""
        )
        page.clock.run_for(2_000)
        expect(page.locator("#lost")).to_be_visible()
        assert not in_the_flow(page, "#lost")
        page.clock.run_for(10_000)
        assert in_the_flow(page, "#lost")


def test_a_query_that_is_met_now_and_then_is_not_spoken_of_all_the_time(browser: Browser) -> None:
    # a page without scripts of its own, whose clock is nobody else's
    with served(Told()) as address, opened(browser, f"{address.url}/page/mark.svg") as page:
        page.clock.install()
        page.evaluate(
            """async () => {
              const { Announcer } = await import("/page/status.js");
              window.said = [];
              window.announcer = new Announcer();
              announcer.say = (text) => said.push(text);
            }"""
        )

        def turn_to(met: bool, name: str = "q") -> None:
            page.evaluate("query => announcer.turned([query])", {"name": name, "met": met})
            page.clock.run_for(1_000)

        # as it was before: no word of it
        turn_to(False)
        turn_to(True)
        page.clock.run_for(3_000)
        assert page.evaluate("said") == []
        turn_to(False)
        page.clock.run_for(3_000)
        assert page.evaluate("said") == ["Contract not met: q."]
        turn_to(False, "other")
        turn_to(True)
        page.clock.run_for(10_000)
        assert len(page.evaluate("said")) == 1
        turn_to(True, "other")
        page.clock.run_for(10_000)
        assert page.evaluate("said.slice(1)") == ["Contract met again: q."]
        for _ in range(30):
            turn_to(False)
            turn_to(True)
        assert len(page.evaluate("said")) <= 2 + 3


def test_a_recording_leaves_other_keys_alone_and_says_when_its_service_is_gone(
    browser: Browser, tmp_path: Path
) -> None:
    folder = recording(tmp_path / "of_monday", turns=[turn(1, 1.0)])
    write_frames(
        folder / FRAMES, [frame(n, [query("web")] if n == 1 else [], whole=n == 1) for n in range(1, 61)]
    )
    recorded = Recorded(folder)
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    try:
        with serving(recorded, port=0, token=TOKEN) as address:
            page.goto(address.page)
            expect(page).to_have_title("of_monday · Slackwater")
            time, says = page.locator("#time"), page.locator("#time-says")
            expect(says).to_have_text("2026-03-01 12:01:00 UTC · 59 s of 59 s")
            for keys in ("PageUp", "PageDown", "Shift+ArrowLeft"):
                page.keyboard.press(keys)
            page.locator("#plan").focus()
            page.keyboard.press("ArrowLeft")
            expect(time).to_have_value("59")
            page.locator("#theme").focus()
            page.keyboard.press("ArrowLeft")
            expect(time).to_have_value("58")
            # the slider has them by itself
            time.focus()
            page.keyboard.press("PageUp")
            expect(time).to_have_value("59")
            page.keyboard.press("PageDown")
            expect(time).not_to_have_value("59")
            assert page.locator("#play").get_attribute("aria-pressed") is None
            expect(page.locator("#lost")).to_be_hidden()
        page.keyboard.press("Home")
        expect(page.locator("#lost")).to_contain_text("The service of this recording is gone.")
        expect(time).to_have_value("0")
        assert in_the_flow(page, "#lost")
    finally:
        context.close()
        recorded.close()
