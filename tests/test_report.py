"""Reports: the numbers in them, that nothing in a recording can break out, their size, and how they look."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from browser import chromium
from frames import answer, at, frame, query, recording, suspended, turn, write_frames
from slackwater.cli import app
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.runtime.insight import Insight
from slackwater.runtime.recording import version_file
from slackwater.runtime.status import Status
from slackwater.service import report as report_module
from slackwater.service.frame_log import FRAMES
from slackwater.service.framing import Framer, Moving
from slackwater.service.models import AgentFrame, AgentsFrame, AlertFrame, WidthFrame
from slackwater.service.recorded import Recorded
from slackwater.service.remade import batches_of
from slackwater.service.report import report, script_json
from slackwater.service.report_data import Drawn, QueryNumbers, Thinned, numbers_of

runner = CliRunner()
EVIL = "</script><img src=x onerror=alert(1)>\"'&\x1b[2J"
SQL = """CREATE STREAM p (ts TIMESTAMP, size INT, host STRING) USING scripted OPTIONS (password 'hush')
  TIMESTAMP BY ts;
CREATE QUERY web AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '1 second') WITH ERROR 5%;
CREATE QUERY sub AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '1 second') WITH SUBSET GAP 9;
CREATE QUERY hosts AS SELECT host, COUNT(*) AS n FROM p GROUP BY host, window(ts, '1 second') WITH EXACT;
CREATE QUERY silent AS SELECT COUNT(*) AS n FROM p WHERE size > 9 GROUP BY window(ts, '1 second') WITH EXACT;
CREATE ALERT much ON web WHEN n > 5 TO 'https://ann:hush@host/hook?key=hush';
"""
AUDIT = {
    "passed": False,
    "problems": ["web.n: 80.0% of 30 intervals hold the truth " + EVIL],
    "columns": [
        {
            "query": "web",
            "column": "n",
            "contract": "ERROR 5%",
            "answers": 30,
            "true_answers": 31,
            "coverage": {"share": 0.8, "claimed": 0.95},
            "relative_error": {"median": 0.01, "max": None},
            "differing": 0,
            "missing": 1,
        },
        {"query": "sub", "column": "n", "contract": "SUBSET GAP 9", "coverage": None, "relative_error": None},
    ],
}


class Page(HTMLParser):
    """What a browser would see of a page: its elements, its text, and the data of its plots."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self._inside = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data

    @property
    def data(self) -> Any:
        return json.loads(self.scripts[0])

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", self.text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Half a minute: one query is sampled and suspended, one has gaps, one has groups, one has no answer."""
    answers = [answer("web", s, 100 + s, half=float(s) if 10 <= s < 20 else 0.0) for s in range(1, 26)]
    answers += [suspended("web", s) for s in range(26, 29)]
    answers += [answer("sub", s, s, how="subset") for s in range(1, 29) if s not in (5, 6, 7, 15)]
    answers += [answer("hosts", s, s, keys=(("host", EVIL),)) for s in range(1, 29)]
    answers += [answer("hosts", s, 1, keys=(("host", "b"),)) for s in range(1, 29)]
    answers.sort(key=lambda a: a.emitted_at)
    turns = [turn(n, n) for n in range(1, 31)]
    made = recording(tmp_path / "rec <b>", turns=turns, answers=answers, sql=SQL)
    names = [
        query("web"),
        query("sub"),
        query("hosts", keys={"host": EVIL}, groups=2),
        query("silent", column=None),
    ]
    alert = AlertFrame(
        name="much",
        query="web",
        condition="n > 5 " + EVIL,
        url="https://host/…",
        raised=1,
        events=7,
        waiting=2,
        trouble="503",
    )
    widths = [WidthFrame(query="web", column="n", smallest=1, median=2, largest=3, used=4, allowed=5)]
    agents = AgentsFrame(
        stream="p",
        there=1,
        known=2,
        keys=40,
        updates_per_second=10.0,
        grants_per_second=1.0,
        offered_per_second=100.0,
        late=0,
        agents=[agent("a", True), agent(EVIL, False)],
        widths=widths,
    )
    run = [frame(n, names, whole=True, level=n / 10, alerts=[alert], agents=[agents]) for n in range(1, 31)]
    write_frames(made / FRAMES, run)
    return made


def agent(name: str, there: bool) -> AgentFrame:
    since = None if there else at(3)
    return AgentFrame(name=name, there=there, keys=20, updates=3, offered_per_second=None, since=since)


@pytest.fixture
def page(folder: Path) -> Iterator[Page]:
    recorded = Recorded(folder)
    yield Page(report(recorded, folder.name, made_at=at(0)))
    recorded.close()


