"""The page in a real Chromium where something is odd: strange texts, lost connections, refused tokens, long SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Page

from browser import SPOKEN, card, chromium, expect, opened, write_sql
from browser_still import ALERT, TOKEN, Told, Turned, a_few, served
from frames import answer, frame, point, query
from service_still import StillControl
from slackwater.errors import LanguageError, Position
from slackwater.runtime.answers import Answer
from slackwater.service import events
from slackwater.service.models import Preview
from slackwater.service.server import listen, serving
from slackwater.service.watched import Asked

EVIL = "<img src=x onerror='window.hurt = 1'>\u2028\u2029\u0085'\"&amp;</script>"
"""A text that would be run where it is taken for HTML, with what some take for ends of lines."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


class Evil(StillControl):
    def preview(self, sql: str, *, trusted: bool = True) -> Preview:
        raise LanguageError(f"no column {EVIL} in p", text=sql, position=Position(1, 1, 0), hint=EVIL)


def test_texts_of_rows_are_texts_whatever_is_in_them(browser: Browser) -> None:
    shown = [
        query("by_host", [point(1)], keys={"host": EVIL}, groups=2, last_text=EVIL, contract=f"ERROR 5% {EVIL}"),
        query("of_agent", [point(1)], how="sampled"),
    ]  # fmt: skip
    raised = ALERT.model_copy(
        update={"raised": 1, "groups": [{"host": EVIL}], "trouble": EVIL, "condition": EVIL}
    )
    watched = Told(frame(1, shown, whole=True, alerts=[raised], message=EVIL))
    with (
        served(watched, Evil(watched)) as address,
        opened(browser, address.page, excused={"/api/preview", "/api/queries/by_host"}) as page,
    ):
        visible = EVIL.split("\u2028")[0]
        expect(card(page, "by_host").locator(".value")).to_contain_text(visible)
        expect(card(page, "by_host").locator(".of")).to_contain_text(visible)
        expect(page.locator(".alert .state")).to_contain_text(visible)
        expect(page.locator(".alert .trouble")).to_contain_text(visible)
        # one that comes later is as good as the first
        watched.tell([query("by_host", [point(2)], keys={"host": EVIL}, last_text=f"second {EVIL}")])
        expect(card(page, "by_host").locator(".value")).to_contain_text("second")
        card(page, "by_host").locator(".open").click()
        expect(page.locator("#query-answer")).to_contain_text(visible)
        page.keyboard.press("Escape")
        page.get_by_role("button", name="New query").click()
        write_sql(page, f"SELECT '{EVIL}'")
        page.get_by_role("button", name="Preview").click()
        expect(page.locator("#sql-problem")).to_contain_text(visible)
        page.keyboard.press("Escape")
        watched.tell(phase="failed")
        expect(page.locator("#failed")).to_contain_text(visible)
        assert page.locator("img[src='x']").count() == 0
        assert page.evaluate("window.hurt") is None


@dataclass
class Remembers(Told):
    """`Watched` that has all answers of a query, whatever its frames have."""

    last: int = 0

    def answers(self, query: str, asked: Asked) -> Sequence[Answer]:
        return [answer(query, second, 100) for second in range(1, self.last + 1)][-asked.limit :]


def test_what_a_whole_frame_leaves_out_is_asked_for(browser: Browser) -> None:
    """Of many queries a whole frame has few points of each, and no gap is drawn where none was."""
    few = frame(1, [query("calm", [point(s, 100) for s in (59, 60)])], whole=True, room=2)
    watched = Remembers(few, last=60)
    with served(watched) as address, opened(browser, address.page) as page:
        chart = card(page, "calm").locator(".chart")
        expect(chart).to_have_attribute("data-points", "60")
        # the page was asleep for so long that no frame since then is kept
        watched.last = 90
        watched.tell([query("calm", [point(s, 100) for s in (89, 90)])], whole=True)
        expect(chart).to_have_attribute("data-points", "90")
        words = chart.get_attribute("aria-label") or ""
        assert "90 answers" in words
        assert "gap" not in words
        # whole frames that go on where the last one ended leave all as it is
        watched.last = 0
        watched.tell([query("calm", [point(s, 100) for s in (90, 91)])], whole=True)
        expect(chart).to_have_attribute("data-points", "91")


def test_a_service_that_goes_and_comes_back_is_found_again(browser: Browser) -> None:
    watched = Told()
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "QUIET_S", 0.1)
        with serving(watched, StillControl(watched), token=TOKEN, listening=listening) as address:
            # while nobody listens Chromium writes of each try that it was refused
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            page = context.new_page()
            page.goto(address.page)
            expect(page.locator("#count")).to_have_text("4")
            expect(page.locator("#lost")).to_be_hidden()
        expect(page.locator("#lost")).to_be_visible()
        expect(page.locator("#lost")).to_contain_text("The service does not answer")
        # another run on the same port, whose frames have higher numbers and other queries
        again = Told(frame(1_000, [query("other", [point(1_000)])], whole=True))
        with serving(again, StillControl(again), port=port, token=TOKEN):
            expect(page.locator("#lost")).to_be_hidden()
            expect(page.locator("#count")).to_have_text("1")
            expect(card(page, "other")).to_be_visible()
            again.tell([query("other", [point(1_001, 5)], last_text="5")])
            expect(card(page, "other").locator(".value")).to_have_text("5")
            context.close()


