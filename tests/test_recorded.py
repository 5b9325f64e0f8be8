"""Recordings that are looked at: frames, answers and plans read back, old ones, damaged ones and long ones."""

from __future__ import annotations

import json
import urllib.request
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console
from typer.testing import CliRunner

from frames import SQL, answer, at, frame, point, query, recording, suspended, turn, write_frames
from slackwater.cli import app
from slackwater.errors import StateError
from slackwater.planners.ruling import FixedRates
from slackwater.runtime.recording import ANSWERS, MARK, TURNS, Recording, version_file
from slackwater.runtime.testing import scripted_session, take_turns
from slackwater.service import frame_lines
from slackwater.service.events import frames_for, number_of
from slackwater.service.folding import gap_before
from slackwater.service.frame_log import FRAMES, FrameLog
from slackwater.service.keys import in_order
from slackwater.service.lines import Lines
from slackwater.service.live import Live
from slackwater.service.models import Frame
from slackwater.service.recorded import Recorded
from slackwater.service.watched import Asked, Newest, Watched
from slackwater.terminal.open import notes, open_folder

runner = CliRunner()


def sent(recorded: Recorded) -> list[Frame]:
    """All frames, asked for as the service asks."""
    found: list[Frame] = []
    while page := recorded.frames(found[-1].number if found else 0, 7):
        found += [Frame.model_validate_json(data) for data in page]
    return found


def seconds(made: Frame, name: str) -> list[float]:
    return [(p.at - at(0)).total_seconds() for q in made.queries if q.name == name for p in q.points]


def all_seconds(frames: list[Frame], name: str) -> list[float]:
    return [second for made in frames for second in seconds(made, name)]


