"""The page of a real run in a real Chromium: it loads, and queries are registered, altered and dropped by clicking."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from browser import card, cards_in_order, check_names, chromium, expect, opened, write_sql
from service_run import TOKEN, Running, running
from slackwater.errors import LanguageError
from slackwater.service import control
from slackwater.service.watched import Asked
from waiting import PATIENCE_S, wait_for

MAIL = """\
CREATE QUERY mail AS
SELECT SUM(size) AS bytes FROM p WHERE port = 443
GROUP BY window(ts, '1 second')
WITH ERROR 10%"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def run(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    state = tmp_path_factory.mktemp("browser") / "state"
    with running(spark, state) as found, pytest.MonkeyPatch.context() as patch:
        # the batch that rows are waited for may be slow on a busy machine
        patch.setattr(control, "TASTING_S", PATIENCE_S)
        found.turn(5)
        yield found


def write(page: Page, sql: str) -> None:
    """Open the form and write SQL into it, in place of the beginning that it suggests."""
    page.get_by_role("button", name="New query").click()
    expect(page.locator("#known-list")).to_contain_text("ts TIMESTAMP, port INT, size INT")
    write_sql(page, sql)


def previewed(page: Page, run: Running, click: Callable[[], None]) -> None:
    """Ask for a preview; rows come that it can be tried on."""
    # those of the last preview are no longer fresh
    run.clock.ahead += 100.0
    click()
    wait_for(lambda: "p" in run.session.engine.tasting._wanted)
    run.turn()
    expect(page.locator("#forecast h3")).to_be_visible()


def test_the_page_shows_the_run(browser: Browser, run: Running) -> None:
    with opened(browser, run.client.address.page) as page:
        expect(page).to_have_title("Slackwater")
        expect(page.locator("#phase")).to_have_text("running")
        assert "token" not in page.url, "it is in no bookmark and no history"
        expect(page.get_by_role("list", name="Streams").get_by_role("listitem")).to_contain_text("p")
        expect(page.locator("#count")).to_have_text("3")
        assert cards_in_order(page) == ["by_port", "total", "web"]
        frame = run.live.frame()
        for query in frame.queries:
            shown = card(page, query.name)
            assert query.last_text
            expect(shown.locator(".value")).to_have_text(query.last_text)
            expect(shown.locator(".contract")).to_have_text(query.contract)
            expect(shown.locator(".how")).to_have_text("exact")
            expect(shown.locator(".met")).to_have_attribute("aria-label", "contract met")
            expect(shown.locator(".chart")).to_have_attribute("data-points", str(len(query.points)))
            expect(shown.locator("canvas")).to_be_visible()
        expect(card(page, "by_port").locator(".of")).to_contain_text("one of 3 groups")
        expect(page.get_by_role("status", name="Level")).to_have_text("0.00")
        expect(page.locator("#plan svg")).to_have_attribute("aria-label", re.compile("^Plan of p: "))
        for role in ("banner", "main", "complementary"):
            expect(page.get_by_role(role)).to_have_count(1)
        check_names(page)
        # more answers come without anything being loaded anew
        before = run.session.status().queries[0].answers
        run.turn()
        newest = next(q for q in run.live.frame().queries if q.name == "total")
        assert newest.answers > before
        expect(card(page, "total").locator(".chart")).to_have_attribute(
            "data-points", str(len(newest.points))
        )


def test_a_query_is_registered_altered_and_dropped_by_clicking(browser: Browser, run: Running) -> None:
    with opened(browser, run.client.address.page, excused={"/api/queries/mail"}) as page:
        write(page, MAIL)
        register = page.get_by_role("button", name="Register")
        expect(register).to_be_disabled()
        previewed(page, run, page.get_by_role("button", name="Preview").click)
        forecast = page.locator("#forecast")
        expect(forecast.locator("h3")).to_have_text("Creates mail")
        row = forecast.get_by_role("row", name="mail")
        expect(row.get_by_role("cell")).to_have_text(["ERROR 10%", "100 %", "none", "✓"])
        expect(forecast.locator(".notes")).to_contain_text("Tried on 300 rows that have just come.")
        expect(forecast.get_by_role("img", name="The shared plan with the change")).to_be_visible()
        forecast.get_by_text("As text").click()
        expect(forecast.locator(".plan-text pre")).to_contain_text("query mail")
        check_names(page)
        assert "mail" not in run.session.catalog.queries, "nothing is changed by looking"
        register.click()
        expect(page.locator("#form")).to_be_hidden()
        expect(page.locator("#announce")).to_have_text("Registered: mail")
        run.turn(2)
        expect(card(page, "mail").locator(".contract")).to_have_text("ERROR 10%")
        told = next(q for q in run.live.frame().queries if q.name == "mail")
        assert told.answers > 0
        expect(card(page, "mail").locator(".value")).to_have_text(told.last_text)
        _altered(page, run)
        _dropped(page, run)


