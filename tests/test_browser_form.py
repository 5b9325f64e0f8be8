"""The form for a new query in a real Chromium: what is written stays what it is, whatever comes late."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, Page, Route

from browser import SPOKEN, chromium, expect, opened, write_sql
from browser_still import Told, Waiting, served
from service_still import StillControl
from slackwater.errors import LanguageError, Position
from slackwater.service.models import Preview
from waiting import PATIENCE_S, wait_for


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def test_a_beginning_that_comes_late_is_put_into_no_field_that_was_written_in(browser: Browser) -> None:
    held: list[Route] = []
    with served(Told()) as address, opened(browser, address.page) as page:
        expect(page.locator("#count")).to_have_text("4")
        page.route("**/api/streams", lambda route: held.append(route))
        page.get_by_role("button", name="New query").click()
        sql = page.locator("#sql")
        expect(sql).to_be_focused()
        page.keyboard.type("x")
        page.keyboard.press("Backspace")
        assert len(held) == 1
        held[0].continue_()
        expect(page.locator("#known-list")).to_contain_text("stream")
        expect(sql).to_have_value("")
        # who opens it once more, and has nothing in it, is given a beginning
        page.keyboard.press("Escape")
        page.unroute("**/api/streams")
        page.get_by_role("button", name="New query").click()
        expect(sql).to_have_value(re.compile("^CREATE QUERY"))


@dataclass
class Slow(StillControl):
    """`Control` that finds fault with the second word, and takes its time."""

    asked: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def preview(self, sql: str, *, trusted: bool = True) -> Preview:
        self.asked.set()
        assert self.go_on.wait(PATIENCE_S)
        raise LanguageError("not this", text=sql, position=Position(1, 8, 7))


def test_an_error_in_what_is_there_no_more_is_told_and_marks_nothing(browser: Browser) -> None:
    watched = Told()
    control = Slow(watched)
    with served(watched, control) as address, opened(browser, address.page, excused={"/api/preview"}) as page:
        page.get_by_role("button", name="New query").click()
        write_sql(page, "CREATE wrong AS SELECT 1")
        page.keyboard.press("Control+Enter")
        wait_for(control.asked.is_set)
        # he writes on meanwhile
        page.locator("#sql").press("End")
        page.keyboard.type(" FROM p")
        control.go_on.set()
        expect(page.locator("#sql-problem")).to_contain_text("not this")
        expect(page.locator("#under mark")).to_have_count(0)
        caret = page.locator("#sql").evaluate("field => [field.selectionStart, field.value.length]")
        assert caret[0] == caret[1]
        page.keyboard.press("Control+Enter")
        expect(page.locator("#under mark")).to_have_text("wrong")


def test_a_mistake_of_the_page_is_told_in_words(browser: Browser) -> None:
    """`opened` raises where an error is caught by nobody."""
    answer = {"json": {"creates": ["a"]}}
    with served(Told()) as address, opened(browser, address.page) as page:
        page.route("**/api/preview", lambda route: route.fulfill(**answer))
        page.get_by_role("button", name="New query").click()
        write_sql(page, "CREATE QUERY a AS SELECT 1")
        page.keyboard.press("Control+Enter")
        expect(page.locator("#sql-problem")).to_be_visible()
        expect(page.locator("#forecast")).not_to_have_attribute("data-busy", "yes")
        expect(page.locator("#under mark")).to_have_count(0)
        expect(page.locator("#register")).to_be_disabled()


def test_a_line_that_is_indented_by_itself_can_be_undone(browser: Browser) -> None:
    with served(Told()) as address, opened(browser, address.page) as page:
        page.get_by_role("button", name="New query").click()
        write_sql(page, "CREATE QUERY a AS")
        sql = page.locator("#sql")
        page.keyboard.press("Enter")
        expect(sql).to_have_value("CREATE QUERY a AS\n  ")
        expect(page.locator("#gutter > div")).to_have_count(2)
        page.keyboard.press("Control+z")
        expect(sql).to_have_value("CREATE QUERY a AS")
        expect(page.locator("#gutter > div")).to_have_count(1)
        page.keyboard.press("Control+z")
        expect(sql).to_have_value(re.compile("^CREATE QUERY my_query AS"))


def _sent(page: Page, control: Waiting, sql: str) -> None:
    """Opens the form, and registers something that takes its time."""
    control.asked.clear()
    control.go_on.clear()
    page.get_by_role("button", name="New query").click()
    write_sql(page, sql)
    page.keyboard.press("Control+Enter")
    register = page.locator("#register")
    expect(register).to_be_enabled()
    register.click()
    wait_for(control.asked.is_set)
    expect(register).to_have_text("Registering…")
    expect(page.locator(f"#form > {SPOKEN}")).to_have_text(f"Registering {sql.split()[2]}…")


def test_what_is_written_while_another_query_is_registered_stays(browser: Browser) -> None:
    watched = Told()
    control = Waiting(watched)
    ask = "CREATE QUERY {} AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '1 second')"
    sql, register = (f"#{name}" for name in ("sql", "register"))
    excused = {"/api/queries"}
    with served(watched, control) as address, opened(browser, address.page, excused=excused) as page:
        _sent(page, control, ask.format("first"))
        page.keyboard.press("Escape")
        page.get_by_role("button", name="New query").click()
        page.locator(sql).fill(ask.format("second"))
        # nothing is sent beside it, which is said
        page.locator("#preview").click()
        expect(page.locator("#sql-problem")).to_have_text(
            "Registering first… Nothing else is sent until then."
        )
        control.go_on.set()
        expect(page.locator(f"#form > {SPOKEN}")).to_have_text("Registered: first")
        expect(page.locator(sql)).to_have_value(ask.format("second"))
        expect(page.locator(register)).to_be_disabled()
        expect(page.locator(register)).to_have_text("Register")
        # that it has to wait is true no more
        expect(page.locator("#sql-problem")).to_be_hidden()
        page.locator("#preview").click()
        expect(page.locator(register)).to_be_enabled()
        # why it was refused is told though the form is shut, and nothing is sent again that was not previewed
        control.broken = True
        control.go_on.clear()
        control.asked.clear()
        page.locator(register).click()
        wait_for(control.asked.is_set)
        page.keyboard.press("Escape")
        control.go_on.set()
        expect(page.locator(f"body > {SPOKEN}")).to_contain_text("second was not registered: ")
        page.get_by_role("button", name="New query").click()
        expect(page.locator("#sql-problem")).to_contain_text("not now")
        expect(page.locator(register)).to_be_disabled()


def test_after_a_failed_registration_another_preview_comes_first(browser: Browser) -> None:
    watched = Told()
    control = Waiting(watched, broken=True)
    ask = "CREATE QUERY first AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '1 second')"
    with served(watched, control) as address, opened(browser, address.page, excused={"/api/queries"}) as page:
        _sent(page, control, ask)
        control.go_on.set()
        expect(page.locator("#under mark")).to_have_text("QUERY")
        expect(page.locator("#register")).to_be_disabled()
        expect(page.locator("#sql")).to_be_focused()


def test_the_form_uses_the_room_that_it_has(browser: Browser) -> None:
    watched = Told()
    long = " AND ".join(f"size > {n}" for n in range(40))
    ask = f"CREATE QUERY first AS SELECT COUNT(*) AS n FROM p\nWHERE {long}\nGROUP BY window(ts, '1 second')"
    with served(watched, Waiting(watched)) as address, opened(browser, address.page) as page:
        page.get_by_role("button", name="New query").click()
        write_sql(page, ask)
        editor, holder = page.locator("#editor .page"), page.locator("#forecast .holder")
        # that a line goes on is to be seen
        expect(editor).to_have_attribute("data-right", "")
        page.locator("#sql").evaluate("sql => { sql.scrollLeft = sql.scrollWidth; }")
        expect(editor).not_to_have_attribute("data-right", "")
        page.keyboard.press("Control+Enter")
        image = holder.locator("img")
        expect(image).to_be_visible()
        boxes = "() => ['#editor', '#forecast .holder', '#form'].map((place) => document.querySelector(place).clientHeight)"
        small = page.evaluate(boxes)
        page.set_viewport_size({"width": 1440, "height": 600})
        smaller = page.evaluate(boxes)
        assert all(one > other for one, other in zip(small, smaller, strict=True)), (small, smaller)
        wide = "() => { const one = document.querySelector('#forecast .picture'); return one.scrollWidth - one.clientWidth; }"
        assert page.evaluate(wide) <= 0
        full = page.get_by_role("button", name="Full size")
        full.press("Enter")
        expect(full).to_have_attribute("aria-pressed", "true")
        assert page.evaluate(wide) > 0
        image.click(position={"x": 5, "y": 5})
        expect(full).to_have_attribute("aria-pressed", "false")
        assert page.evaluate(wide) <= 0
