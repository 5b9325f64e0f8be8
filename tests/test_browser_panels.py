"""The page in a real Chromium: the demo's sliders, agents, alerts, the token, and a recording."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from browser import card, cards_in_order, check_names, chromium, expect, focus, opened, told_until
from browser_still import ALERT, TOKEN, Told, Turned, a_few, served, some_agents
from frames import at, frame, point, query, recording, turn, write_frames
from slackwater.runtime.insight import Insight, OperatorInsight, QueryInsight, StreamInsight
from slackwater.service.frame_log import FRAMES
from slackwater.service.models import Frame, Knobs, KnobsWanted
from slackwater.service.recorded import Recorded
from slackwater.service.server import serving
from slackwater.service.statistics_log import StatisticsLog
from slackwater.service.statistics_out import statistics_of
from slackwater.terminal.demo_load import LEAST, MOST
from waiting import wait_for

KNOBS = Knobs(load=1, tolerance=1, story=True, chapter="Calm: every row is looked at.")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def test_sliders_of_the_demo_are_moved_by_keys(browser: Browser) -> None:
    watched = Told(frame(1, a_few(), whole=True, knobs=KNOBS))
    control = Turned(watched)
    with served(watched, control) as address, opened(browser, address.page) as page:
        expect(page.locator("#chapter")).to_have_text(KNOBS.chapter)
        load = page.get_by_role("slider", name="Load")
        expect(load).to_have_attribute("aria-valuetext", "1.0 times")
        expect(page.get_by_role("switch")).to_be_checked()
        check_names(page)
        # where a slider ends is where the demo does
        ends = load.evaluate("each => [10 ** each.min, 10 ** each.max]")
        assert ends == pytest.approx([LEAST, MOST])
        load.focus()
        page.keyboard.press("End")
        assert focus(page) == "load-knob"
        expect(page.locator("#load-knob-says")).to_have_text("×100")
        expect(page.get_by_role("switch")).not_to_be_checked()
        wait_for(lambda: bool(control.wanted))
        sent = control.wanted[0]
        assert sent.load == pytest.approx(MOST)
        assert (sent.story, sent.tolerance) == (False, None)
        page.get_by_role("slider", name="Tolerance").focus()
        page.keyboard.press("Home")
        expect(page.locator("#tolerance-knob-says")).to_have_text("×0.1")
        wait_for(lambda: len(control.wanted) > 1)
        assert control.wanted[1] == KnobsWanted(tolerance=0.1)
        page.get_by_role("switch").check()
        wait_for(lambda: len(control.wanted) > 2)
        assert control.wanted[2] == KnobsWanted(story=True)
        # where the run has them is shown again when no hand has been on them for a while
        watched.tell(knobs=Knobs(load=5, tolerance=2, story=True, chapter="Burst."))
        expect(page.locator("#chapter")).to_have_text("Burst.")
        shown = page.locator("#load-knob-says")
        told_until(page, watched.tell, lambda: shown.text_content() == "×5.0")
        shown = page.locator("#tolerance-knob-says")
        told_until(page, watched.tell, lambda: shown.text_content() == "×2.0")
        watched.tell(knobs=None)
        expect(page.locator("#knobs")).to_be_hidden()


def test_a_slider_is_dragged(browser: Browser) -> None:
    watched = Told(frame(1, a_few(), whole=True, knobs=KNOBS))
    control = Turned(watched)
    with served(watched, control) as address, opened(browser, address.page) as page:
        expect(page.locator("#knobs")).to_be_visible()
        box = page.locator("#load-knob").bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] * 1 / 3, middle)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.7, middle, steps=5)
        # a frame that comes meanwhile does not take it out of the hand
        watched.tell(message="", level=0.5)
        expect(page.locator("#level-value")).to_have_text("0.50")
        expect(page.locator("#load-knob-says")).not_to_have_text("×1.0")
        page.mouse.up()
        wait_for(lambda: any((wanted.load or 0) > 3 for wanted in control.wanted))


def test_agents_say_what_they_save_and_who_is_away(browser: Browser) -> None:
    watched = Told(frame(61, a_few(), whole=True, agents=[some_agents()]))
    with served(watched) as address, opened(browser, address.page) as page:
        panel = page.get_by_role("region", name="Agents")
        expect(panel.locator("#agents-note")).to_have_text("2 of 3 are there")
        expect(panel.locator(".messages")).to_have_text("10 messages a second instead of 100: 10 %")
        expect(panel.locator(".away li")).to_have_text(["west has been away for 1 min 1 s"])
        dots = panel.get_by_role("list", name="Agents of sensors").get_by_role("listitem")
        expect(dots).to_have_count(3)
        expect(dots.nth(2)).to_have_text("west: away, 4 keys, 7 updates")
        row = panel.get_by_role("row", name="sum_of_all.s")
        expect(row.get_by_role("cell")).to_have_text(["0.5", "1", "2", "36 of 40"])
        back = some_agents()
        there = [each.model_copy(update={"there": True, "since": None}) for each in back.agents]
        watched.tell(agents=[back.model_copy(update={"there": 3, "agents": there})])
        expect(panel.locator("#agents-note")).to_have_text("all 3 are there")
        expect(panel.locator(".away li")).to_have_count(0)
        # not all of many agents are told one by one
        gone = [back.agents[2].model_copy(update={"name": f"a{n:03}"}) for n in range(200)]
        watched.tell(agents=[back.model_copy(update={"there": 0, "known": 1500, "agents": gone})])
        expect(dots).to_have_count(121)
        expect(dots.last).to_have_text("and 1,380 more")
        expect(panel.get_by_role("list", name="Who of sensors").get_by_role("listitem")).to_have_count(5)
        expect(panel.locator(".away li").last).to_have_text("and 1,496 more")
        watched.tell(agents=[])
        expect(page.locator("#agents")).to_be_hidden()


def test_an_answer_without_an_interval_says_why(browser: Browser) -> None:
    open_ended = point(5, None, how="bounded").model_copy(update={"met": False})
    points = [point(s, 40, half=20, how="bounded") for s in range(1, 5)]
    known = {"how": "bounded", "contract": "PRECISION 40", "kind": "current", "stream": "sensors"}
    whole = query("calm", points, last_text="40 ± 20", **known)
    nothing = query("wide", [point(5, None, how="bounded")], last_text="–", **known)
    here = some_agents()
    there = [each.model_copy(update={"there": True, "since": None}) for each in here.agents]
    back = here.model_copy(update={"there": 3, "agents": there})
    watched = Told(frame(61, [whole, nothing], whole=True, agents=[back]))
    with served(watched) as address, opened(browser, address.page) as page:
        how, interval = (card(page, "calm").locator(name) for name in (".how", ".interval"))
        expect(how).to_have_text("bounded")
        expect(interval).to_have_text("± 20")
        unknown = here.widths[0].model_copy(update={"used": None})
        gone = query("calm", [open_ended], last_text="–", met=False, **known)
        watched.tell([gone], agents=[here.model_copy(update={"widths": [unknown]})])
        expect(how).to_have_text("interrupted")
        expect(card(page, "calm").locator(".answer")).to_have_text("– no interval: west is away")
        used = page.get_by_role("row", name="sum_of_all.s").locator(".used")
        expect(used).to_have_text("– of 40")
        # that there is no value is known of this one
        expect(card(page, "wide").locator(".how")).to_have_text("bounded")
        expect(card(page, "wide").locator(".interval")).to_have_text("")
        both = [each.model_copy(update={"there": False}) for each in here.agents]
        watched.tell(agents=[here.model_copy(update={"there": 0, "known": 9, "agents": both})])
        expect(interval).to_have_text("no interval: north, south and 7 more are away")
        card(page, "calm").locator(".open").click()
        expect(page.locator("#query-answer")).to_have_text("no interval: north, south and 7 more are away")
        watched.tell(agents=[back])
        expect(page.locator("#query-answer")).to_have_text("no interval: not all is known yet")
        expect(how).to_have_text("waiting")


def test_an_alert_is_raised_and_dropped_by_clicking(browser: Browser) -> None:
    watched = Told(frame(1, a_few(), whole=True, alerts=[ALERT]))
    with served(watched) as address, opened(browser, address.page) as page:
        panel = page.get_by_role("region", name="Alerts")
        expect(panel.locator("#alerts-note")).to_have_text("none is raised")
        expect(panel.locator(".condition")).to_have_text("calm: n > 1e9 CERTAINLY")
        raised = ALERT.model_copy(
            update={"raised": 1, "events": 1, "waiting": 1, "trouble": "it answered 500"}
        )
        watched.tell(alerts=[raised])
        expect(panel.locator("#alerts-note")).to_have_text("1 of 1 raised")
        expect(panel.locator(".state")).to_have_text("raised · 1 event")
        expect(panel.locator(".trouble")).to_have_text("1 waiting for the webhook: it answered 500")
        groups = [{"host": "a", "port": 80}, {"host": None, "port": 53}]
        watched.tell(alerts=[raised.model_copy(update={"raised": 5, "groups": groups})])
        expect(panel.locator(".state")).to_have_text(
            "raised for host=a port=80, host=NULL port=53 and 3 more · 1 event"
        )
        expect(page.locator("#announce")).to_have_text("Alert busy is raised.")
        drop = panel.get_by_role("button", name="Drop the alert busy")
        drop.click()
        expect(drop).to_have_text("Really drop?")
        expect(drop).to_have_accessible_name("Really drop the alert busy?")
        expect(page.locator("#announce")).to_have_text("Really drop the alert busy? Press once more.")
        assert "busy" in watched.declared.alerts, "the first click only asks"
        drop.click()
        expect(page.locator("#announce")).to_have_text("Alert busy is dropped.")
        assert "busy" not in watched.declared.alerts
        watched.tell(alerts=[])
        expect(page.locator("#alerts")).to_be_hidden()


def test_a_question_whether_an_alert_is_dropped_waits_for_who_reads_slowly(browser: Browser) -> None:
    watched = Told(frame(1, a_few(), whole=True, alerts=[ALERT]))
    with served(watched) as address, opened(browser, address.page) as page:
        drop = page.locator("#alerts-list button")
        expect(drop).to_have_text("Drop")
        page.clock.install()
        drop.click()
        page.clock.run_for(60_000)
        expect(drop).to_have_text("Really drop?")
        # who goes elsewhere is asked no more
        page.locator("#search").focus()
        expect(drop).to_have_text("Drop")
        assert "busy" in watched.declared.alerts


def test_a_question_belongs_to_its_alert_wherever_that_goes(browser: Browser) -> None:
    other = ALERT.model_copy(update={"name": "other"})
    watched = Told(frame(1, a_few(), whole=True, alerts=[ALERT]))
    with served(watched) as address, opened(browser, address.page) as page:
        page.get_by_role("button", name="Drop the alert busy").click()
        # another one takes its place
        watched.tell(alerts=[other, ALERT])
        buttons = page.locator("#alerts-list button")
        expect(buttons).to_have_text(["Drop", "Really drop?"])
        buttons.first.click()
        expect(buttons).to_have_text(["Really drop?", "Drop"])
        assert "busy" in watched.declared.alerts
        page.get_by_role("button", name="Drop the alert busy").click()
        page.get_by_role("button", name="Drop the alert busy").click()
        expect(page.locator("#announce")).to_have_text("Alert busy is dropped.")
        assert "busy" not in watched.declared.alerts


@pytest.mark.parametrize(
    ("keys", "asked"),
    [
        ({"host": None, "port": 80}, "&key.port=80&null=host"),
        ({"host": "", "port": 80}, "&key.host=&key.port=80&null="),
        ({}, ""),
    ],
)
def test_a_group_without_a_value_is_told_from_one_with_an_empty_text(
    browser: Browser, keys: dict[str, Any], asked: str
) -> None:
    watched = Told(frame(1, [query("calm", [point(1)], keys=keys, groups=2)], whole=True))
    with served(watched) as address, opened(browser, address.page) as page:
        path = page.evaluate(
            "keys => import('/page/fill.js').then((fill) => fill.answersPath('q', { keys, limit: 3 }))", keys
        )
        assert path == f"/api/queries/q/answers?limit=3{asked}"


@pytest.mark.parametrize(
    ("contract", "rate", "words"),
    [
        ("SUBSET GAP 4", 0.25, "75 % of windows"),
        ("SUBSET GAP 4", 1.0, "nothing"),
        ("ERROR 5%", 0.1, "90 % of rows"),
        ("SUBSET GAP 4", None, "–"),
    ],
)
def test_a_sheet_says_how_much_is_left_out(
    browser: Browser, contract: str, rate: float | None, words: str
) -> None:
    one = query("calm", [point(1)], contract=contract, rate=rate)
    watched = Told(frame(1, [one], whole=True))
    with served(watched) as address, opened(browser, address.page) as page:
        card(page, "calm").locator(".open").click()
        fact = page.locator("#query-facts > div").filter(has=page.get_by_text("left out", exact=True))
        expect(fact.locator("dd")).to_have_text(words)


def test_without_a_token_a_change_asks_for_it_once(browser: Browser) -> None:
    watched = Told(frame(1, a_few(), whole=True, alerts=[ALERT]))
    with served(watched) as address, opened(browser, address.url, excused={"/api/alerts/busy"}) as page:
        drop = page.get_by_role("button", name="Drop the alert busy")
        drop.click()
        drop.click()
        expect(page.locator("#token")).to_be_visible()
        check_names(page)
        page.get_by_role("button", name="Not now").click()
        expect(page.locator("#token")).to_be_hidden()
        expect(page.locator(".alert .trouble")).to_contain_text("this needs the token of the run")
        drop.click()
        drop.click()
        page.get_by_role("textbox", name="Token").fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page.locator("#announce")).to_have_text("Alert busy is dropped.")


@pytest.mark.parametrize("width", [1280, 390])
def test_an_alert_of_many_groups_stays_within_its_panel(browser: Browser, width: int) -> None:
    groups = [{"shop": f"a shop with a long name, number {n}"} for n in range(3)]
    raised = ALERT.model_copy(update={"raised": 6, "groups": groups, "events": 6})
    watched = Told(frame(1, a_few(), whole=True, alerts=[raised]))
    size = {"width": width, "height": 900}
    with served(watched) as address, opened(browser, address.page, viewport=size) as page:
        expect(page.locator(".alert .state")).to_contain_text("number 2")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        panel, *inside = (
            page.locator(place).bounding_box()
            for place in ("#alerts", ".alert .alert-name", ".alert .state", ".alert button")
        )
        assert panel is not None
        for box in inside:
            assert box is not None
            assert panel["x"] <= box["x"]
            assert box["x"] + box["width"] <= panel["x"] + panel["width"]
        name, state, _ = inside
        assert name is not None
        assert state is not None
        assert state["y"] >= name["y"] + name["height"]


def recorded_run() -> Iterator[Frame]:
    """Calm, a burst in which one query is sampled, and calm; one query goes, another comes."""
    for number in range(1, 13):
        burst = 4 <= number < 9
        web = query(
            "web",
            [point(number, 100, half=9 if burst else 0, how="sampled" if burst else "exact")],
            how="sampled" if burst else "exact",
            last_text="100 ± 9 (95%)" if burst else "100",
        )
        ports = [query("ports", [point(number)])] if number == 1 else []
        gone = ["ports"] if number == 10 else []
        level = 0.75 if burst else 0.0
        load = 4.0 if burst else 0.5
        yield frame(
            number, [web, *ports], whole=number == 1, level=level, load=load, capacity=1.0, dropped=gone
        )


def test_a_recording_is_moved_through_and_cannot_be_changed(browser: Browser, tmp_path: Path) -> None:
    folder = recording(tmp_path / "r", turns=[turn(1, 1.0)])
    write_frames(folder / FRAMES, recorded_run())
    recorded = Recorded(folder)
    try:
        with serving(recorded, port=0, token=TOKEN) as address, opened(browser, address.page) as page:
            _moved_through(page)
    finally:
        recorded.close()


def test_the_plan_of_a_recording_is_as_it_was(browser: Browser, tmp_path: Path) -> None:
    folder = recording(tmp_path / "r", turns=[turn(1, 1.0)])
    write_frames(folder / FRAMES, recorded_run())
    log = StatisticsLog(folder)
    for second, rate in ((3, 1.0), (5, 0.1), (9, 1.0)):
        query = QueryInsight("web", "ERROR 5%", 0.5, 1.0, 1, rate, 0.01)
        operators = (
            OperatorInsight("p", "stream", -1, 1.0, 1.0, 1e-6, None, ()),
            OperatorInsight("port = 80", "test", 0, 1.0, 0.5, 2e-6, rate if rate < 1 else None, ("web",)),
        )
        known = StreamInsight("p", second, 1e3, 5e2, operators, (query,), (), 0.4, 1.0, 2.0, 0.5, {})
        log.append(at(second), statistics_of(Insight((known,), 1.5)))
    recorded = Recorded(folder)
    try:
        with serving(recorded, port=0, token=TOKEN) as address, opened(browser, address.page) as page:
            gates, picture = page.locator("#plan .gate.shut"), page.locator("#plan svg")
            expect(picture).to_be_visible()
            expect(page.locator("#plan-note")).to_have_text("measured over 9 batches")
            expect(gates).to_have_count(0)
            page.get_by_role("slider", name="Time").focus()
            page.keyboard.press("Home")
            # nothing had been measured then
            expect(page.locator("#plan-note")).to_have_text("as declared at the end; nothing was measured")
            for _ in range(6):
                page.keyboard.press("ArrowRight")
            expect(page.locator("#time-says")).to_have_text("2026-03-01 12:00:07 UTC · 6 s of 11 s")
            expect(page.locator("#plan-note")).to_have_text("measured over 5 batches")
            expect(gates).to_have_count(1)
            expect(page.locator("#plan .gate-says")).to_contain_text(["", "lets pass 10 %"])
            page.keyboard.press("End")
            expect(gates).to_have_count(0)
    finally:
        recorded.close()


def _moved_through(page: Page) -> None:
    says = page.locator("#time-says")
    expect(page.locator("#phase")).to_have_text("recorded")
    expect(says).to_have_text("2026-03-01 12:00:12 UTC · 11 s of 11 s")
    expect(page.locator("#level-value")).to_have_text("0.00")
    assert cards_in_order(page) == ["web"]
    for changes in ("#new-query", "#knobs"):
        expect(page.locator(changes)).to_be_hidden()
    check_names(page)
    # by keys on the slider
    page.get_by_role("slider", name="Time").focus()
    page.keyboard.press("Home")
    expect(says).to_have_text("2026-03-01 12:00:01 UTC · 0 ms of 11 s")
    expect(page.locator("#count")).to_have_text("2")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect(says).to_have_text("2026-03-01 12:00:05 UTC · 4 s of 11 s")
    expect(page.locator("#level-value")).to_have_text("0.75")
    chart = card(page, "web").locator(".chart")
    expect(card(page, "web").locator(".interval")).to_have_text("± 9 (95%)")
    expect(chart).to_have_attribute("data-points", "5")
    # Space plays from there too
    page.keyboard.press(" ")
    expect(page.locator("#play")).to_have_text("Pause")
    page.keyboard.press(" ")
    expect(page.locator("#play")).to_have_text("Play")
    # by a click on the tide line, whose left end is where it begins
    line = page.locator("#tide-chart .u-over")
    box = line.bounding_box()
    assert box is not None
    line.click(position={"x": box["width"] * 7.2 / 11, "y": box["height"] / 2})
    expect(says).to_have_text("2026-03-01 12:00:08 UTC · 7 s of 11 s")
    expect(chart).to_have_attribute("data-points", "8")
    # a sheet shows the same time, and nothing in it changes anything
    card(page, "web").locator(".open").click()
    expect(page.locator("#query-answer")).to_have_text("100 ± 9 (95%)")
    expect(page.locator("#query-sql")).to_contain_text("CREATE QUERY web")
    for changes in ("#contract-form", "#drop"):
        expect(page.locator(changes)).to_be_hidden()
    page.keyboard.press("Escape")
    # played to its end
    page.get_by_label("speed").select_option("×16")
    page.get_by_role("button", name="Play").click()
    expect(says).to_have_text("2026-03-01 12:00:12 UTC · 11 s of 11 s")
    expect(page.locator("#play")).to_have_text("Play")
    assert cards_in_order(page) == ["web"]


def test_a_run_that_has_failed_says_why(browser: Browser) -> None:
    watched = Told()
    with served(watched) as address, opened(browser, address.page) as page:
        expect(page.locator("#phase")).to_have_text("running")
        watched.tell(phase="failed", message="the disk is full")
        expect(page.get_by_role("alert").filter(has_text="The run has failed")).to_have_text(
            "The run has failed: the disk is full"
        )