def _altered(page: Page, run: Running) -> None:
    card(page, "mail").locator(".open").click()
    contract = page.get_by_role("textbox", name="Contract")
    expect(contract).to_have_value("ERROR 10%")
    contract.fill("EROR 2%")
    page.get_by_role("button", name="Alter").click()
    wrong = page.locator("#contract-problem")
    expect(wrong).to_contain_text("EROR")
    assert str(run.session.catalog.contracts["mail"]) == "ERROR 10%"
    contract.fill("with ERROR 2%")
    page.keyboard.press("Enter")
    expect(page.locator("#contract-done")).to_have_text(
        "Altered: ERROR 2%. It counts from the next batch on."
    )
    expect(wrong).to_be_hidden()
    run.turn()
    expect(page.locator("#query-facts")).to_contain_text("ERROR 2%")
    page.get_by_text("Latest answers").click()
    expect(page.locator("#latest-list tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Close").click()
    expect(card(page, "mail").locator(".contract")).to_have_text("ERROR 2%")


def test_another_group_is_chosen_for_the_chart(browser: Browser, run: Running) -> None:
    with opened(browser, run.client.address.page) as page:
        card(page, "by_port").locator(".open").click()
        of, answer = page.locator("#query-of"), page.locator("#query-answer")
        shown = next(query for query in run.live.frame().queries if query.name == "by_port")
        expect(of).to_contain_text(f"port={shown.keys['port']}")
        page.get_by_text("Latest answers").click()
        rows = page.locator("#latest-list tbody tr")
        expect(rows).to_have_count(3)
        expect(rows.locator("[aria-pressed=true]")).to_have_text(f"port={shown.keys['port']}")
        other = next(a for a in run.live.latest("by_port", 10).answers if a.group != shown.keys)
        pick = rows.get_by_role("button", name=f"port={other.group['port']} in the chart")
        pick.click()
        expect(of).to_contain_text(f"port={other.group['port']}")
        expect(answer).to_have_text(f"{other.value:,}")
        asked = Asked(keys={"port": str(other.group["port"])})
        count = len(run.live.answers("by_port", asked))
        expect(page.locator("#query-chart")).to_have_attribute("data-points", str(count))
        expect(rows.locator("[aria-pressed=true]")).to_have_text(f"port={other.group['port']}")
        # it stays while answers come, and so does what has the focus
        run.turn()
        more = len(run.live.answers("by_port", asked))
        assert more > count
        expect(page.locator("#query-chart")).to_have_attribute("data-points", str(more))
        expect(pick).to_be_focused()
        # the same line again: what the card shows
        pick.click()
        expect(of).to_contain_text(f"port={shown.keys['port']}")
        expect(rows.locator("[aria-pressed=true]")).to_have_text(f"port={shown.keys['port']}")


def _dropped(page: Page, run: Running) -> None:
    card(page, "mail").locator(".open").click()
    drop = page.get_by_role("button", name="Drop this query")
    drop.click()
    expect(page.locator("#confirm-says")).to_contain_text("Drop mail?")
    page.get_by_role("button", name="Keep it").click()
    expect(drop).to_be_visible()
    assert "mail" in run.session.catalog.queries
    drop.click()
    page.get_by_role("button", name="Drop it").click()
    expect(page.locator("#query")).to_be_hidden()
    expect(page.locator("#announce")).to_have_text("mail is dropped.")
    run.turn()
    expect(card(page, "mail")).to_have_count(0)
    expect(page.locator("#count")).to_have_text("3")


def test_without_a_token_registering_asks_for_it_and_goes_on(browser: Browser, run: Running) -> None:
    with opened(browser, run.client.address.url, excused={"/api/queries"}) as page:
        write(page, MAIL.replace("mail", "post"))
        # by keys: the first time it is previewed, the second time registered
        page.keyboard.press("Control+Enter")
        expect(page.locator("#forecast")).to_contain_text(
            "Without the token of the run nothing was tried on rows"
        )
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("dialog", name="This service wants its token")).to_be_visible()
        token = page.get_by_role("textbox", name="Token")
        token.fill("not-this-one")
        page.keyboard.press("Enter")
        expect(page.locator("#sql-problem")).to_contain_text("this needs the token of the run")
        assert "post" not in run.session.catalog.queries
        page.get_by_role("button", name="Preview").click()
        expect(page.locator("#forecast h3")).to_be_visible()
        page.get_by_role("button", name="Register").click()
        token.fill(TOKEN)
        page.get_by_role("button", name="Use it").click()
        expect(page.locator("#announce")).to_have_text("Registered: post")
        run.turn()
        expect(card(page, "post")).to_be_visible()
    run.client.change("DELETE", "/api/queries/post").ok()