def a_run(count: int) -> list[Frame]:
    """Frames of a run, every tenth whole."""
    return [
        frame(
            number,
            [query("web", [point(number, float(number))]), *([query("ports")] if number % 10 == 1 else [])],
            whole=number % 10 == 1,
            load=float(number),
        )
        for number in range(1, count + 1)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recording of half a minute with frames."""
    answers = [
        a for s in range(1, 31) for a in (answer("web", s, s), answer("web", s, s + 0.5, column="mean"))
    ]
    made = recording(tmp_path / "rec", turns=[turn(n, n) for n in range(1, 31)], answers=answers)
    write_frames(made / FRAMES, a_run(30))
    return made


# --- frames ---------------------------------------------------------------------------------------


def test_frames_are_those_of_the_run(folder: Path) -> None:
    recorded = Recorded(folder)
    watched: Watched = recorded
    frames = sent(recorded)
    assert [f.number for f in frames] == list(range(1, 31))
    assert {f.mode for f in frames} == {"recorded"}
    assert frames[0].whole
    assert all_seconds(frames, "web") == list(range(1, 31))
    last = watched.frame()
    assert (last.number, last.whole, last.mode, last.load) == (30, True, "recorded", 30.0)
    assert seconds(last, "web") == list(range(1, 31))
    assert [q.name for q in last.queries] == ["web", "ports"]
    assert Frame.model_validate_json(watched.whole()) == last
    assert (watched.number, watched.kept_from(), watched.knobs()) == (30, 1, None)
    assert watched.statistics().streams == []
    assert recorded.has_frames
    assert notes(recorded) == []
    recorded.close()


def test_the_tide_line(folder: Path) -> None:
    moments = Recorded(folder).moments(3)
    assert [(m.number, m.load, m.at) for m in moments] == [(n, float(n), at(n)) for n in (28, 29, 30)]
    thinned = Recorded(folder).frame_lines.thinned_moments(10)
    assert [m.number for m in thinned] == list(range(3, 31, 3)), "of neighbours the largest load stays"


def test_a_line_that_was_cut_is_passed_over(folder: Path) -> None:
    with (folder / FRAMES).open("ab") as file:
        file.write(b'{"number":31,"at":"2026-03')
    assert [f.number for f in sent(Recorded(folder))] == list(range(1, 31))
    assert Recorded(folder).lost == 0


@pytest.mark.parametrize("broken", [b"\x00" * 40, b"{}", b'{"number":5,"queries":[', b"null"])
def test_after_a_damaged_line_comes_the_next_whole_one(folder: Path, broken: bytes) -> None:
    lines = (folder / FRAMES).read_bytes().splitlines()
    lines[4] = broken
    (folder / FRAMES).write_bytes(b"\n".join(lines) + b"\n")
    recorded = Recorded(folder)
    assert recorded.lost == 6
    frames = sent(recorded)
    assert all_seconds(frames, "web") == [1, 2, 3, 4, *range(11, 31)]
    assert [f.number for f in frames] == list(range(1, 25))
    assert "6 frames are damaged" in notes(recorded)[0]


def test_damage_that_only_shows_when_a_line_is_read(folder: Path) -> None:
    lines = (folder / FRAMES).read_bytes().splitlines()
    for place in (4, 29):
        lines[place] = lines[place].replace(b'"name":"web"', b'"name":17')
    (folder / FRAMES).write_bytes(b"\n".join(lines) + b"\n")
    recorded = Recorded(folder)
    assert all_seconds(sent(recorded), "web") == [1, 2, 3, 4, *range(11, 30)]
    assert recorded.frame().number == 29


def test_numbers_that_begin_anew_are_counted_on(folder: Path) -> None:
    write_frames(folder / FRAMES, [*a_run(3), *a_run(2)])
    assert [f.number for f in sent(Recorded(folder))] == [1, 2, 3, 4, 5]


def test_a_long_recording_is_thinned_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_frames(folder / FRAMES, a_run(95))
    monkeypatch.setattr(frame_lines, "SENT_FRAMES", 10)
    recorded = Recorded(folder)
    frames = sent(recorded)
    assert [f.number for f in frames] == [*range(10, 100, 10), 95]
    assert all_seconds(frames, "web") == list(range(1, 96)), "no point is lost by putting frames together"
    assert "shows 10 frames as one" in notes(recorded)[0]
    monkeypatch.setattr(frame_lines, "SENT_POINTS", 40)
    thinned = sent(recorded)
    seconds_left = all_seconds(thinned, "web")
    assert len(seconds_left) == pytest.approx(95 / 3, abs=3)
    assert max(after - before for before, after in pairwise(seconds_left)) > 2
    assert gaps(thinned, "web") == [], "what was thinned out is no gap"


def gaps(frames: list[Frame], name: str, slide: float = 1.0) -> list[float]:
    """The seconds of points before which windows were left out, as the page tells them."""
    found, last = [], None
    for told in frames:
        for each in (p for q in told.queries if q.name == name for p in q.points):
            if gap_before(each, last, slide):
                found.append((each.at - at(0)).total_seconds())
            last = each
    return found


def test_windows_that_were_left_out_are_a_gap_also_where_points_are_thinned_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [s for s in range(1, 96) if s not in (20, 21, 50)]
    run = [
        frame(n, [query("web", [point(n)] if n in there else [])], whole=n % 10 == 1) for n in range(1, 96)
    ]
    write_frames(folder / FRAMES, run)
    assert gaps(sent(Recorded(folder)), "web") == [22, 51]
    monkeypatch.setattr(frame_lines, "SENT_POINTS", 30)
    thinned = sent(Recorded(folder))
    assert len(all_seconds(thinned, "web")) < 30
    first, second = gaps(thinned, "web")
    assert 22 <= first < 26, "at the next point that is left"
    assert 51 <= second < 55


def test_frames_that_were_put_together_have_gaps_where_windows_were_left_out(folder: Path) -> None:
    (folder / FRAMES).unlink()
    log = FrameLog(folder, at_once=2_000, per_second=300)
    for n in range(1, 400):
        points = [point(10 * n + k / 10) for k in range(100) if not (n == 200 and k == 7)]
        told = frame(n, [query("web", points, slide_seconds=0.1)], whole=n == 1)
        log.append(told.model_dump_json().encode())
    log.flush()
    frames = sent(Recorded(folder))
    assert 8 < len(all_seconds(frames, "web")) < 4_000, "most are left out"
    (found,) = gaps(frames, "web", 0.1)
    assert found >= 2000.8


def test_what_is_sent_has_a_bounded_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = [
        frame(n, [query(f"q{k}", [point(n)]) for k in range(20)], whole=n % 10 == 1) for n in range(1, 101)
    ]
    write_frames(folder / FRAMES, run)
    size = len(run[0].model_dump_json())
    monkeypatch.setattr(frame_lines, "SENT_BYTES", 10 * size)
    frames = sent(Recorded(folder))
    assert 8 <= len(frames) <= 10
    assert frames[-1].number == 100


def test_a_reader_that_comes_back_goes_on_where_it_was(folder: Path) -> None:
    recorded = Recorded(folder)
    assert [Frame.model_validate_json(d).number for d in recorded.frames(12, 3)] == [13, 14, 15]
    assert recorded.frames(30, 5) == []


def test_a_reader_waits_for_no_more_than_a_moment_of_a_long_recording(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page takes a service that says nothing for a while for one that is gone."""
    run = [frame(n, [query(f"q{k}", [point(n)]) for k in range(20)], whole=n == 1) for n in range(1, 101)]
    write_frames(folder / FRAMES, run)
    size = len(run[1].model_dump_json())
    monkeypatch.setattr(frame_lines, "_READ_AT_ONCE", 5 * size)
    monkeypatch.setattr(frame_lines, "_LOOKED_BACK_BYTES", 5 * size)
    recorded = Recorded(folder)
    read: list[int] = []
    between = Lines.between

    def counted(lines: Lines, start: int, end: int) -> bytes:
        read.append(start)
        return between(lines, start, end)

    with monkeypatch.context() as patch:
        patch.setattr(Lines, "between", counted)
        news = frames_for(recorded, None)
        assert 4 <= len(news()) <= 6
        assert len(read) <= 6, "no more was read than was sent"
        news()
        assert len(read) <= 12
    assert [made.number for made in sent(recorded)] == list(range(1, 101))
    assert (recorded.frame().number, recorded.frame().name) == (100, folder.name)


def test_memory_holds_no_frames(folder: Path) -> None:
    """A hundred thousand points are read through without being kept."""
    import tracemalloc

    many = [
        frame(n, [query("web", [point(n + k / 1000) for k in range(1000)])], whole=n == 1)
        for n in range(1, 101)
    ]
    write_frames(folder / FRAMES, many)
    size = (folder / FRAMES).stat().st_size
    assert size > 8 * 2**20
    del many
    tracemalloc.start()
    try:
        recorded = Recorded(folder)
        place = 0
        while page := recorded.frames(place, 7):
            place = number_of(page[-1])
        assert tracemalloc.get_traced_memory()[1] < size / 2
    finally:
        tracemalloc.stop()


# --- recordings without frames --------------------------------------------------------------------


def test_frames_are_made_from_turns_and_answers(tmp_path: Path) -> None:
    answers = [
        a for s in (1, 2, 5) for a in (answer("web", s, s * 10, half=2.0), answer("web", s, 1, column="mean"))
    ]
    answers.insert(4, answer("ports", 2, 7, column="bytes", keys=(("port", 80),)))
    answers.insert(5, answer("ports", 2, 99, column="bytes", keys=(("port", 53),)))
    turns = [turn(1, 1), turn(2, 2, level=1.5), turn(3, 5), turn(4, 6, kind="end", batch=None, arrived=0)]
    recorded = Recorded(recording(tmp_path / "rec", turns=turns, answers=answers))
    frames = sent(recorded)
    assert not recorded.has_frames
    assert "without frames" in notes(recorded)[0]
    # one for each second, the quiet ones among them
    assert [(f.at - at(0)).total_seconds() for f in frames] == pytest.approx([1.3, 2.3, 3, 4, 5.3, 6.3])
    assert [f.phase for f in frames] == ["running"] * 5 + ["ended"]
    assert [f.level for f in frames[:2]] == [0.5, 1.5]
    assert all_seconds(frames, "web") == [1, 2, 5]
    last = recorded.frame()
    web, ports = last.queries
    assert (web.answers, web.how, web.rate, web.column) == (6, "sampled", 0.5, "n")
    assert web.last_text == "50.0 ± 2.0 (95%)"
    assert (ports.answers, ports.groups, ports.keys) == (2, 2, {"port": 53})
    assert (last.load, last.capacity, last.mode) == (None, None, "recorded")
    assert [(s.rows, s.batch, s.state) for s in last.streams] == [(300, 3, "ended")]
    assert recorded.moments(10)[1].rows_per_second == 100.0
    recorded.close()


def test_turns_that_do_not_say_when_take_the_times_of_answers(tmp_path: Path) -> None:
    answers = [answer("web", second, second) for second in (1, 2, 3)]
    turns = [turn(n, None) for n in (1, 2, 3)]
    frames = sent(Recorded(recording(tmp_path / "rec", turns=turns, answers=answers)))
    assert [(f.at - at(0)).total_seconds() for f in frames] == pytest.approx([1.2, 2.2, 3.2])
    assert [seconds(f, "web") for f in frames] == [[1], [2], [3]]
    assert frames[-1].phase == "stopped"


def test_turns_and_answers_that_were_not_committed_are_not_shown(tmp_path: Path) -> None:
    folder = recording(
        tmp_path / "rec", turns=[turn(1, 1), turn(2, 2)], answers=[answer("web", 1), answer("web", 2)]
    )
    (folder / MARK).write_text('{"turns":1,"answers":1}')
    (folder / TURNS).write_text((folder / TURNS).read_text()[:-20])
    recorded = Recorded(folder)
    assert len(sent(recorded)) == 1
    assert len(recorded.answers("web", Asked())) == 1


@pytest.mark.parametrize("cut", ["", '{"turns":1', "{}", "[]", '{"turns":1,"answers":null}'])
def test_a_mark_that_cannot_be_read_says_what_to_do(tmp_path: Path, cut: str) -> None:
    folder = recording(tmp_path / "rec", turns=[turn(1, 1)], answers=[answer("web", 1)])
    (folder / MARK).write_text(cut)
    for opened in (Recorded, Recording.open):
        with pytest.raises(StateError, match=r"mark\.json cannot be read.* gone on with --record"):
            opened(folder)


def test_a_run_that_was_away_has_no_frames_meanwhile(tmp_path: Path) -> None:
    turns = [turn(1, 1), turn(2, 86_400)]
    frames = sent(Recorded(recording(tmp_path / "rec", turns=turns, answers=[answer("web", 1)])))
    assert len(frames) == 2


def test_suspended_windows_and_values_of_several_types_are_shown(tmp_path: Path) -> None:
    answers = [answer("web", 1, 5), suspended("web", 2), answer("web", 3, "text"), answer("web", 3.5, 2**80)]
    turns = [turn(n, n) for n in (1, 2, 3, 4)]
    frames = sent(Recorded(recording(tmp_path / "rec", turns=turns, answers=answers)))
    hows = [p.how for f in frames for q in f.queries if q.name == "web" for p in q.points]
    assert hows == ["exact", "suspended", "exact", "exact"]


# --- answers, plan, decisions ---------------------------------------------------------------------


def test_answers_are_found_by_query_column_time_and_group(tmp_path: Path) -> None:
    keys = [("a", None), ('say "hi"', 80), ("a", 80)]
    answers = [
        answer("Ports", s, s, column="bytes", keys=(("host", host), ("port", port)))
        for s in range(1, 11)
        for host, port in keys
    ]
    answers += [answer("web", s, s) for s in range(1, 6)]
    recorded = Recorded(recording(tmp_path / "rec", turns=[turn(1, 1)], answers=answers))

    def found(name: str, **asked: Any) -> list[Any]:
        return [(a.value, *(v for _, v in a.keys)) for a in recorded.answers(name, Asked(**asked))]

    assert found("web") == [(s,) for s in range(1, 6)]
    assert found("WEB", limit=2) == [(4,), (5,)]
    assert found("web", since=at(2), until=at(3)) == [(2,), (3,)]
    assert found("web", column="m") == found("nobody") == []
    assert found("ports", limit=2, keys={"host": "a", "port": "80"}) == [(9, "a", 80), (10, "a", 80)]
    assert found("ports", limit=1, keys={"host": 'say "hi"'}) == [(10, 'say "hi"', 80)]
    assert found("ports", limit=1, keys={"port": ""}) == [(10, "a", None)]
    assert found("ports", limit=1, nulls=("port",)) == [(10, "a", None)]
    assert found("ports", keys={"port": ""}, nulls=()) == []
    assert found("ports", keys={"port": "8"}) == found("ports", keys={"size": "80"}) == []
    latest = recorded.latest("ports", 10)
    by_group = sorted(keys, key=lambda each: in_order("", (("host", each[0]), ("port", each[1]))))
    assert [(a.value, a.keys) for a in latest.answers] == [
        (10, (("host", host), ("port", port))) for host, port in by_group
    ]
    few = recorded.latest("ports", 2)
    assert (few.answers, few.there) == (latest.answers[:2], len(keys))
    assert [a.value for a in recorded.latest("ports", 1, until=at(4)).answers] == [4]
    assert {a.group["port"] for a in recorded.latest("ports", 9, "port=null").answers} == {None}
    assert recorded.latest("nobody", 2) == Newest([], 0)


def test_a_query_that_was_dropped_before_the_end_can_be_looked_at(tmp_path: Path) -> None:
    made = recording(tmp_path / "rec", turns=[turn(1, 1)], answers=[answer("web", 1)])
    ports = SQL[: SQL.index("CREATE QUERY web")] + SQL[SQL.index("CREATE QUERY ports") :]
    for number, sql in enumerate((SQL.replace("COUNT(*) AS n", "SUM(size) AS n"), SQL, ports), 1):
        version_file(made, number).write_text(sql)
    recorded = Recorded(made)
    assert "web" not in recorded.catalog().queries
    assert "COUNT(*)" in recorded.declaring("WEB").declared["web"].sql
    assert "SUM(size)" in recorded.declaring("web", 1).declared["web"].sql
    assert "nobody" not in recorded.declaring("nobody").queries


VIEWED = (
    SQL[: SQL.index("CREATE QUERY web")]
    + "CREATE VIEW v AS SELECT {} AS n FROM p GROUP BY window(ts, '1 second');\n"
    + "CREATE QUERY web AS SELECT MAX(n) AS n FROM v GROUP BY window(ts, '1 second');\n"
)
GIVEN_AGAIN = {
    "dropped and given again": (SQL, SQL[: SQL.index("CREATE QUERY web")], SQL.replace("COUNT(*) AS n", "SUM(size) AS s")),
    "in one change": (SQL, SQL, SQL.replace("COUNT(*) AS n", "SUM(size) AS s")),
    "over another view": (VIEWED.format("COUNT(*)"), VIEWED.format("COUNT(*)"), VIEWED.format("SUM(size)")),
}  # fmt: skip


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("given", GIVEN_AGAIN)
def test_a_name_that_was_given_again_has_the_answers_of_its_last_query(
    tmp_path: Path, given: str, counted: bool
) -> None:
    answers = [answer("web", s, s) for s in (1, 2)] + [answer("web", s, s, column="s") for s in (5, 6)]
    told = {1: 1, 2: 1, 3: 0, 5: 1, 6: 1}
    turns = [
        turn(n, s, version=1 if s < 3 else 2 if s == 3 else 3, answers=count if counted else None)
        for n, (s, count) in enumerate(told.items(), 1)
    ]
    made = recording(tmp_path / "rec", turns=turns, answers=answers)
    for number, sql in enumerate(GIVEN_AGAIN[given], 1):
        version_file(made, number).write_text(sql)
    recorded = Recorded(made)

    def found(**asked: Any) -> list[Any]:
        return [a.value for a in recorded.answers("Web", Asked(**asked))]

    assert found() == [5, 6]
    assert [(a.column, a.value) for a in recorded.latest("web", 9).answers] == [("s", 6)]
    assert found(until=at(5)) == [5]
    assert found(until=at(4)) == [1, 2], "as it was then"
    assert found(until=at(0)) == []
    assert [a.value for a in recorded.recorded_answers.scan_last()] == [5, 6]
    assert len(list(recorded.recorded_answers.scan())) == 4


def test_frames_that_are_made_begin_anew_with_another_query_of_a_name(tmp_path: Path) -> None:
    answers = [answer("web", 1, 100), answer("web", 1.4, 7)]
    turns = [turn(1, 1), turn(2, 1.4, version=2)]
    made = recording(tmp_path / "rec", turns=turns, answers=answers)
    version_file(made, 2).write_text(SQL.replace("port = 80", "port = 443"))
    frames = sent(Recorded(made))
    told = [[(q.answers, [p.value for p in q.points]) for q in f.queries if q.name == "web"] for f in frames]
    assert told == [[(1, [100])], [(1, [7])]]
    assert frames[1].dropped == ["web"]


@pytest.mark.parametrize("then", ["ALTER QUERY web WITH ERROR 9%;\n", ""])
def test_a_query_that_is_altered_or_made_again_as_it_was_is_the_same(tmp_path: Path, then: str) -> None:
    answers = [answer("web", s, s) for s in (1, 2)]
    turns = [turn(1, 1, answers=1), turn(2, 2, version=3, answers=1)]
    made = recording(tmp_path / "rec", turns=turns, answers=answers)
    version_file(made, 2).write_text(SQL if then else SQL[: SQL.index("CREATE QUERY web")])
    version_file(made, 3).write_text(SQL + then)
    assert [a.value for a in Recorded(made).answers("web", Asked())] == [1, 2]


def test_the_newest_answer_is_not_the_one_that_was_written_last(tmp_path: Path) -> None:
    answers = [answer("ports", s, s, keys=(("k", k),)) for k in "ab" for s in (3, 5, 1, 4, 2)]
    recorded = Recorded(recording(tmp_path / "rec", turns=[turn(1, 1)], answers=answers))
    assert [(a.value, a.group["k"]) for a in recorded.latest("ports", 9).answers] == [(5, "a"), (5, "b")]
    assert [(a.value, a.group["k"]) for a in recorded.latest("ports", 1).answers] == [(5, "a")]


def test_a_double_is_found_however_it_is_written(tmp_path: Path) -> None:
    answers = [answer("ports", s, s, keys=(("k", k),)) for s, k in enumerate((1.0, 1e22, 0.25, 2**60), 1)]
    recorded = Recorded(recording(tmp_path / "rec", turns=[turn(1, 1)], answers=answers))
    asked = ("1", "1.0", "1e+22", "10000000000000000000000", ".25", str(2**60), str(2**60 + 1))
    found = [[a.value for a in recorded.answers("ports", Asked(keys={"k": text}))] for text in asked]
    assert found == [[1], [1], [2], [2], [3], [4], []]


def test_groups_with_fields_of_their_own_are_told_apart(tmp_path: Path) -> None:
    key = {"a": 1, "value": 2}
    answers = [
        answer("ports", s, s, column="bytes", keys=(("k", {**key, "value": v}),))
        for s in (1, 2)
        for v in (2, 3)
    ]
    recorded = Recorded(recording(tmp_path / "rec", turns=[turn(1, 1)], answers=answers))
    assert [(a.value, a.group["k"]["value"]) for a in recorded.latest("ports", 9).answers] == [(2, 2), (2, 3)]  # type: ignore[index, call-overload]


def test_an_answer_that_cannot_be_read_is_told(folder: Path) -> None:
    lines = (folder / ANSWERS).read_text().splitlines()
    lines[3] = lines[3].replace('"how":"exact"', '"how":"guessed"')
    (folder / ANSWERS).write_text("\n".join(lines) + "\n")
    recorded = Recorded(folder)
    assert len(recorded.answers("web", Asked(limit=2))) == 2
    with pytest.raises(StateError, match=r"answers\.jsonl has a line that is no answer: .*guessed"):
        recorded.answers("web", Asked(limit=100))


def test_plan_and_decisions(folder: Path) -> None:
    recorded = Recorded(folder)
    assert "query web · ERROR 5%" in recorded.explain("text", None)
    assert json.loads(recorded.explain("json", "web"))["streams"]
    assert list(recorded.catalog().queries) == ["web", "ports"]
    newest = recorded.decisions(None, 2)
    assert [d["turn"] for d in newest] == [30, 29]
    assert newest[0]["at"] == "2026-03-01T12:00:30.300000Z"
    assert (newest[0]["level"], newest[0]["arrived"]) == (0.5, 100)
    assert recorded.decisions("P", 1)[0]["stream"] == "p"
    assert recorded.decisions("q", 1) == []


CALLS = """CREATE STREAM p (ts TIMESTAMP, size INT) USING scripted TIMESTAMP BY ts;
CREATE QUERY q AS SELECT middling(twice(size)) AS m FROM p GROUP BY window(ts, '1 second') WITH ERROR 5%;
"""


@pytest.mark.parametrize(
    "said", [{}, {"aggregates": {"middling": {"returns": "DOUBLE", "merges": True, "scalable": True}}}]
)
def test_functions_of_the_run_need_not_be_there(tmp_path: Path, said: dict[str, Any]) -> None:
    folder = recording(
        tmp_path / "rec", turns=[turn(1, 1)], sql=CALLS, functions=["middling", "twice"], **said
    )
    recorded = Recorded(folder)
    assert "middling(twice(size))" in recorded.explain("text", "q")


# --- what is refused ------------------------------------------------------------------------------


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"there is no recording in .*--record"):
        Recorded(tmp_path)
    with pytest.raises(StateError, match="no turn came to its end"):
        Recorded(recording(tmp_path / "empty"))
    folder = recording(tmp_path / "sql", turns=[turn(1, 1)], sql="CREATE NONSENSE;")
    with pytest.raises(StateError, match=r"the SQL of the recording .* cannot be read"):
        Recorded(folder)
    told = runner.invoke(app, ["open", str(tmp_path), "--no-browser"])
    assert told.exit_code == 1
    assert "there is no recording" in told.output