def test_the_numbers_of_queries(page: Page) -> None:
    words = page.words
    assert "4 queries gave 108 answers. 1 contract was not always met: web." in words
    assert "89.29 % met" in words
    assert "4, 3 in a row" in words, "windows that are missing between answers of a subset"
    assert "3 suspended" in words
    assert "15.97 %" in words, "the largest error: 19 of 119, half of an interval over its value"
    assert "no answer" in words
    assert "the level was 3.00 at most, which is more than contracts allow" in words
    assert "2026-03-01 12:00:01 to 2026-03-01 12:00:30 UTC, 29 s" in words
    # the worst comes first
    cards = [attributes.get("id") for tag, attributes in page.tags if attributes.get("class") == "chart"]
    assert cards == ["q0", "q1", "q2"]
    assert words.index("web89.29") < words.index("sub✓")


def test_what_is_drawn(page: Page) -> None:
    data = page.data
    assert len(data["tide"]["at"]) == 30
    assert data["tide"]["load"][0] == 1.0
    web, *others = data["queries"]
    hows = [data["hows"][how] for how in web["how"]]
    assert (hows.count("exact"), hows.count("sampled"), hows.count("suspended")) == (15, 10, 3)
    assert (web["value"][11], web["low"][11], web["high"][11]) == (112.0, 100.0, 124.0)
    assert not any(web["gap"])
    [sub] = [q for q in others if any(q["gap"])]
    assert [sub["at"][i] - sub["at"][i - 1] for i, gap in enumerate(sub["gap"]) if gap] == [4.0, 2.0]
    [hosts] = [q for q in others if q is not sub]
    assert hosts["value"] == [float(s) for s in range(1, 29)], "one group is drawn"


def test_agents_alerts_and_the_run(page: Page) -> None:
    assert (
        "1 of 2 agents there, 40 keys, 11 messages/s; 89 % of what sending everything would send"
        in page.words
    )
    assert "away at the end" in page.words
    assert "web.n" in page.words
    assert "raised at the end" in page.words
    assert "No audit has been run." in page.words
    assert "CREATE QUERY sub AS" in page.words
    assert "salt1" in page.words


def test_an_audit_is_shown(folder: Path) -> None:
    (folder / "audit.json").write_text(json.dumps(AUDIT))
    recorded = Recorded(folder)
    page = Page(report(recorded, "x"))
    recorded.close()
    assert "Promises were broken." in page.words
    assert "80.0% of 30 intervals" in page.words
    assert "80 %95 %1 %–01" in page.words.replace(" 0", "0")


def test_nothing_breaks_out_and_nothing_is_asked_for(folder: Path) -> None:
    (folder / "audit.json").write_text(json.dumps(AUDIT))
    recorded = Recorded(folder)
    html = report(recorded, "rec " + EVIL)
    recorded.close()
    page = Page(html)
    assert {tag for tag, _ in page.tags} & {"img", "link", "iframe", "object", "base", "form"} == set()
    assert [tag for tag, _ in page.tags].count("script") == 3
    for _, attributes in page.tags:
        assert not {"src", "href", "onerror", "onclick", "action"} & attributes.keys()
    assert "<img" not in html
    assert "\x1b" not in html
    # fonts are in the file, and a browser is told to load nothing else
    assert set(re.findall(r"url\(\"([a-z]+):", html)) == {"data"}
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and "http-equiv" in a)
    assert policy is not None
    assert "default-src 'none'" in policy


def test_windows_without_rows_are_no_gaps_of_a_query_that_answers_all(tmp_path: Path) -> None:
    answers = [answer("web", s, 1) for s in range(1, 9) if s not in (4, 5, 6)]
    recorded = Recorded(recording(tmp_path / "rec", turns=[turn(1, 1)], answers=answers, sql=SQL))
    page = Page(report(recorded, "some"))
    recorded.close()
    assert "3 without rows" in page.words
    assert "3 in a row" not in page.words


def test_secrets_are_left_out(page: Page) -> None:
    assert "hush" not in page.text
    assert "password '…'" in page.text
    assert "TO 'https://host/…'" in page.text
    assert "hook" not in page.text


