"""The demo's streams: rows that stay as they were made, and rates that change for what is still to come."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from slackwater.runtime.insight import Glimpse
from slackwater.spark.trace import GeneratedTrace, rows_between
from slackwater.terminal import demo_story
from slackwater.terminal.demo_load import BatchLog
from slackwater.terminal.demo_queues import SILENT, DialledWalks
from slackwater.terminal.demo_story import REMEMBERED
from slackwater.terminal.demo_traffic import DialledTraffic
from slackwater.traffic import SCHEMA, epoch_us

ORIGIN = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
SECOND = 1_000_000


def made(**more: object) -> DialledTraffic:
    return DialledTraffic(ORIGIN, rate=2_000.0, pool=5_000, **more)  # type: ignore[arg-type]


def test_a_second_is_the_same_whenever_it_is_asked_for() -> None:
    one, other = made(), made()
    first = one.slice(3, SECOND)
    one.turn(20.0)
    assert one.slice(3, SECOND).equals(first)
    assert other.slice(3, SECOND).equals(first)
    assert not one.slice(4, SECOND).slice(0, 100).equals(first.slice(0, 100))


def test_a_factor_counts_for_seconds_to_come_alone() -> None:
    packets = made()
    before = [packets.slice(n, SECOND).num_rows for n in range(5)]
    packets.turn(10.0)
    after = [packets.slice(n, SECOND).num_rows for n in range(10)]
    assert after[:5] == before
    assert 0.8 * 2_000 < np.mean(before) < 1.2 * 2_000
    assert 0.8 * 20_000 < np.mean(after[5:]) < 1.2 * 20_000
    assert packets.factors == {n: 1.0 if n < 5 else 10.0 for n in range(10)}
    assert packets.factor == 10.0


@pytest.mark.parametrize("factor", [0.1, 1.0, 30.0])
def test_rows_are_in_order_of_time_and_numbered_within_their_second(factor: float) -> None:
    packets = made()
    packets.turn(factor)
    rows = packets.slice(7, SECOND)
    times = rows["ts"].cast("int64").to_numpy()
    begin = epoch_us(ORIGIN) + 7 * SECOND
    assert begin <= times[0]
    assert times[-1] < begin + SECOND
    assert (np.diff(times) >= 0).all()
    assert rows["seq"].to_pylist() == [(7 << 32) + n for n in range(rows.num_rows)]
    assert rows.column_names == SCHEMA.names
    # more than the pool holds: it goes round
    assert rows.num_rows > 5_000 or factor < 30


def test_what_is_copied_is_traffic() -> None:
    rows = made().slice(0, SECOND)
    assert set(rows["proto"].unique().to_pylist()) == {"tcp", "udp"}
    assert rows["size"].to_numpy().min() >= 40
    assert 0.6 < np.mean([p == "tcp" for p in rows["proto"].to_pylist()]) < 0.9


def test_files_that_were_written_stay(tmp_path: Path) -> None:
    packets = made()
    trace = GeneratedTrace(packets, tmp_path)
    start = trace.start
    before = rows_between(trace, start, start + 2 * SECOND)
    packets.turn(5.0)
    assert rows_between(trace, start, start + 2 * SECOND) == before
    assert rows_between(trace, start + 2 * SECOND, start + 3 * SECOND) > 2 * before / 2
    (first, *_) = sorted(tmp_path.glob("*.parquet"))
    columns = pq.read_table(first).column_names
    assert columns == [*SCHEMA.names[:-1], "__t", "__part", "__seq", "__block"]


def test_a_router_is_silent_from_the_next_second_on_and_comes_back() -> None:
    queues = DialledWalks({"keys": "5", "seed": "3"}, ORIGIN)

    def keys(second: int) -> list[str]:
        return list(queues.slice(second, SECOND)["key"].to_pylist())

    assert SILENT in keys(0)
    queues.silence(True)
    assert SILENT in keys(0)
    assert SILENT not in keys(1)
    queues.silence(False)
    assert SILENT not in keys(1)
    assert SILENT in keys(2)
    assert queues.made == 3
    # the others say what they would have said anyway
    plain = DialledWalks({"keys": "5", "seed": "3"}, ORIGIN).slice(1, SECOND)
    heard = dict(zip(plain["key"].to_pylist(), plain["value"].to_pylist(), strict=True))
    silent = queues.slice(1, SECOND)
    told = dict(zip(silent["key"].to_pylist(), silent["value"].to_pylist(), strict=True))
    assert told == {k: v for k, v in heard.items() if k != SILENT}


def test_a_demo_that_runs_for_days_remembers_the_last_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_story, "REMEMBERED", 4)
    packets, queues = made(), DialledWalks({"keys": "5", "seed": "3"}, ORIGIN)
    queues.silence(True)
    for second in range(9):
        packets.slice(second, SECOND)
        queues.slice(second, SECOND)
    assert list(packets.factors) == [5, 6, 7, 8]
    assert (queues.made, len(queues._silences)) == (9, 4)
    log = BatchLog("p")
    monkeypatch.setattr(Glimpse, "of", lambda engine: None)
    offsets = {"from": 0, "to": 1}
    shown = SimpleNamespace(streams=[SimpleNamespace(name="p", batch_ms=1.0)])
    for number in range(REMEMBERED + 9):
        state = SimpleNamespace(batch=number, offsets=offsets, arrived=number)
        engine: Any = SimpleNamespace(
            state=SimpleNamespace(streams={"p": state}),
            decided={"p": SimpleNamespace(level=0.0, thresholds={}, share=1.0)},
            board=SimpleNamespace(status=lambda at: shown),
        )
        log(engine)
    assert [batch.number for batch in log.batches] == list(range(9, REMEMBERED + 9))