def test_an_audit_beside_it_is_read(folder: Path) -> None:
    recorded = Recorded(folder)
    assert recorded.audit() is None
    (folder / "audit.json").write_text('{"passed": true, "problems": [], "columns": []}')
    assert recorded.audit() == {"passed": True, "problems": [], "columns": []}
    (folder / "audit.json").write_text("[]")
    with pytest.raises(StateError, match="is no report of an audit"):
        recorded.audit()


# --- lines ----------------------------------------------------------------------------------------


def test_lines_are_read_from_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n\nthree\ncut")
    lines = Lines(path)
    assert len(lines) == 3
    assert [lines[place] for place in range(3)] == [b"one", b"", b"three"]
    assert list(lines.backwards()) == [b"three", b"", b"one"]
    assert list(lines.scan()) == [(0, b"one"), (4, b""), (5, b"three")]
    assert len(Lines(path, most=2)) == 2
    lines.close()
    assert len(Lines(tmp_path / "nothing")) == 0


# --- in the page ----------------------------------------------------------------------------------


def test_a_recording_is_served(folder: Path) -> None:
    console = Console(record=True, width=200)
    asked: dict[str, Any] = {}

    def look() -> None:
        shown = console.export_text(clear=False)
        url = shown[shown.index("http://") :].partition("/#token=")[0]
        for path in ("/api/health", "/api/events", "/api/queries/web/answers?limit=1", "/api/plan", "/"):
            with urllib.request.urlopen(url + path, timeout=30) as response:
                asked[path] = response.read().decode()

    talk = Console(record=True, width=200)
    open_folder(folder, port=0, browser=False, console=console, talk=talk, wait=look)
    assert json.loads(asked["/api/health"]) == {
        "phase": "running",
        "mode": "recorded",
        "version": 1,
        "number": 30,
    }
    assert asked["/api/events"].count("event: frame") == 30
    assert asked["/api/events"].rstrip().endswith("event: end\nid: 30\ndata: {}")
    assert json.loads(asked["/api/queries/web/answers?limit=1"])[0]["value"] == 30.5
    assert "query web" in asked["/api/plan"]
    assert "Ctrl+C ends" in talk.export_text()


