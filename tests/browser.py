"""A real Chromium for tests of the page, that lets nothing out and keeps every complaint."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Playwright,
    Request,
    sync_playwright,
)
from playwright.sync_api import expect as expect

PATIENCE_MS = 30_000
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
REFUSED = "Failed to load resource: the server responded with a status of 4"
"""What Chromium itself writes to the console of an answer that refuses a request."""
NAMED = "button|checkbox|combobox|img|link|searchbox|slider|spinbutton|switch|table|textbox"
"""Roles that say nothing without a name."""
SPOKEN = ".announce:not(:empty)"
"""What the page says aloud: one place of several, the one that is heard."""

expect.set_options(timeout=PATIENCE_MS)


def _executable(playwright: Playwright) -> str:
    """Where Chromium is; without one tests are skipped, and fail where they must run."""
    wanted = os.environ.get("SLACKWATER_BROWSER")
    own = playwright.chromium.executable_path
    on_path = next((found for name in NAMES if (found := shutil.which(name))), None)
    found = wanted or on_path or (own if Path(own).exists() else None)
    if found is not None:
        return found
    words = f"there is no Chromium: none of {', '.join(NAMES)} is on the PATH; name one in SLACKWATER_BROWSER"
    if os.environ.get("CI") == "true":
        pytest.fail(words)
    pytest.skip(words)


@contextmanager
def chromium() -> Iterator[Browser]:
    """One browser, for the tests of a module: while it is open, its loop is the one of this thread."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_executable(playwright), args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watch:
    """What went wrong in a page: lines in its console, errors, requests that failed or were for elsewhere."""

    origin: str
    excused: set[str] = field(default_factory=set)
    """Paths of which a request is to be refused in this test; each must be."""
    trouble: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    def attach(self, context: BrowserContext) -> None:
        """Listen to a context, and let none of its requests go elsewhere."""
        context.on("console", self._said)
        context.on("weberror", lambda error: self.trouble.append(f"error: {error.error}"))
        context.on("requestfailed", self._failed)
        # those of our own need no word from this thread, which may have other things to do
        context.route(re.compile(rf"^(?!{re.escape(self.origin)}/)"), self._stop)

    def _said(self, message: ConsoleMessage) -> None:
        path = message.location["url"].removeprefix(self.origin).partition("?")[0]
        if message.text.startswith(REFUSED) and path in self.excused:
            self.refused.add(path)
        else:
            self.trouble.append(f"{message.type}: {message.text} ({message.location['url']})")

    def _failed(self, request: Request) -> None:
        # an answer that is read piece by piece counts as broken off for Chromium, though it be read to its end
        streamed = (
            request.url.startswith(f"{self.origin}/api/events") and request.failure == "net::ERR_ABORTED"
        )
        if not streamed:
            self.trouble.append(f"failed: {_text(request)}")

    def _stop(self, route: Any) -> None:
        self.trouble.append(f"left the machine: {_text(route.request)}")
        route.abort()

    def check(self) -> None:
        """Raise where anything was wrong."""
        assert not self.trouble, self.trouble
        assert self.refused == self.excused, "a request was to be refused"


def _text(request: Request) -> str:
    return f"{request.method} {request.url} {request.failure or ''}"


@contextmanager
def opened(
    browser: Browser,
    address: str,
    *,
    excused: set[str] | None = None,
    silent_after: float = 1e6,
    **more: Any,
) -> Iterator[Page]:
    """The page at an address, in a context of its own; what went wrong in it is raised at the end.

    ``silent_after``: seconds without a frame that are news; where a test sends frames, there are none between.
    """
    origin = re.match(r"https?://[^/]+", address)
    assert origin is not None, address
    watch = Watch(origin[0], excused or set())
    context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **more})
    try:
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(f"window.silentAfter = {silent_after}")
        watch.attach(context)
        page = context.new_page()
        page.goto(address)
        yield page
        # whatever the page has said so far has come by now
        page.evaluate("0")
        watch.check()
    finally:
        context.close()


def told_until(page: Page, tell: Callable[[], object], condition: Callable[[], bool]) -> None:
    """Let frames come until a page shows something that it does not look for with each of them."""
    for _ in range(PATIENCE_MS // 200):
        if condition():
            return
        tell()
        page.wait_for_timeout(200)
    raise TimeoutError("the page does not show it")


def card(page: Page, name: str) -> Locator:
    """The card of a query."""
    return page.locator(f'#cards > li[data-name="{name}"]')


def cards_in_order(page: Page) -> list[str]:
    """Names of the cards that are to be seen, from the first to the last."""
    found: list[str] = page.locator("#cards > li").evaluate_all(
        "all => all.filter((each) => !each.hidden).map((each) => each.dataset.name)"
    )
    return found


def write_sql(page: Page, sql: str) -> None:
    """Write SQL into the form that is open, in place of the beginning that it suggests."""
    field = page.locator("#sql")
    # it comes when the streams are known: a field that is filled before would have both
    expect(field).to_have_value(re.compile("^CREATE QUERY my_query AS"))
    field.fill(sql)


def check_names(page: Page) -> None:
    """Every button, field and picture has a name, and no level of headings is left out."""
    told = page.locator("body").aria_snapshot()
    without = [line for line in told.splitlines() if re.match(rf'\s*- (?:{NAMED})(?! ")\b', line)]
    assert not without, without
    levels = [int(level) for level in re.findall(r"heading .*\[level=(\d)\]", told)]
    assert levels, told
    assert all(after <= before + 1 for before, after in zip([0, *levels], levels, strict=False)), levels


def focus(page: Page) -> str:
    """What has the focus, as a reader sees it: its id or text, and `unseen` where nothing shows it."""
    found: str = page.evaluate(
        """() => {
          const one = document.activeElement;
          const shown = (each) => each && getComputedStyle(each).outlineStyle !== "none"
            && parseFloat(getComputedStyle(each).outlineWidth) > 0;
          const seen = one.matches(":focus-visible") && [one, one.closest(".card"), one.closest(".editor")].some(shown);
          return (one.id || one.textContent.trim() || one.tagName) + (seen ? "" : " unseen");
        }"""
    )
    return found
