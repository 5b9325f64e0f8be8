"""``reproduce deferral-scale``: evaluations missed against the number of standing queries, Figure 7.

A thousand streams, one tick a second. Half of the queries are portfolios of nine streams, half the largest
value that such a portfolio had within half a minute. ``naive`` evaluates all of them at every tick, as the
project's own exact evaluation does it: one sparse product for the portfolios, a ring of the last values for
the extremes. ``deferred`` is the same queries under ``DRIFT 0.1% BELIEF 90%``. Both run through the pipeline
on Spark, have the same second for a tick, and deliver to Parquet; ``evaluation`` leaves the delivery out.

A scheme that takes longer than its tick misses the share of evaluations that does not fit; the deferred one
also what its scheduler puts off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.progress import Progress

from slackwater.experiments.deferral_data import Floats, prices
from slackwater.language.statements import CreateStream
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.sinks import ParquetSink, Sink
from slackwater.spark.execute import SparkSession
from slackwater.spark.scripted import ScriptedSource

STREAM = "ticks"
KEYS, HELD = 1000, 9
BUDGET_S = 0.8
"""Of the second between two ticks: what a turn may take, as the setting ``utilisation`` has it."""
WINDOW_S = 30
CONTRACTS = {"naive": "EXACT", "deferred": "DRIFT 0.1% BELIEF 90%"}


@dataclass(frozen=True)
class Sizes:
    """How many queries there are, and how many ticks are measured after those that models are learnt from."""

    queries: tuple[int, ...]
    warm: int
    measured: int
    long: int
    """Ticks of one run more, of the most queries deferred: longer than any extreme is put off."""


FULL = Sizes((10_000, 100_000, 250_000, 500_000, 1_000_000), 45, 20, 200)
QUICK = Sizes((200,), 3, 2, 4)


@dataclass
class Results:
    figures: dict[str, float] = field(default_factory=dict)
    series: dict[str, Any] = field(default_factory=dict)


class PacedSource(ScriptedSource):
    """Batches that come once in an interval, so that a turn has only so much time."""

    as_fast_as_it_goes = False


class Nowhere:
    """Takes answers and lets them go."""

    def open(self, resume: Mapping[str, object] | None) -> None:
        """Nothing to go on from."""

    def write(self, step: int, batches: Iterable[AnswerBatch]) -> None:
        for _ in batches:
            """Not even looked at."""

    def mark(self) -> dict[str, object]:
        return {}

    def close(self) -> None:
        """Nothing to let go of."""


def deferral_scale(spark: SparkSession, folder: Path, sizes: Sizes, progress: Progress) -> Results:
    """All figures of the experiment."""
    results = Results()
    sinks = ("parquet", "nowhere")
    runs = [(n, scheme, sink) for n in sizes.queries for scheme in CONTRACTS for sink in sinks]
    task = progress.add_task("runs", total=len(runs) + 1)
    ticks = _ticks(sizes.warm + sizes.measured)
    points: dict[str, list[tuple[int, float, float]]] = {}
    for count, scheme, sink in runs:
        place = folder / f"{count}-{scheme}-{sink}"
        holdings = _holdings(folder, count // 2)
        measured = _run(spark, place, holdings, scheme, sink, ticks, sizes.warm)
        name = scheme if sink == "parquet" else f"{scheme}_evaluation"
        results.figures[f"missed.{name}.{count}"] = measured.missed
        results.figures[f"seconds.{name}.{count}"] = measured.seconds
        results.figures[f"delivered.{name}.{count}"] = measured.delivered
        points.setdefault(name, []).append((count, measured.missed, measured.seconds))
        progress.advance(task)
    count, ticks = max(sizes.queries), _ticks(sizes.warm + sizes.long)
    long = _run(
        spark, folder / "long", _holdings(folder, count // 2), "deferred", "parquet", ticks, sizes.warm
    )
    results.figures["missed.deferred.long"] = long.missed
    results.figures["ticks.deferred.long"] = sizes.long
    results.figures["seconds.deferred.long"] = long.seconds
    results.figures["slowest.deferred.long"] = long.slowest
    progress.advance(task)
    results.series = {"points": points, "budget_s": BUDGET_S}
    return results


def moves(keys: int, count: int) -> Floats:
    """Changes of the logarithm by tick and key: real minutes of prices, for each key another stretch."""
    symbols = prices(2).values.shape[1]
    stretches = -(-keys // symbols)
    values = prices(count * stretches + 1, begin=0).values
    changes = np.diff(np.log(values), axis=0)[: count * stretches]
    apart = changes.reshape(stretches, count, symbols)
    return np.moveaxis(apart, 0, 1).reshape(count, stretches * symbols)[:, :keys]


def _ticks(count: int) -> list[pa.Table]:
    """The streams' values by tick, as rows: prices that move as real ones do."""
    walks = 100 * np.exp(np.cumsum(moves(KEYS, count), axis=0))
    start = 1_750_000_000_000_000
    names = pa.array([f"s{key:04d}" for key in range(KEYS)])
    stamp = pa.timestamp("us", tz="UTC")
    times = [pa.array(np.full(KEYS, start + t * 1_000_000)).cast(stamp) for t in range(count)]
    return [pa.table({"ts": at, "symbol": names, "price": row}) for at, row in zip(times, walks, strict=True)]