# --- a run on Spark -------------------------------------------------------------------------------


def batches(count: int = 4, rows: int = 400) -> list[pa.Table]:
    random = np.random.default_rng(4)
    origin = int(at(0).timestamp() * 1e6)
    return [
        pa.table(
            {
                "ts": pa.array(
                    np.sort(origin + part * 2_000_000 + random.integers(0, 2_000_000, rows)),
                    pa.timestamp("us", "UTC"),
                ),
                "size": pa.array(random.integers(40, 1500, rows).astype("int32")),
                "port": pa.array(random.choice([80, 53], rows).astype("int32")),
            }
        )
        for part in range(count)
    ]


def test_a_recorded_run_is_the_same_when_it_is_looked_at(spark: Any, tmp_path: Path) -> None:
    data = {"p": batches()}
    session = scripted_session(spark, SQL, data, ruler=FixedRates({"web": 0.5}))
    # frames are made when this test says so
    live = Live(session, record=tmp_path / "rec", every=3600.0)
    assert not (tmp_path / "rec").exists(), "nothing is written before the run has begun"
    session.start(manual=True, record=tmp_path / "rec")
    live.start()
    try:
        take_turns(session, data)
        live.advance()
    finally:
        session.stop()
    live.stop()
    shown = live.frame()
    recorded = Recorded(tmp_path / "rec")
    first = Frame.model_validate_json(recorded.frames(0, 1)[0])
    assert [q.name for q in first.queries] == ["web", "ports"], "those without an answer are there too"
    again = recorded.frame()
    assert recorded.has_frames
    assert again.queries == shown.queries
    assert again.streams == shown.streams
    assert {q.name: q.answers for q in again.queries} == {"web": 16, "ports": 16}
    kept = recorded.answers("web", Asked(limit=100))
    assert kept == live.answers("web", Asked(limit=100))
    assert {a.how for a in kept} == {"sampled"}
    # without its frames it is much the same
    (tmp_path / "rec" / FRAMES).unlink()
    made = Recorded(tmp_path / "rec")
    assert not made.has_frames
    remade = made.frame()
    assert [(q.name, q.answers, q.last_text, q.points) for q in remade.queries] == [
        (q.name, q.answers, q.last_text, q.points) for q in shown.queries
    ]
    made.close()
    recorded.close()