def test_a_token_that_is_wrong_is_asked_for_again(browser: Browser) -> None:
    """Elsewhere than on loopback reading needs the token too."""
    watched = Told()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "QUIET_S", 0.1)
        with serving(watched, StillControl(watched), host="0.0.0.0", port=0, token=TOKEN) as address:
            url = f"http://127.0.0.1:{address.port}/"
            with opened(browser, url, excused={"/api/events"}) as page:
                dialog, field = page.locator("#token"), page.get_by_role("textbox", name="Token")
                expect(dialog).to_be_visible()
                expect(page.locator("#token-refused")).to_be_hidden()
                field.fill("not-the-token-of-the-tests")
                page.keyboard.press("Enter")
                expect(page.locator("#token-refused")).to_be_visible()
                expect(field).to_have_value("")
                # who has none is told what is missing, and may give it later
                page.get_by_role("button", name="Not now").click()
                expect(page.locator("#lost")).to_contain_text("The service wants another token")
                page.evaluate(f"location.hash = 'token={TOKEN}'")
                expect(page.locator("#count")).to_have_text("4")
                expect(page.locator("#lost")).to_be_hidden()


@dataclass
class Wrong(StillControl):
    """`Control` that finds something wrong at a line of whatever it is asked."""

    line: int = 1
    column: int = 1

    def preview(self, sql: str, *, trusted: bool = True) -> Preview:
        offset = sum(len(line) + 1 for line in sql.split("\n")[: self.line - 1]) + self.column - 1
        raise LanguageError("not this", text=sql, position=Position(self.line, self.column, offset))


def _inside(page: Page) -> bool:
    """Whether the marked word is where the field shows it."""
    mark, field = page.locator("#under mark").bounding_box(), page.locator("#sql").bounding_box()
    assert mark is not None
    assert field is not None
    down = field["y"] <= mark["y"] and mark["y"] + mark["height"] <= field["y"] + field["height"]
    return down and field["x"] <= mark["x"] <= field["x"] + field["width"]


def test_an_error_is_scrolled_to_wherever_it_is(browser: Browser) -> None:
    lines = [f"word{n} " + "and so on " * (30 if n == 20 else 1) + "end" for n in range(1, 41)]
    watched = Told()
    control = Wrong(watched)
    with served(watched, control) as address, opened(browser, address.page, excused={"/api/preview"}) as page:
        page.get_by_role("button", name="New query").click()
        write_sql(page, "\n".join(lines))
        for line, column in [(2, 1), (40, 1), (20, len(lines[19]) - 2), (1, 1), (39, 1)]:
            control.line, control.column = line, column
            page.keyboard.press("Control+Enter")
            expect(page.locator("#gutter .wrong")).to_have_text(str(line))
            expect(page.locator("#under mark")).to_have_text("end" if column > 1 else f"word{line}")
            assert _inside(page), (line, column)


def test_what_is_said_while_a_sheet_is_open_is_said_in_it(browser: Browser) -> None:
    watched = Told()
    with served(watched, Turned(watched)) as address, opened(browser, address.page) as page:
        spoken = page.locator(SPOKEN)
        card(page, "calm").locator(".open").click()
        watched.tell([query("late", [point(9)], met=True)])
        expect(spoken).to_have_text("Contract met again: late.")
        inert = "place => document.querySelector('dialog:modal') !== null && !place.closest('dialog:modal')"
        assert not spoken.evaluate(inert), "nobody hears what is behind a sheet"
        page.locator("#contract").fill("ERROR 9%")
        page.locator("#alter").click()
        expect(page.locator("#contract-done")).to_have_text(
            "Altered: ERROR 9%. It counts from the next batch on."
        )
        # the sheet of another query says nothing of it
        page.keyboard.press("Escape")
        card(page, "wide").locator(".open").click()
        expect(page.locator("#contract-done")).to_be_hidden()
        page.locator("#drop").click()
        page.locator("#drop-yes").click()
        expect(page.locator("#query")).to_be_hidden()
        expect(spoken).to_have_text("wide is dropped.")
        assert not spoken.evaluate(inert)


def test_why_an_alert_was_not_dropped_stays_to_be_read(browser: Browser) -> None:
    watched = Told(frame(1, a_few(), whole=True, alerts=[ALERT]))
    with served(watched) as address, opened(browser, address.url, excused={"/api/alerts/busy"}) as page:
        drop = page.get_by_role("button", name="Drop the alert busy")
        drop.click()
        drop.click()
        page.get_by_role("button", name="Not now").click()
        trouble = page.locator(".alert .trouble")
        expect(trouble).to_contain_text("not dropped: this needs the token of the run")
        watched.tell([query("calm", [point(9, 123)], last_text="123")])
        expect(card(page, "calm").locator(".value")).to_have_text("123")
        expect(trouble).to_contain_text("not dropped")
        expect(page.locator("#announce")).to_contain_text("Alert busy was not dropped")