def test_what_the_form_does_not_do_is_told_before(browser: Browser, run: Running) -> None:
    with opened(browser, run.client.address.page) as page:
        write(page, "DROP QUERY total")
        page.get_by_role("button", name="Preview").click()
        expect(page.locator("#forecast")).to_contain_text("altered and dropped in their sheets")
        expect(page.get_by_role("button", name="Register")).to_be_disabled()
        # by keys it is previewed once more
        page.keyboard.press("Control+Enter")
        expect(page.locator("#forecast h3")).to_be_visible()
        assert "total" in run.session.catalog.queries


WRONG = [
    ("CREATE QUERY bad AS\nSELECT SUM(sise) AS bytes FROM p\nGROUP BY window(ts, '1 second')", "sise"),
    ("CREATE QUERY bad AS\n  SELECT COUNT(*) AS n FROM nowhere GROUP BY window(ts, '1 second')", "nowhere"),
    ("CREATE QUERY bad AS\nSELECT COUNT(*) AS n FROM p\nGROUP BY window(ts, '1 second')\nWITH EROR 5%", "EROR"),
    ("CREATE QUERY fine AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '1 second');\nCREATE QUERRY bad AS SELECT 1", "QUERRY"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "word"), WRONG, ids=[word for _, word in WRONG])
def test_a_bad_query_shows_its_error_at_its_place(
    browser: Browser, run: Running, sql: str, word: str
) -> None:
    with pytest.raises(LanguageError) as raised:
        run.session.sql(sql)
    line = sql[: sql.index(word)].count("\n") + 1
    with opened(browser, run.client.address.page, excused={"/api/preview"}) as page:
        write(page, sql)
        page.get_by_role("button", name="Preview").click()
        problem = page.locator("#sql-problem")
        expect(problem).to_be_visible()
        # as the command line says it, but for the two blanks before the line and the pointer
        said = "\n".join(problem.locator("p, pre").all_text_contents())
        assert said == str(raised.value).replace("\n  ", "\n")
        mark = page.locator("#under mark")
        expect(mark).to_have_text(word)
        expect(page.locator("#gutter .wrong")).to_have_text(str(line))
        expect(page.locator("#sql")).to_have_attribute("aria-invalid", "true")
        expect(page.locator("#sql")).to_be_focused()
        assert page.locator("#sql").evaluate("field => field.selectionStart") == sql.index(word)
        # the mark is on the screen where its line is
        found, number = mark.bounding_box(), page.locator("#gutter .wrong").bounding_box()
        assert found is not None
        assert number is not None
        middle = found["y"] + found["height"] / 2
        assert number["y"] < middle < number["y"] + number["height"]
        expect(page.get_by_role("button", name="Register")).to_be_disabled()
        # as soon as one writes on, nothing is marked
        page.keyboard.type("x")
        expect(mark).to_have_count(0)
        expect(problem).to_be_hidden()
