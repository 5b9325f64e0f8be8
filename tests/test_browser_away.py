"""The page in a real Chromium while nobody looks at it, while answers fail, and with colours that the system chooses."""

from __future__ import annotations

import base64
import errno
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, Locator, Page

from browser import card, chromium, expect, opened
from browser_still import ALERT, Told, Turned, a_few, served, some_agents
from frames import answer, at, frame, point, query
from slackwater.errors import RunError
from slackwater.runtime.answers import Answer
from slackwater.service.models import Away, Knobs
from slackwater.service.watched import Asked
from waiting import wait_for

HIDES = """
window.away = false;
Object.defineProperty(document, "hidden", { get: () => window.away });
window.look = (away) => { window.away = away; document.dispatchEvent(new Event("visibilitychange")); };
window.followed = [];
const own = window.fetch;
window.fetch = (path, more) => {
  if (String(path).startsWith("/api/events")) {
    const one = { path: String(path), open: true };
    more.signal.addEventListener("abort", () => { one.open = false; });
    window.followed.push(one);
  }
  return own(path, more);
};
"""
COLOURS = """async (picture) => {
  const image = new Image();
  image.src = `data:image/png;base64,${picture}`;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
  canvas.drawImage(image, 0, 0);
  const { data } = canvas.getImageData(0, 0, image.width, image.height);
  const found = new Map();
  for (let i = 0; i < data.length; i += 4) {
    const one = data.slice(i, i + 3).join(" ");
    found.set(one, (found.get(one) ?? 0) + 1);
  }
  return [...found.values()];
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def followed(page: Page) -> list[bool]:
    """Of each stream of events that was asked for, whether it is open."""
    found: list[bool] = page.evaluate("window.followed.map((one) => one.open)")
    return found


def test_a_page_that_nobody_looks_at_leaves_its_connection_to_others(browser: Browser) -> None:
    watched = Told()
    with served(watched) as address, opened(browser, f"{address.url}/page/mark.svg") as page:
        page.context.add_init_script(HIDES)
        page.clock.install()
        page.goto(address.page)
        expect(page.locator("#count")).to_have_text("4")
        # no request is under way: its time would be over with a clock that leaps
        expect(page.locator("#plan-note")).to_have_text("as declared")
        # a look elsewhere that is short ends nothing
        page.evaluate("look(true)")
        page.clock.fast_forward(2_000)
        page.evaluate("look(false)")
        page.clock.fast_forward(4_000)
        assert followed(page) == [True]
        page.evaluate("look(true)")
        page.clock.fast_forward(6_000)
        assert followed(page) == [False]
        page.clock.fast_forward(60_000)
        watched.tell([query("calm", [point(9, 123)], last_text="123")])
        assert followed(page) == [False]
        expect(page.locator("#lost")).to_be_hidden()
        # it goes on after the last frame
        page.evaluate("look(false)")
        expect(card(page, "calm").locator(".value")).to_have_text("123")
        assert page.evaluate("window.followed.map((one) => one.path)") == [
            "/api/events",
            "/api/events?after=1",
        ]
        expect(page.locator("#lost")).to_be_hidden()


def test_a_request_that_hangs_comes_to_an_end(browser: Browser) -> None:
    # a page without scripts of its own, whose questions are nobody else's
    with served(Told()) as address, opened(browser, f"{address.url}/page/mark.svg") as page:
        found = page.evaluate(
            """async () => {
              const asked = [];
              AbortSignal.timeout = (ms) => { asked.push(ms); return AbortSignal.abort(new DOMException("", "TimeoutError")); };
              const { change, getJson } = await import("/page/api.js");
              const words = [];
              for (const ask of [() => getJson("/api/plan"), () => change("POST", "/api/preview", { sql: "" })]) {
                await ask().catch((problem) => words.push(problem.message));
              }
              return [asked, words];
            }"""
        )
        assert found == [
            [30_000, 300_000],
            [f"The service has not answered within {seconds} seconds." for seconds in (30, 300)],
        ]


@dataclass
class Failing(Told):
    """`Watched` whose answers cannot be had, so often."""

    left: int = 0
    asked: list[str] = field(default_factory=list)

    def answers(self, query: str, asked: Asked) -> Sequence[Answer]:
        self.asked.append(query)
        if len(self.asked) <= self.left:
            raise RunError("the disk is full")
        return [answer(query, second, 100) for second in range(1, 61)]


def test_points_that_could_not_be_had_are_asked_for_again(browser: Browser) -> None:
    watched = Failing(
        frame(1, [query("calm", [point(s, 100) for s in (59, 60)])], whole=True, room=2), left=2
    )
    excused = {"/api/queries/calm/answers"}
    with (
        served(watched) as address,
        opened(browser, f"{address.url}/page/mark.svg", excused=excused) as page,
    ):
        page.clock.install()
        page.goto(address.page)
        chart = card(page, "calm").locator(".chart")
        expect(chart).to_have_attribute("data-points", "2")
        second = 60

        def later() -> None:
            """Time passes, and another point comes: with its frame the page may ask again."""
            nonlocal second
            second += 1
            page.clock.fast_forward(2_000)
            watched.tell([query("calm", [point(second, 100)])])
            # without those before, or with them
            expect(chart).to_have_attribute("data-points", re.compile(f"^({second - 58}|{second})$"))

        for times in (2, 3):
            # the page hears that it has failed after it was asked, and waits from then on
            wait_for(lambda: len(watched.asked) == times, later)  # noqa: B023
        expect(chart).to_have_attribute("data-points", str(second))
        assert len(watched.asked) == 3


def test_what_fails_again_and_again_is_asked_for_ever_later(browser: Browser) -> None:
    # a page without scripts of its own, whose timers are nobody else's
    with served(Told()) as address, opened(browser, f"{address.url}/page/mark.svg") as page:
        waits = page.evaluate(
            """async () => {
              const { fill } = await import("/page/fill.js");
              window.fetch = () => Promise.reject(new TypeError("gone"));
              const query = { name: "q", filled: false, series: {}, frame: { column: "n", keys: {} } };
              const waits = [];
              for (let n = 0; n < 8; n += 1) {
                await new Promise((again) => {
                  window.setTimeout = (call, ms) => { waits.push(ms); call(); again(); };
                  fill(query, () => {});
                });
              }
              return waits;
            }"""
        )
        assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]


def differing(page: Page, place: Locator) -> float:
    """The share of a picture that is not of its most frequent colour."""
    found = page.evaluate(COLOURS, base64.b64encode(place.screenshot()).decode())
    return 1 - max(found) / sum(found)


def test_what_is_told_by_colours_is_seen_where_the_system_chooses_them(browser: Browser) -> None:
    knobs = Knobs(load=1, tolerance=1, story=True, chapter="Calm.")
    raised = ALERT.model_copy(update={"raised": 1})
    shown = frame(1, a_few(), whole=True, knobs=knobs, agents=[some_agents()], alerts=[raised])
    places = {
        "#story-knob": 0.2,
        "#load-knob": 0.05,
        ".dots li:first-child": 0.1,
        ".dots li:last-child": 0.1,
        ".saving": 0.05,
        ".meter": 0.05,
        ".alert .sign": 0.1,
        ".legend .shed": 0.02,
    }
    for scheme in ("light", "dark"):
        watched = Told(shown)
        with (
            served(watched, Turned(watched)) as address,
            opened(browser, address.page, forced_colors="active", color_scheme=scheme) as page,
        ):
            expect(page.locator("#alerts")).to_be_visible()
            expect(page.locator("#story-knob")).to_be_checked()
            on = page.locator("#story-knob").screenshot()
            page.locator("#story-knob").uncheck()
            assert page.locator("#story-knob").screenshot() != on
            for place, least in places.items():
                assert differing(page, page.locator(place)) >= least, place
            there, away = (page.locator(f".dots li:{one}-child").screenshot() for one in ("first", "last"))
            assert there != away
            # a key has its colour before its words
            key = page.locator(".legend .kept").evaluate("key => getComputedStyle(key, '::before').backgroundColor")  # fmt: skip
            water = page.evaluate(
                "getComputedStyle(document.documentElement).getPropertyValue('--water-deep')"
            )
            assert key.replace(",", "").split("(")[1].split()[:3] == water.split("(")[1].split()[:3]


def test_what_cannot_be_recorded_is_told_while_the_run_goes_on(browser: Browser) -> None:
    full = f"frames cannot be written to /data/r/frames.jsonl: {os.strerror(errno.ENOSPC)}"
    watched = Told()
    with served(watched) as address, opened(browser, address.page) as page:
        told = page.get_by_role("status").filter(has_text="Warning")
        expect(page.locator("#count")).to_have_text("4")
        expect(page.locator("#warning")).to_be_hidden()
        watched.tell(message=full)
        expect(told).to_have_text(f"Warning: {full}")
        expect(page.locator("#failed")).to_be_hidden()
        # it lies above nothing
        boxes = [page.locator(place).bounding_box() for place in (".top", "#warning", "#tide")]
        ends = [(box["y"], box["y"] + box["height"]) for box in boxes if box is not None]
        assert ends[0][1] <= ends[1][0] < ends[1][1] <= ends[2][0]
        watched.tell(message="")
        expect(page.locator("#warning")).to_be_hidden()
        watched.tell(message="it broke", phase="failed")
        expect(page.locator("#failed")).to_have_text("The run has failed: it broke")
        expect(page.locator("#warning")).to_be_hidden()


def test_agents_that_were_away_are_told_when_they_are_back(browser: Browser) -> None:
    agents = some_agents()
    watched = Told(frame(1, a_few(), whole=True, agents=[agents]))
    before = "#agents .away-before"
    with served(watched) as address, opened(browser, address.page) as page:
        expect(page.locator("#agents .away li")).to_have_text(["west has been away for 1 s"])
        expect(page.locator(before)).to_be_hidden()

        def away(since: int, until: int) -> Away:
            return Away(since=at(since), until=at(until))

        north, south, west = agents.agents
        north = north.model_copy(update={"interruptions": 1, "last_away": away(1, 3)})
        watched.tell(agents=[agents.model_copy(update={"agents": [north, south, west]})])
        expect(page.locator(before)).to_have_text("1 interruption, of north for 2 s, 12:00:01 to 12:00:03")
        south = south.model_copy(update={"interruptions": 3, "last_away": away(4, 10)})
        watched.tell(agents=[agents.model_copy(update={"agents": [north, south, west]})])
        expect(page.locator(before)).to_have_text(
            "4 interruptions, the last one that is over of south for 6 s, 12:00:04 to 12:00:10"
        )
        # of very many agents some are not told one by one
        back = west.model_copy(update={"there": True, "since": None})
        shown = {"agents": [north, south, back], "there": 3, "interruptions": 250}
        watched.tell(agents=[agents.model_copy(update=shown)])
        expect(page.locator(before)).to_have_text(
            "250 interruptions, the last one of south for 6 s, 12:00:04 to 12:00:10"
        )
