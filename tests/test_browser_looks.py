"""The page in a real Chromium: colours, narrow screens, and that nothing that goes wrong there goes unseen."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from browser import card, check_names, chromium, expect, focus, opened
from browser_still import ALERT, Told, a_few, many, served, some_agents
from frames import frame
from slackwater.service.models import Knobs

WRONG = {
    "() => console.log('a line for nobody')": "log: a line for nobody",
    "() => new Promise((done) => { addEventListener('error', () => done(0)); setTimeout(() => nobody.knows(), 0); })": "nobody is not defined",
    "() => new Promise((done) => { const image = new Image(); image.onerror = () => done(0); image.src = 'http://elsewhere.invalid/'; })": "violates the following Content Security Policy",
    "() => fetch('/api/nothing').then(() => 0)": "status of 404",
    "() => { open('http://elsewhere.invalid/'); }": "left the machine: GET http://elsewhere.invalid/",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def visit(browser: Browser, address: str, script: str) -> None:
    """Open the page and do something wrong in it."""
    with opened(browser, address) as page:
        expect(page.locator("#count")).to_have_text("4")
        if "open(" not in script:
            page.evaluate(script)
            return
        with page.context.expect_event("requestfailed"):
            page.evaluate(script)


def test_nothing_that_goes_wrong_goes_unseen(browser: Browser) -> None:
    """The tests of the page rest on this."""
    with served(Told()) as address:
        for script, seen in WRONG.items():
            with pytest.raises(AssertionError, match=seen):
                visit(browser, address.page, script)


def background(page: Page) -> tuple[int, ...]:
    found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return tuple(int(part) for part in re.findall(r"\d+", found)[:3])


def test_light_and_dark(browser: Browser) -> None:
    with served(Told()) as address:
        with opened(browser, address.page, color_scheme="dark") as page:
            expect(page.locator("#count")).to_have_text("4")
            assert max(background(page)) < 60
        with opened(browser, address.page, color_scheme="light") as page:
            expect(page.locator("#count")).to_have_text("4")
            assert min(background(page)) > 200
            button = page.locator("#theme")
            button.click()
            expect(button).to_have_attribute("aria-label", "Colours: light")
            button.click()
            expect(button).to_have_attribute("aria-label", "Colours: dark")
            assert max(background(page)) < 60
            # the choice stays when the page is opened again
            again = page.context.new_page()
            again.goto(address.page)
            expect(again.locator("#theme")).to_have_attribute("aria-label", "Colours: dark")
            assert max(background(again)) < 60
            again.locator("#theme").click()
            expect(again.locator("#theme")).to_have_attribute("aria-label", "Colours: as the system has them")
            assert min(background(again)) > 200


CONTRASTS = """(pairs) => {
  const rgb = (value) => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d");
    canvas.fillStyle = value;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (value) => {
    const [r, g, b] = rgb(value).map((part) => part / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const style = getComputedStyle(document.documentElement);
  const of = (name) => light(style.getPropertyValue(`--${name}`));
  return pairs.map(([one, other]) => {
    const [low, high] = [of(one), of(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  });
}"""
TEXTS = ("ink", "quiet", "water-ink", "shed-ink", "level", "good", "bad")
SIGNS = ("control", "water", "shed-line", "focus")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_controls_stand_out_from_what_they_stand_on(browser: Browser, scheme: str) -> None:
    """As WCAG 2.2 has it: 4.5 for texts, 3 for what must be seen of controls and pictures."""
    with served(Told()) as address, opened(browser, address.page, color_scheme=scheme) as page:
        expect(page.locator("#count")).to_have_text("4")
        least = {(name, ground): 4.5 for name in TEXTS for ground in ("surface", "raised", "paper")}
        least |= {(name, ground): 3.0 for name in SIGNS for ground in ("surface", "raised", "paper")}
        least |= {("on-main", ground): 4.5 for ground in ("water-ink", "bad")}
        found = dict(zip(least, page.evaluate(CONTRASTS, [list(pair) for pair in least]), strict=True))
        assert {pair: ratio for pair, ratio in found.items() if ratio < least[pair]} == {}


def test_a_thousand_cards_do_not_stand_before_the_plan_of_a_narrow_screen(browser: Browser) -> None:
    size = {"width": 390, "height": 844}
    watched = Told(frame(1, many(1_000, 0, 1), whole=True))
    with served(watched) as address, opened(browser, address.page, viewport=size) as page:
        expect(page.locator("#count")).to_have_text("1000")
        expect(page.locator("#plan img, #plan svg")).to_be_visible()
        top = page.locator("#side").evaluate("side => side.getBoundingClientRect().top + scrollY")
        assert top < 3 * size["height"]
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        assert focus(page) == "Skip to the plan, agents and alerts"
        page.keyboard.press("Enter")
        expect(page.locator("#plan-heading")).to_be_in_viewport()


def test_what_is_modelled_is_dashed_and_a_gap_is_empty(browser: Browser) -> None:
    hows = ["sampled", "modelled", "modelled", "exact"]
    points = [{"at": s, "value": s, "low": s - 1, "high": s + 1, "how": how} for s, how in enumerate(hows)]
    points.append({"at": 9, "value": 9, "low": 9, "high": 9, "how": "subset"})
    with served(Told()) as address, opened(browser, address.page) as page:
        columns, dashes = page.evaluate(
            """async (points) => {
              const { bandOptions, columnsOf } = await import("/page/band_lines.js");
              const { series } = bandOptions(document.body, { suspended: () => [], told: () => {} });
              return [columnsOf(points, { slide: 1 }).columns, series.map((each) => each.dash ?? null)];
            }""",
            points,
        )
        at, low, high, solid, dashed = columns
        assert at == [0, 1, 2, 3, 6, 9]
        assert solid == [0, None, None, 3, None, 9]
        # from the last that was measured to the first that is again
        assert dashed == [0, 1, 2, 3, None, None]
        assert (low[4], high[4]) == (None, None)
        assert dashes[3] is None
        assert dashes[4]


@pytest.mark.parametrize("width", [390, 768])
def test_a_narrow_screen_does_not_scroll_sideways(browser: Browser, width: int) -> None:
    knobs = Knobs(load=1, tolerance=1, story=True, chapter="Calm: all of it is looked at.")
    shown = frame(1, a_few(), whole=True, knobs=knobs, agents=[some_agents()], alerts=[ALERT])
    size = {"width": width, "height": 844}
    with served(Told(shown)) as address, opened(browser, address.page, viewport=size) as page:

        def fits() -> None:
            found = page.evaluate("[document.scrollingElement.scrollWidth, innerWidth]")
            assert found[0] <= found[1] == width

        expect(page.locator("#alerts")).to_be_visible()
        expect(page.locator("#plan img, #plan svg")).to_be_visible()
        fits()
        check_names(page)
        page.get_by_role("button", name="New query").click()
        expect(page.locator("#known-list")).to_contain_text("stream")
        fits()
        assert page.locator("#form").evaluate("form => form.scrollWidth <= form.clientWidth")
        page.keyboard.press("Escape")
        card(page, "calm").locator(".open").click()
        expect(page.locator("#query")).to_be_visible()
        fits()
        assert page.locator("#query").evaluate("sheet => sheet.scrollWidth <= sheet.clientWidth")
