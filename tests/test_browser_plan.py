"""The picture of the plan in a real Chromium: what its source leaves out, and costs that are known together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from browser import chromium, expect, opened, told_until
from browser_still import Told, served
from slackwater.runtime.insight import Insight, OperatorInsight, QueryInsight, StreamInsight
from test_browser_reach import FILTER, OTHER, STREAM, Measured


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def skipping(share: float, *operators: OperatorInsight) -> Insight:
    """Of a stream of which a part is read, by default without a shedder in it."""
    shown = operators or (
        STREAM,
        OperatorInsight("port = 80", "test", 0, 1.0, 0.25, 2e-6, None, ("late", "wide")),
    )
    queries = tuple(
        QueryInsight(n, "ERROR 5%", 0.5, 1.0, 1, share, 0.01) for n in ("calm", "late", "picked", "wide")
    )
    return Insight((StreamInsight("p", 3, 1e3, 5e2, shown, queries, (), 0.4, share, 2.0, 0.5, {}),), 1.5)


def width(page: Page, which: str) -> float:
    found: str = page.locator(f"#plan .flow.{which}").first.evaluate("path => path.style.strokeWidth")
    return float(found.removesuffix("px"))


def test_what_is_skipped_at_the_source_is_a_gate_before_all(browser: Browser) -> None:
    watched = Measured(known=skipping(1.0))
    with served(watched) as address, opened(browser, address.page) as page:
        picture, gates = page.locator("#plan svg"), page.locator("#plan .gate.shut")
        expect(picture).to_have_attribute("aria-label", "Plan of p: 2 operators, 4 queries; shedders: none")
        expect(gates).to_have_count(0)
        assert width(page, "kept") == width(page, "whole")
        bars = page.locator("#plan .bar.full")
        before = bars.first.evaluate("bar => bar.style.width")
        watched.known = skipping(0.12)
        told_until(page, watched.tell, lambda: gates.count() == 1)
        root = page.locator("#plan .operator.stream")
        expect(root.locator(".gate.shut")).to_be_visible()
        expect(root.locator(".facts")).to_have_text(re.compile(r"^reads 12 % · 500 rows a batch"))
        expect(picture).to_have_attribute(
            "aria-label", "Plan of p: 2 operators, 4 queries; reads 12 % of its rows; shedders: none"
        )
        # one pixel, and eight for the square root of what flows
        assert width(page, "whole") == 9
        assert width(page, "kept") == pytest.approx(1 + 8 * 0.12**0.5, abs=0.01)
        assert bars.first.evaluate("bar => bar.style.width") == before, "both cost less, by the same"
        expect(page.locator('#plan .leaf[data-name="late"] .rate')).to_have_text("12 %, ± 1 % expected")
        rows = page.get_by_role("table", name="The shared plan").locator("tbody tr")
        assert rows.nth(0).locator("td").nth(3).text_content() == "reads 12 %"
        assert rows.nth(1).locator("td").nth(3).text_content() == "none"
        # beside a shedder
        watched.known = skipping(0.5, STREAM, FILTER, OTHER)
        told_until(page, watched.tell, lambda: gates.count() == 2)
        expect(picture).to_have_attribute(
            "aria-label",
            "Plan of p: 3 operators, 4 queries; reads 50 % of its rows; shedders: 50 % before port = 80",
        )
        assert width(page, "kept") == pytest.approx(1 + 8 * 0.25**0.5, abs=0.01), "half of what is read"


def test_the_cost_of_what_is_known_of_all_filters_says_so(browser: Browser) -> None:
    def titles(page: Page, shared: dict[str, Any]) -> list[Any]:
        found: list[Any] = page.evaluate(
            """async (shared) => {
              const [{ Plan }, { costOf }] = await Promise.all(["plan", "plan_words"].map((name) => import(`/page/${name}.js`)));
              const of = (label, parent, more) =>
                ({ label, kind: parent < 0 ? "stream" : "test", parent, rows_in: 1, rows_out: 1, seconds: 2e-6, passes: null, queries: [], ...more });
              const plan = new Plan({ open: () => {} });
              plan.show([{ stream: "p", measured: 1, rate: 1, size: 1, queries: [], drops: [],
                operators: [of("p", -1, {}), of("port = 80", 0, shared), of("port = 53", 0, { seconds: null, ...shared })] }]);
              const titles = [...document.querySelectorAll("#plan .operator title")].map((each) => each.textContent);
              const cells = [...document.querySelectorAll("#plan-table tbody tr")].map((row) => row.children[3].textContent);
              return [titles, cells];
            }""",
            shared,
        )
        return found

    with served(Told()) as address, opened(browser, address.page) as page:
        expect(page.locator("#plan img")).to_be_visible()
        assert titles(page, {"shared": True}) == [
            ["stream: p", "filter: port = 80; a row costs 2 µs, mean of the filters", "filter: port = 53"],
            ["2 µs", "2 µs, mean of the filters", "not measured"],
        ]
        # from a service that does not say it
        for shared in ({}, {"shared": False}):
            assert titles(page, shared) == [
                ["stream: p", "filter: port = 80", "filter: port = 53"],
                ["2 µs", "2 µs", "not measured"],
            ]
