"""The page in a real Chromium: colours, narrow screens, and that nothing that goes wrong there goes unseen."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from browser import card, check_names, chromium, expect, opened
from browser_still import ALERT, Told, a_few, served, some_agents
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
