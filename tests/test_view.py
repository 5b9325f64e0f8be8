"""The live view and the summary, as text of a known size."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from slackwater.runtime.status import QueryStatus, Status, StreamStatus
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
