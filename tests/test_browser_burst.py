"""A burst as it is seen in a real Chromium: the tide rises above the capacity, bands widen, and close again."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from browser import card, chromium, expect, opened, told_until, write_sql
from browser_run import bursting, calm_burst_calm
from service_run import Running
from slackwater.service import control
from waiting import PATIENCE_S, wait_for

CALM, BURST, AFTER = 5, 7, 5
SAMPLED = ("total", "web")
SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
NEW = """\
CREATE QUERY large AS
SELECT SUM(size) AS bytes FROM p WHERE size > 700
GROUP BY window(ts, '1 second')
WITH ERROR 5%"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def words(page: Page, name: str) -> str:
    return card(page, name).locator(".chart").get_attribute("aria-label") or ""


def widest(page: Page, name: str) -> float:
    """The widest interval that a band chart shows; 0 where there is none."""
    found = re.search(r"widest interval ± ([\d,.]+)", words(page, name))
    return float(found[1].replace(",", "")) if found else 0.0


def load_and_capacity(page: Page) -> tuple[float, float]:
    """What the tide line says, in seconds."""
    said = page.locator("#tide-chart").get_attribute("aria-label") or ""
    found = re.match(r"Load ([\d.]+) (\w+), kept [\d.]+ \w+, capacity ([\d.]+) (\w+);", said)
    assert found is not None, said
    return float(found[1]) * SECONDS[found[2]], float(found[3]) * SECONDS[found[4]]


def picture(page: Page, name: str) -> None:
    """A picture of the page, where somebody wants one."""
    folder = os.environ.get("SLACKWATER_PICTURES")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{name}.png")


def newest(page: Page, run: Running) -> None:
    """Wait until the newest frame is shown."""
    for query in run.live.frame().queries:
        expect(card(page, query.name).locator(".chart")).to_have_attribute(
            "data-points", str(len(query.points))
        )
    expect(page.locator("#level-value")).to_have_text(f"{run.live.frame().level:.2f}")


def test_a_burst_widens_bands_and_its_end_closes_them(browser: Browser, spark: Any, tmp_path: Path) -> None:
    tables = calm_burst_calm(CALM, BURST, AFTER)
    with bursting(spark, tmp_path / "state", tables) as run, opened(browser, run.client.address.page) as page:
        run.turn(CALM)
        _calm(page, run)
        run.turn(BURST - 1)
        _burst(page, run)
        _preview(page, run)
        run.turn(AFTER)
        _calm_again(page, run)


def _calm(page: Page, run: Running) -> None:
    newest(page, run)
    expect(page.locator("#level-value")).to_have_text("0.00")
    expect(page.locator("#level-says")).to_contain_text("Slack water.")
    for name in (*SAMPLED, "picked", "checked"):
        expect(card(page, name).locator(".how")).to_have_text("exact")
        expect(card(page, name).locator(".interval")).to_have_text("")
        assert widest(page, name) == 0
        assert words(page, name).endswith(", exact")
    load, capacity = load_and_capacity(page)
    assert load < capacity
    assert (
        page.locator("#level-chart").get_attribute("aria-label") or ""
    ) == "Level 0.00; highest shown 0.00"
    picture(page, "calm")


def _burst(page: Page, run: Running) -> None:
    newest(page, run)
    assert run.live.frame().level > 0
    expect(page.locator("#level-says")).to_contain_text(re.compile("Shedding|Flood"))
    load, capacity = load_and_capacity(page)
    assert load > capacity
    for name in SAMPLED:
        expect(card(page, name).locator(".how")).to_have_text("sampled")
        interval = card(page, name).locator(".interval")
        expect(interval).to_have_text(re.compile(r"^(±|\[).*\(95%\)$"))
        assert interval.evaluate("text => text.scrollWidth <= text.clientWidth"), "it can be read to its end"
        assert widest(page, name) > 0
        assert re.search(r"last [\d,]+ \[[\d,]+, [\d,]+\], sampled$", words(page, name))
    # some of its windows are left out, and what must be exact is
    expect(card(page, "picked").locator(".how")).to_have_text("subset")
    assert widest(page, "picked") == 0
    expect(card(page, "checked").locator(".how")).to_have_text("exact")
    # counted: a locator that waits for the picture would wait without the frames that bring it
    shed = page.locator('#plan svg[aria-label*="% before"]')
    told_until(page, run.live.advance, lambda: shed.count() > 0)
    expect(page.locator("#plan .gate.shut").first).to_be_visible()
    picture(page, "burst")


def _preview(page: Page, run: Running) -> None:
    """One query more means more loss for all: the form says how much before it is registered."""
    page.get_by_role("button", name="New query").click()
    write_sql(page, NEW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control, "TASTING_S", PATIENCE_S)
        page.get_by_role("button", name="Preview").click()
        wait_for(lambda: "p" in run.session.engine.tasting._wanted)
        run.turn()
        forecast = page.locator("#forecast")
        expect(forecast.locator("h3")).to_have_text("Creates large")
    expect(forecast.get_by_role("row")).to_have_count(1 + 1 + 3)
    new = forecast.get_by_role("row", name="large").get_by_role("cell")
    expect(new.nth(1)).to_have_text(re.compile(r"^[\d.]+ %$"))
    expect(new.nth(2)).to_have_text(re.compile(r"^[\d.]+ %$"))
    for harmed in SAMPLED:
        error = forecast.get_by_role("row", name=harmed).get_by_role("cell").nth(2).inner_text()
        before, after = (float(part) for part in re.findall(r"[\d.]+(?= %)", error))
        assert before < after, error
    picture(page, "preview")
    page.keyboard.press("Escape")


def _calm_again(page: Page, run: Running) -> None:
    newest(page, run)
    expect(page.locator("#level-value")).to_have_text("0.00")
    expect(page.locator("#level-says")).to_contain_text("Slack water.")
    assert re.match(
        r"Level 0\.00; highest shown (?!0\.00)",
        page.locator("#level-chart").get_attribute("aria-label") or "",
    )
    load, capacity = load_and_capacity(page)
    assert load < capacity
    for name in (*SAMPLED, "picked", "checked"):
        expect(card(page, name).locator(".how")).to_have_text("exact")
        expect(card(page, name).locator(".interval")).to_have_text("")
        assert words(page, name).endswith(", exact")
    for name in SAMPLED:
        assert widest(page, name) > 0, "what was is still to be seen"
    assert re.search(r"\d gaps?, last [\d,]+, exact$", words(page, "picked"))
    assert "gap" not in words(page, "checked")
    picture(page, "after")
