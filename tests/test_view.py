"""The live view and the summary, as text of a known size."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table

from slackwater.language.contracts import Drift, Exact
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.board import Board
from slackwater.runtime.json_values import to_micros
from slackwater.runtime.show import show_estimate
from slackwater.runtime.status import QueryStatus, Status, StreamStatus
from slackwater.terminal.console import output_console
from slackwater.terminal.run import told
from slackwater.terminal.view import LiveView, screen, summary

NOON = datetime(2024, 5, 1, 12, 0, 5, tzinfo=UTC)

PACKETS = StreamStatus(
    name="packets",
    batch=42,
    rows=12_345_678,
    rate=456_789.0,
    lag_s=1.2,
    batch_ms=850,
    late=17,
    watermark=NOON,
    progress=0.42,
)
LOAD = StreamStatus(name="load", state="idle")
WEB = QueryStatus(
    name="web_bytes",
    contract="ERROR 5% CONFIDENCE 99% WEIGHT 2",
    last_value=1234567,
    last_window_end=NOON,
    answers=60,
    history=(1, 2, 3, 4, 5, 6, 7, 8),
    how="sampled",
    met=True,
)
WORTH = QueryStatus(
    name="worth",
    contract="DRIFT 1% BELIEF 90%",
    last_value=98765.4321,
    last_keys=(("account", 17),),
    answers=1_500_000,
    history=(3.0, float("nan"), 3.0),
    how="deferred",
    met=False,
)
STATUS = Status(at=NOON, streams=(PACKETS, LOAD), queries=(WEB, WORTH), message="running monitor.sql")


def lines(renderable: RenderableType, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=24, record=True)
    console.print(renderable)
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_what_agents_have_told_is_shown_beside_rows() -> None:
    # sums are no rows: a stream that is told by sums alone has none, and does not stand still
    net = StreamStatus(name="net", batch=9, rows=0, updates=1_234, update_rate=5_000.0, watermark=NOON)
    status = replace(STATUS, streams=(PACKETS, net), queries=())
    live = lines(screen(status, width=120, height=24), width=120)
    assert live[0].split()[:5] == ["stream", "rows/s", "updates/s", "lag", "batch"]
    assert live[1].split()[:3] == ["packets", "457k", "–"]
    assert live[2].split()[:3] == ["net", "0", "5.00k"]
    assert [line.split()[:4] for line in lines(summary(status), width=120)[:3]] == [
        ["stream", "rows", "updates", "batches"],
        ["packets", "12,345,678", "–", "42"],
        ["net", "0", "1,234", "9"],
    ]
    assert "updates" not in lines(summary(STATUS), width=120)[0]


def test_the_live_view_in_80_columns() -> None:
    assert lines(screen(STATUS, width=80, height=24)) == [
        "stream   rows/s    lag   batch  late  watermark  progress",
        "packets    457k  1.2 s  850 ms    17  12:00:05   ━━━━──────  42%",
        "load          0      –       –     0  –          idle",
        "",
        "query             contract               last value  until     answers  history",
        "web_bytes         ERROR 5% CONFIDEN…  ✓   1,234,567  12:00:05       60  ▁▂▃▄▅▆▇█",
        "worth account=17  DRIFT 1% BELIEF 9…  ✗    98,765.4  –           1.50M  ▄ ▄",
        "",
        "2024-05-01 12:00:05 UTC  running monitor.sql",
    ]


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("height", [10, 24, 60])
def test_many_queries_and_streams_do_not_overflow(width: int, height: int) -> None:
    queries = tuple(
        QueryStatus(
            name=f"a_query_with_a_rather_long_name_{i}",
            contract="ERROR 5% CONFIDENCE 99% WEIGHT 2",
            last_value=10.0**i if i < 300 else None,
            last_window_end=NOON + timedelta(microseconds=1),
            last_keys=(("host", "a host with a name of its own"),),
            answers=10**9,
            history=tuple(range(100)),
            how="sampled",
            met=i != 999,
        )
        for i in range(1000)
    )
    streams = tuple(StreamStatus(name=f"stream_{i}", unreadable=i, watermark=NOON) for i in range(30))
    shown = lines(
        screen(Status(at=NOON, streams=streams, queries=queries), width=width, height=height), width
    )
    assert len(shown) < height
    assert max(map(cell_len, shown)) <= width
    text = "\n".join(shown)
    counted = re.findall(r"… and ([\d,]+) more", text)
    assert len(counted) == 2
    listed = len(re.findall("a_query_", text))
    assert listed >= 1
    assert int(counted[1].replace(",", "")) == 1000 - listed


def test_a_broken_contract_is_shown_first_where_not_all_fit() -> None:
    queries = tuple(QueryStatus(name=f"q{i}", contract="EXACT", met=i != 77) for i in range(100))
    text = "\n".join(lines(screen(Status(at=NOON, queries=queries), width=80, height=12)))
    assert "q77" in text
    assert "q0 " in text
    assert "q99" not in text


def test_what_is_kept_is_shown_while_load_is_shed() -> None:
    assert not any("kept" in line for line in lines(screen(STATUS, width=100, height=24), 100))
    shedding = replace(STATUS, streams=(replace(PACKETS, kept=0.25, level=1.5), LOAD))
    heading, packets, load, *_ = lines(screen(shedding, width=100, height=24), 100)
    assert heading.split()[5:7] == ["kept", "level"]
    assert packets.split()[7:9] == ["25%", "1.50"]
    assert "100%" in load
    assert not any("kept" in line for line in lines(summary(shedding)))


NOW = QueryStatus(
    name="worth_now",
    contract="DRIFT 1% BELIEF 90%",
    last_value=None,
    last_window_end=NOON,
    last_keys=(("account", None),),
    answers=3,
    how="modelled",
    met=False,
    missed=3,
    evaluated=1234,
)


def test_evaluations_that_were_missed_are_told() -> None:
    for shown in (screen(STATUS, width=100, height=24), summary(STATUS)):
        assert "missed" not in "\n".join(lines(shown, 100))
    status = replace(STATUS, queries=(WEB, NOW))
    shown = lines(screen(status, width=140, height=24), 140)
    heading, web, now = shown[4:7]
    assert heading.split()[-3:] == ["answers", "missed", "history"]
    assert web.split()[-3:] == ["60", "0", "▁▂▃▄▅▆▇█"]
    assert now.split()[-3:] == ["modelled", "3", "3"]
    assert "2024-05-01 12:00:05" in now
    assert "worth_now account=– " in now
    assert shown[-1] == "2024-05-01 12:00:05 UTC  3 evaluations missed  running monitor.sql"
    assert "None" not in "\n".join(shown)
    ended = lines(summary(status), 140)
    assert ended[-3:] == ["3 evaluations missed, 1,234 run", "", "running monitor.sql"]
    one = replace(status, queries=(replace(NOW, missed=1),), message="")
    assert lines(summary(one))[-1] == "1 evaluation missed, 1,234 run"


def test_a_query_that_misses_evaluations_is_shown_where_not_all_fit() -> None:
    queries = tuple(QueryStatus(name=f"q{i}", contract="EXACT", met=True) for i in range(100))
    queries = (*queries, replace(NOW, met=True))
    shown = lines(screen(Status(at=NOON, queries=queries), width=80, height=12))
    assert any("worth_now" in line for line in shown)
    assert max(map(cell_len, shown)) <= 80


def test_the_last_answer_of_current_values_has_its_tick() -> None:
    board = Board()
    board.queries({"worth": Drift(5, belief=0.9, extrapolate=True), "busy": Exact()})
    made = AnswerBatch(
        query="worth",
        column="w",
        at=np.array([to_micros(NOON), to_micros(NOON + timedelta(seconds=1))]),
        keys={"account": pa.array([1, 2])},
        value=pa.array([7.0, 1234.5]),
        low=pa.array([2.0, 1229.5]),
        high=pa.array([12.0, 1239.5]),
        confidence=0.9,
        how="deferred",
        emitted_at=NOON,
        slope=np.array([np.nan, -0.51234]),
    )
    rows = AnswerBatch(
        query="busy",
        column="*",
        at=np.array([to_micros(NOON)]),
        keys={"host": pa.array([None], pa.string())},
        value=pa.nulls(1),
        confidence=1.0,
        how="exact",
        emitted_at=NOON,
    )
    assert len(list(board.watching([made, rows], {}))) == 2
    board.missed({"worth": (2, 40)})
    text = "\n".join(lines(screen(board.status(NOON), width=140, height=24), 140))
    assert (
        "worth account=2  DRIFT 5 BELIEF 90% EXTRAPOLATE  ✓     1,234.5  2024-05-01 12:00:06  deferred"
        in text
    )
    assert "busy host=–" in text
    assert "2 evaluations missed" in text
    assert "None" not in text
    first, second = made.answers()
    assert show_estimate(first) == "7.0 ± 5.0 (90%)"
    assert show_estimate(second) == "1,234.5 ± 5.0 (90%), -0.512/s"
    assert show_estimate(replace(second, value=None, low=None, high=None, slope=None)) == "–"


def test_wide_terminals_show_more() -> None:
    text = "\n".join(lines(screen(STATUS, width=140, height=24), 140))
    assert "12,345,678" in text
    assert "ERROR 5% CONFIDENCE 99% WEIGHT 2" in text
    assert "2024-05-01 12:00:05" in text
    assert "deferred" in text


def test_what_comes_from_the_stream_cannot_control_the_terminal() -> None:
    query = QueryStatus(name="q", contract="EXACT", last_value="\x1b[2J", last_keys=(("k", "[bold]\n"),))
    text = "\n".join(lines(screen(Status(at=NOON, queries=(query,)), width=80, height=24)))
    assert "\x1b" not in text
    assert "k=[bold]\\n" in text


def test_nothing_yet() -> None:
    assert lines(screen(Status(at=NOON), width=80, height=24))[-1] == "2024-05-01 12:00:05 UTC"


def test_summary() -> None:
    shown = lines(summary(STATUS))
    assert shown[:3] == [
        "stream         rows  batches  late  watermark            state",
        "packets  12,345,678       42    17  2024-05-01 12:00:05  running",
        "load              0        0     0  –                    idle",
    ]
    assert shown[-1] == "running monitor.sql"
    many = Status(at=NOON, queries=tuple(QueryStatus(name=f"q{i}", contract="EXACT") for i in range(1000)))
    assert "… and 981 more" in lines(summary(many))


def test_the_live_view_reads_and_cleans_up() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, height=24, force_terminal=True, color_system=None)
    reads: list[int] = []

    def read() -> Status:
        reads.append(1)
        return STATUS

    with LiveView(console, read):
        pass
    assert reads
    assert "web_bytes" in out.getvalue()
    # the cursor, hidden while the view is up, is back
    assert out.getvalue().rfind("\x1b[?25h") > out.getvalue().rfind("\x1b[?25l")


def test_without_a_terminal_nothing_is_shown() -> None:
    out = io.StringIO()
    with LiveView(Console(file=out, width=80), lambda: STATUS):
        pass
    assert out.getvalue() == ""


def test_a_pipe_is_as_wide_as_its_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for forced in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(forced, raising=False)
    table = Table(*(f"heading number {n}" for n in range(20)), box=None)
    table.add_row(*("1,234,567.89" for _ in range(20)))
    output_console().print(table)
    output_console(stderr=True).print(table)
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert err == out
    assert max(map(len, out.splitlines())) < 400, "and no wider"


def test_a_terminal_keeps_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert output_console().width == 80


def test_what_cannot_be_recorded_is_told_while_a_run_goes_on() -> None:
    session: Any = SimpleNamespace(status=lambda: STATUS)
    shown: Any = SimpleNamespace(trouble="")
    assert told(session, None) == told(session, shown) == STATUS
    shown.trouble = "frames cannot be written to r/frames.jsonl: No space left on device"
    words = f"running monitor.sql  warning: {shown.trouble}"
    assert words in lines(screen(told(session, shown), width=140, height=24), 140)[-1]
