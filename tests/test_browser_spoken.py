"""What the page says aloud in a real Chromium: all of it, where it is heard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from browser import SPOKEN, card, chromium, expect, opened
from browser_still import ALERT, Told, Waiting, a_few, many, served
from frames import frame, point, query
from waiting import wait_for

HEARD = """() => {
  window.heard = [];
  for (const place of document.querySelectorAll(".announce")) {
    new MutationObserver(() => place.textContent && window.heard.push(place.textContent)).observe(place, { childList: true });
  }
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def heard(page: Page) -> list[str]:
    found: list[str] = page.evaluate("window.heard")
    return found


def test_of_several_alerts_all_are_told(browser: Browser) -> None:
    alerts = [ALERT.model_copy(update={"name": name}) for name in ("one", "two", "three", "four", "five")]
    up = {"raised": 1}
    watched = Told(frame(1, a_few(), whole=True, alerts=alerts))
    with served(watched) as address, opened(browser, address.page) as page:
        expect(page.locator(".alert")).to_have_count(5)
        watched.tell(alerts=[*alerts[:3], alerts[3].model_copy(update=up), alerts[4]])
        expect(page.locator(SPOKEN)).to_have_text("Alert four is raised.")
        watched.tell(alerts=[each.model_copy(update=up) for each in alerts[:2]] + alerts[2:])
        expect(page.locator(SPOKEN)).to_have_text("Alerts one, two are raised. Alert four is calm again.")
        watched.tell(alerts=[each.model_copy(update=up) for each in alerts])
        expect(page.locator(SPOKEN)).to_have_text("Alerts three, four, five are raised.")
        watched.tell(alerts=alerts)
        expect(page.locator(SPOKEN)).to_have_text("Alerts one, two, three and 2 more are calm again.")


def test_the_same_words_once_more_are_told_once_more(browser: Browser) -> None:
    watched = Told(frame(1, a_few(), whole=True, alerts=[ALERT]))
    with served(watched) as address, opened(browser, address.page) as page:
        expect(page.locator(".alert")).to_have_count(1)
        page.evaluate(HEARD)
        for times in (1, 2):
            watched.tell(alerts=[ALERT.model_copy(update={"raised": 1})])
            page.wait_for_function(f"() => window.heard.length === {2 * times - 1}")
            watched.tell(alerts=[ALERT])
            page.wait_for_function(f"() => window.heard.length === {2 * times}")
        assert heard(page) == ["Alert busy is raised.", "Alert busy is calm again."] * 2


def test_what_is_said_is_said_in_the_uppermost_dialog(browser: Browser) -> None:
    watched = Told(frame(1, a_few(), whole=True, alerts=[ALERT]))
    with served(watched) as address, opened(browser, address.url, excused={"/api/queries/calm"}) as page:
        card(page, "calm").locator(".open").click()
        watched.tell([query("late", [point(9)], met=True)])
        expect(page.locator(f"#query > {SPOKEN}")).to_have_text("Contract met again: late.")
        page.locator("#drop").click()
        page.locator("#drop-yes").click()
        expect(page.locator("#token")).to_be_visible()
        expect(page.locator(SPOKEN)).to_have_text("calm: Dropping…")
        # contracts are not spoken of again so soon
        watched.tell(alerts=[ALERT.model_copy(update={"raised": 1})])
        expect(page.locator(f"#token > {SPOKEN}")).to_have_text("Alert busy is raised.")
        expect(page.locator(SPOKEN)).to_have_count(1)
        page.get_by_role("button", name="Not now").click()
        expect(page.locator("#drop-problem")).to_contain_text("this needs the token")
        page.keyboard.press("Escape")
        watched.tell(alerts=[ALERT])
        expect(page.locator(f"body > {SPOKEN}")).to_have_text("Alert busy is calm again.")


def test_a_question_that_was_answered_is_asked_no_more(browser: Browser) -> None:
    with served(Told()) as address, opened(browser, address.page) as page:
        expect(page.locator("#count")).to_have_text("4")
        page.evaluate(HEARD)
        page.evaluate(
            """async () => {
              const { Announcer } = await import("/page/status.js");
              const announcer = new Announcer();
              announcer.say("Really drop a?", "a");
              announcer.say("a is dropped.", "a");
              announcer.say("b is dropped.", "b");
            }"""
        )
        expect(page.locator(SPOKEN)).to_have_text("a is dropped. b is dropped.")
        assert heard(page) == ["a is dropped. b is dropped."]


def test_a_change_that_waits_says_so_and_holds_up_no_other_query(browser: Browser) -> None:
    watched = Told()
    control = Waiting(watched)
    with served(watched, control) as address, opened(browser, address.page) as page:
        card(page, "wide").locator(".open").click()
        drop = page.locator("#drop")
        drop.click()
        page.locator("#drop-yes").click()
        wait_for(control.asked.is_set)
        expect(drop).to_have_text("Dropping…")
        expect(drop).to_have_attribute("aria-busy", "true")
        expect(page.locator(f"#query > {SPOKEN}")).to_have_text("wide: Dropping…")
        page.locator("#contract").fill("ERROR 9%")
        page.locator("#alter").click()
        expect(page.locator("#contract-problem")).to_contain_text("Dropping… Nothing else is done with wide")
        page.keyboard.press("Escape")
        card(page, "calm").locator(".open").click()
        expect(drop).to_have_text("Drop this query")
        page.locator("#contract").fill("ERROR 9%")
        page.locator("#alter").click()
        expect(page.locator("#alter")).to_have_text("Altering…")
        # one that is looked at again still says what is done with it
        page.keyboard.press("Escape")
        card(page, "wide").locator(".open").click()
        expect(drop).to_have_text("Dropping…")
        expect(page.locator("#alter")).to_have_text("Alter")
        page.keyboard.press("Escape")
        card(page, "calm").locator(".open").click()
        page.locator("#alter").click()
        expect(page.locator("#contract-problem")).to_contain_text("Altering… Nothing else is done with calm")
        control.go_on.set()
        # that one has to wait is true no more
        expect(page.locator("#alter")).to_have_text("Alter")
        expect(page.locator("#contract-problem")).to_be_hidden()
        expect(page.locator("body")).to_contain_text("wide is dropped.")
        assert "wide" not in watched.declared.queries


def test_how_many_queries_were_found_is_said_when_nobody_types_any_more(browser: Browser) -> None:
    watched = Told(frame(1, [*many(1000, 1, 1), query("late", [point(1)], met=False)], whole=True))
    with served(watched) as address, opened(browser, address.page) as page:
        search = page.get_by_role("searchbox", name="Search queries")
        expect(page.locator("#count")).to_have_text("1001")
        page.evaluate(HEARD)
        search.press_sequentially("q099", delay=0)
        expect(page.locator(SPOKEN)).to_have_text("10 of 1,001 queries")
        search.fill("")
        expect(page.locator(SPOKEN)).to_have_text("1,001 queries")
        page.locator("#unmet").click()
        expect(page.locator(SPOKEN)).to_have_text("1 of 1,001 queries")
        assert heard(page) == ["10 of 1,001 queries", "1,001 queries", "1 of 1,001 queries"]