def test_a_report_of_many_queries_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_module, "DRAWN", 3)
    many = 8
    sql = "CREATE STREAM p (ts TIMESTAMP, size INT) USING scripted TIMESTAMP BY ts;\n" + "".join(
        f"CREATE QUERY q{n} AS SELECT COUNT(*) AS n FROM p WHERE size > {n} GROUP BY window(ts, '1 second') "
        "WITH ERROR 5%;\n"
        for n in range(many)
    )
    answers = [answer(f"q{n}", s, 100, half=float(n)) for s in range(1, 4) for n in range(many)]
    recorded = Recorded(recording(tmp_path / "rec", turns=[turn(1, 1)], answers=answers, sql=sql))
    page = Page(report(recorded, "many"))
    recorded.close()
    assert len(page.data["queries"]) == 3
    assert "3 of 8 are drawn" in page.words
    assert page.words.index("q7") < page.words.index("q6"), "the largest error first"
    assert all(f"q{n}" in page.words for n in range(many))


def test_of_many_queries_fewer_points_are_kept_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slackwater.service.report_data.ALL_POINTS", 40)
    monkeypatch.setattr("slackwater.service.report_data.FEWEST", 5)
    sql = "CREATE STREAM p (ts TIMESTAMP, size INT) USING scripted TIMESTAMP BY ts;\n" + "".join(
        f"CREATE QUERY q{n} AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '1 second');\n"
        for n in range(4)
    )
    answers = [answer(f"q{n}", s, 100) for s in range(1, 51) for n in range(4)]
    recorded = Recorded(recording(tmp_path / "rec", turns=[turn(1, 1)], answers=answers, sql=sql))
    page = Page(report(recorded, "many"))
    recorded.close()
    assert [5 <= len(plot["at"]) <= 10 for plot in page.data["queries"]] == [True] * 4


@pytest.mark.parametrize("slope", [math.nan, math.inf, -math.inf])
def test_an_answer_that_moves_nobody_knows_how_is_drawn_as_standing(tmp_path: Path, slope: float) -> None:
    given = [answer("web", second, second, slope=slope) for second in (1, 2)]
    recorded = Recorded(recording(tmp_path / "rec", turns=[turn(1, 3)], answers=given))
    page = Page(report(recorded, "slopes"))
    recorded.close()
    [plot] = [plot for plot in page.data["queries"] if plot["value"] == [1, 2]]
    assert plot["slope"] == [0, 0]


def test_a_name_that_was_given_again_is_told_of_its_last_query_alone(tmp_path: Path) -> None:
    given = [answer("web", s, s, met=False) for s in (1, 2)] + [answer("web", s, 9) for s in (5, 6)]
    turns = [turn(1, 3, answers=2), turn(2, 6, version=2, answers=2)]
    folder = recording(tmp_path / "rec", turns=turns, answers=given, sql=SQL)
    again = "CREATE QUERY web AS SELECT MAX(size) AS n FROM p GROUP BY window(ts, '1 second');"
    version_file(folder, 2).write_text(SQL.splitlines()[0] + SQL.splitlines()[1] + again)
    recorded = Recorded(folder)
    page = Page(report(recorded, "again"))
    recorded.close()
    assert [plot["value"] for plot in page.data["queries"]] == [[9, 9]]
    assert "50%" not in page.words


def test_of_rows_the_last_one_is_shown(tmp_path: Path) -> None:
    sql = SQL + "CREATE QUERY big AS SELECT host, size FROM p WHERE size > 9 WITH EXACT;\n"
    rows = [
        answer("big", s, None, column="*", keys=(("host", f"h{s}"), ("size", s)), low=None, high=None)
        for s in range(1, 4)
    ]
    folder = recording(tmp_path / "rec", turns=[turn(1, 1), turn(2, 4)], answers=rows, sql=sql)
    recorded = Recorded(folder)
    page = Page(report(recorded, "rows"))
    recorded.close()
    assert "host=h3 size=3the last row" in page.words
    assert "nothing to draw" in page.words


def test_a_report_without_frames_and_without_answers(tmp_path: Path) -> None:
    recorded = Recorded(recording(tmp_path / "rec", turns=[turn(1, 1, level=0.0)], sql=SQL))
    page = Page(report(recorded, "empty"))
    recorded.close()
    assert "4 queries gave no answer. Nothing had to be shed." in page.words
    assert "recorded without frames" in page.words
    assert page.data["queries"] == []


def drawn(second: int, width: float = 0.0, *, gap: bool = False, how: str = "exact") -> Drawn:
    return Drawn(float(second), 10.0, 10.0 - width, 10.0 + width, how, True, 1.0, gap)


