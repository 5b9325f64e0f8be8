"""The token in a real Chromium: what can be none is told, what was given is taken as it is, and storage may be blocked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page

from browser import card, chromium, expect, opened
from browser_still import ALERT, TOKEN, Told, a_few, served
from frames import frame, point, query
from service_still import StillControl
from slackwater.service import events
from slackwater.service.server import serving

BLOCKED = """
for (const name of ["localStorage", "sessionStorage"]) {
  Object.defineProperty(window, name, { get() { throw new DOMException("blocked", "SecurityError"); } });
}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def with_alert() -> Told:
    return Told(frame(1, a_few(), whole=True, alerts=[ALERT]))


def dropped(page: Page) -> None:
    """Drop the alert, which needs the token."""
    drop = page.locator("#alerts-list button")
    drop.click()
    drop.click()
    expect(page.locator("#announce")).to_have_text("Alert busy is dropped.")


@pytest.mark.parametrize("written", ["…", "%E2%80%8B" + TOKEN, "", "two%20words"])
def test_what_can_be_no_token_is_asked_for_again(browser: Browser, written: str) -> None:
    watched = with_alert()
    with served(watched) as address, opened(browser, f"{address.url}/#token={written}") as page:
        expect(page.locator("#token-refused")).to_be_visible()
        # reading needs none here
        expect(page.locator("#count")).to_have_text("4")
        field = page.get_by_role("textbox", name="Token")
        field.fill(f"{TOKEN}\u200b")
        page.keyboard.press("Enter")
        expect(field).to_have_value("")
        expect(page.locator("#token-refused")).to_be_visible()
        field.fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page.locator("#token")).to_be_hidden()
        dropped(page)


def test_what_was_kept_and_can_be_no_token_is_not_sent(browser: Browser) -> None:
    """An older page may have kept it; no header takes it, so that nothing would be asked for at all."""
    watched = Told()
    with served(watched) as address, opened(browser, f"{address.url}/page/mark.svg") as page:
        page.evaluate("sessionStorage.setItem('slackwater-token', '\\u2026')")
        page.goto(f"{address.url}/")
        watched.tell([query("calm", [point(9, 123)], last_text="123")])
        expect(card(page, "calm").locator(".value")).to_have_text("123")
        expect(page.locator("#lost")).to_be_hidden()


@contextmanager
def served_with(watched: Told, token: str) -> Iterator[str]:
    """The service with another token; where it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "QUIET_S", 0.1)
        with serving(watched, StillControl(watched), port=0, token=token) as address:
            yield address.url


@pytest.mark.parametrize(
    ("token", "written"),
    [
        ("plus+minus-a+token", "plus+minus-a+token"),
        ("a-token&more=of-it", "a-token&more=of-it"),
        ("a-token-with-50%-of", "a-token-with-50%-of"),
        ("a/token+with=signs", "a%2Ftoken%2Bwith%3Dsigns"),
    ],
)
def test_a_token_is_taken_out_of_the_address_as_it_is(browser: Browser, token: str, written: str) -> None:
    with served_with(with_alert(), token) as url, opened(browser, f"{url}/#token={written}") as page:
        expect(page.locator("#count")).to_have_text("4")
        assert page.url == f"{url}/"
        dropped(page)


def test_a_page_whose_storage_is_blocked_is_a_page(browser: Browser) -> None:
    with served(with_alert()) as address, opened(browser, f"{address.url}/page/mark.svg") as page:
        page.context.add_init_script(BLOCKED)
        page.goto(address.page)
        expect(page.locator("#count")).to_have_text("4")
        page.locator("#theme").click()
        expect(page.locator("#theme")).to_have_attribute("aria-label", "Colours: light")
        dropped(page)