def _holdings(folder: Path, accounts: int) -> Path:
    """What each account holds: nine streams, some of them sold short."""
    path = folder / f"holdings-{accounts}.parquet"
    if not path.exists():
        random = np.random.default_rng(accounts)
        # nine different ones of each: a random start and random steps that add up to less than all
        steps = random.integers(1, KEYS // HELD, (accounts, HELD)).cumsum(axis=1)
        held = (random.integers(0, KEYS, accounts)[:, None] + steps) % KEYS
        table = {
            "symbol": pa.array([f"s{key:04d}" for key in range(KEYS)]).take(pa.array(held.ravel())),
            "account": np.repeat(np.arange(accounts), HELD),
            "qty": np.round(random.normal(5, 2, accounts * HELD), 2),
        }
        pq.write_table(pa.table(table), path)
    return path


def _sql(holdings: Path, contract: str) -> str:
    read = f"FROM LATEST({STREAM}) JOIN holdings USING (symbol) GROUP BY account WITH {contract}"
    return f"""
    CREATE STREAM {STREAM} (ts TIMESTAMP, symbol STRING, price DOUBLE) USING scripted
      KEY symbol TIMESTAMP BY ts;
    CREATE TABLE holdings (symbol STRING, account BIGINT, qty DOUBLE)
      USING parquet OPTIONS (path '{holdings}');
    CREATE QUERY worth AS SELECT account, SUM(qty * price) AS worth {read};
    CREATE QUERY peak AS SELECT account, max_over(SUM(qty * price), '{WINDOW_S} seconds') AS peak {read};
    """


@dataclass(frozen=True)
class _Measured:
    missed: float
    seconds: float
    slowest: float
    delivered: float


def _run(
    spark: SparkSession,
    folder: Path,
    holdings: Path,
    scheme: str,
    target: str,
    ticks: list[pa.Table],
    warm: int,
) -> _Measured:
    """One run: the share of evaluations missed, seconds a tick, and answers a tick."""
    sink: Sink = ParquetSink(folder / "answers") if target == "parquet" else Nowhere()
    source: Callable[..., Any] = partial(_source, ticks=ticks)
    session = Session(spark, folder / "state", Settings(trigger_ms=1000), sources={STREAM: source})
    session.sql(_sql(holdings, CONTRACTS[scheme]))
    session.start(sink, manual=True)
    engine = session.engine
    engine.tick_budget = lambda: BUDGET_S
    carrier = engine.executor.session.range(0)
    seconds, before, after = [], (0, 0), (0, 0)
    delivered = 0
    try:
        for number in range(len(ticks)):
            if number == warm:
                before, delivered = _counts(session), -_answers(session)
            began = perf_counter()
            engine.batch(STREAM, carrier, number)
            seconds.append(perf_counter() - began)
        after = _counts(session)
        delivered += _answers(session)
    finally:
        session.stop()
    each = float(np.mean(seconds[warm:]))
    missed, run = after[0] - before[0], after[1] - before[1]
    share = missed / (missed + run) if scheme == "deferred" and missed + run else 0.0
    # a turn that takes too long has missed what does not fit, whoever counts
    share = max(share, 1 - BUDGET_S / each, 0.0)
    return _Measured(share, each, max(seconds[warm:]), delivered / (len(ticks) - warm))


def _counts(session: Session) -> tuple[int, int]:
    queries = session.status().queries
    return sum(q.missed for q in queries), sum(q.evaluated for q in queries)


def _answers(session: Session) -> int:
    return sum(q.answers for q in session.status().queries)


def _source(spark: SparkSession, stream: CreateStream, *, ticks: list[pa.Table]) -> PacedSource:
    return PacedSource(spark, stream, ticks, ends=False)