def test_of_many_points_the_worst_stay() -> None:
    series = Thinned(most=100)
    for second in range(100_000):
        width = 5.0 if second == 70_003 else 0.0
        how = "suspended" if second == 33_333 else "exact"
        series.add(drawn(second, width, gap=second == 50_001, how=how))
    points = series.ended()
    assert 50 <= len(points) <= 100
    times = [p.at for p in points]
    assert times == sorted(times)
    assert {33_333.0, 70_003.0} <= set(times)
    assert sum(p.after_gap for p in points) == 1
    assert 100_000 / series.together == pytest.approx(len(points), rel=0.5)


def test_few_points_stay_as_they_are() -> None:
    series = Thinned(most=100)
    for second in (3, 1, 2, 2):
        series.add(drawn(second, float(second)))
    assert [p.at for p in series.ended()] == [1, 2, 3]
    assert series.together == 1


def test_json_in_a_script_cannot_end_it() -> None:
    made = script_json({"a": "</ScRiPt><!--&"})
    assert "<" not in made
    assert json.loads(made) == {"a": "</ScRiPt><!--&"}


def test_the_command_writes_one_file(folder: Path, tmp_path: Path) -> None:
    told = runner.invoke(app, ["report", str(folder)])
    assert told.exit_code == 0, told.output
    assert "opens in any browser" in told.output
    beside = folder / "report.html"
    assert beside.read_text().startswith("<!doctype html>")
    elsewhere = tmp_path / "out.html"
    assert runner.invoke(app, ["report", str(folder), "--out", str(elsewhere)]).exit_code == 0
    assert elsewhere.exists()
    assert not list(tmp_path.glob("*.tmp"))
    for arguments, words in (
        ([str(tmp_path)], "there is no recording"),
        ([str(folder), "--out", str(tmp_path)], "expected a file such as"),
    ):
        refused = runner.invoke(app, ["report", *arguments])
        assert refused.exit_code == 1
        assert words in refused.output


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_in_a_browser(folder: Path, scheme: Any) -> None:
    recorded = Recorded(folder)
    path = folder / "report.html"
    path.write_text(report(recorded, "rec " + EVIL))
    recorded.close()
    told: list[str] = []
    requests: list[str] = []
    with chromium() as browser:
        shown = browser.new_context(color_scheme=scheme, viewport={"width": 1200, "height": 900}).new_page()
        shown.on("console", lambda message: told.append(message.text))
        shown.on("pageerror", lambda error: told.append(str(error)))
        shown.on("dialog", lambda dialog: told.append(dialog.message))
        shown.on("request", lambda request: requests.append(request.url))
        shown.goto(path.as_uri())
        shown.wait_for_selector("html[data-drawn]", state="attached")
        assert shown.locator(".card canvas").count() == 3
        assert shown.locator(".tide-chart canvas, .level-chart canvas").count() == 2
        chart = shown.locator("#q0")
        chart.scroll_into_view_if_needed()
        chart.hover(position={"x": 100, "y": 60})
        assert "[" in shown.locator(".card .of").first.inner_text()
        assert shown.evaluate("document.documentElement.scrollWidth") <= 1200
        assert shown.pdf()[:5] == b"%PDF-"
    assert told == []
    assert [url.split(":")[0] for url in requests if not url.startswith("data:")] == ["file"]


def test_answers_of_a_turn_in_another_order_are_no_gap() -> None:
    numbers = QueryNumbers("q", "EXACT", slide=1.0, column="n")
    for second in (1, 2, 4, 3, 5, 8):
        numbers.take(answer("q", second, second))
    numbers.settle()
    assert [(p.value, p.after_gap) for p in numbers.series.ended()] == [
        (1, False),
        (2, False),
        (3, False),
        (4, False),
        (5, False),
        (8, True),
    ]
    assert (numbers.missing, numbers.longest_gap, numbers.last) == (2, 2, "8")


def test_a_group_whose_key_javascript_would_round_is_drawn() -> None:
    large = 2**53 + 1
    step = Catalog.from_sql(
        "CREATE STREAM p (ts TIMESTAMP, id BIGINT) USING scripted TIMESTAMP BY ts;"
        "CREATE QUERY q AS SELECT id, COUNT(*) AS n FROM p GROUP BY window(ts, '1 second'), id",
        Functions(),
    )
    given = [answer("q", second, second, keys=(("id", large),)) for second in (1, 2)]
    framer = Framer()
    moving = Moving(at(0), "running", 0, step, Status(at=at(0)), Insight(), 0.0)
    frame = framer.frame(moving, list(batches_of(given)))
    shown = {query.name: query for query in frame.queries}
    assert shown["q"].keys == {"id": str(large)}
    (numbers,) = numbers_of([step], shown, given)
    assert [point.value for point in numbers.series.ended()] == [1, 2]
