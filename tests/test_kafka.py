"""A stream from a real Kafka broker: partitions, a restart, messages that are no JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agreement import differences, identity
from kafka_broker import KafkaBroker, kafka_broker
from slackwater.errors import SourceError
from slackwater.planners.ruling import FixedRates
from slackwater.reference.evaluate import evaluate
from slackwater.runtime.answers import Answer
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.testing import ListSink
from waiting import until

__all__ = ["kafka_broker"]

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
PATIENCE_S = 120.0
PARTITIONS = 3
Row = dict[str, Any]
ROWS: list[Row] = [
    {"ts": EPOCH + timedelta(milliseconds=250 * i), "host": "abcd"[i % 4], "size": (37 * i) % 501}
    for i in range(240)
]


def produce(spark: Any, broker: KafkaBroker, topic: str, values: Sequence[str], start: int = 0) -> None:
    """Messages spread over the partitions in turn, by Spark's own batch writer."""
    listed = [(value, (start + i) % PARTITIONS) for i, value in enumerate(values)]
    frame = spark.createDataFrame(listed, "value STRING, partition INT").coalesce(1)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    frame.write.format("kafka").options(**options).save()


def as_json(rows: Sequence[Row]) -> list[str]:
    return [json.dumps(r, default=lambda t: t.isoformat()) for r in rows]


def script(broker: KafkaBroker, topic: str) -> str:
    return (
        "CREATE STREAM p (ts TIMESTAMP, host STRING, size INT) USING kafka OPTIONS "
        f"(subscribe '{topic}', 'kafka.bootstrap.servers' '{broker.bootstrap}', startingOffsets 'earliest') "
        "FORMAT json TIMESTAMP BY ts LATENESS 5 SECONDS IDLE 1 HOUR;\n"
        "CREATE QUERY sliding AS SELECT COUNT(*) AS n, SUM(size) AS s FROM p "
        "GROUP BY window(ts, '10 seconds', '5 seconds');\n"
        "CREATE QUERY grouped AS SELECT host, MEDIAN(size) AS m FROM p GROUP BY window(ts, '20 seconds'), host;\n"
        "CREATE QUERY tuple AS SELECT SUM(size) AS s, COUNT(*) AS n FROM p WHERE host <> 'd' GROUP BY tuples(50, 25);\n"
    )


def read(spark: Any, sql: str, state: Path, kept: list[Answer], rows: int) -> Any:
    """Read until so many messages have been taken in all, then stop; the state of the stream."""
    session = Session(spark, state, Settings(trigger_ms=100))
    session.sql(sql)
    session.start(ListSink(kept))
    try:
        until(lambda: session.engine.state.streams["p"].arrived >= rows, session)
    finally:
        session.stop()
    return session.engine.state.streams["p"]


def arrival(batches: Sequence[Sequence[Row]]) -> list[list[Row]]:
    """Batches in Slackwater's order of arrival: by partition, then by offset."""
    return [[row for p in range(PARTITIONS) for row in batch[p::PARTITIONS]] for batch in batches]


def test_a_restart_goes_on_where_it_was_and_takes_nothing_twice(
    spark: Any, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    topic = kafka_broker.create_topic("packets", PARTITIONS)
    sql = script(kafka_broker, topic)
    before, between = ROWS[:120], ROWS[120:]
    kept: list[Answer] = []
    produce(spark, kafka_broker, topic, as_json(before))
    first = read(spark, sql, tmp_path / "state", kept, len(before))
    assert (first.arrived, first.late, first.unreadable) == (120, 0, 0)
    assert first.offsets, "the record says which offsets a batch had"
    answered = [identity(a) for a in kept]
    produce(spark, kafka_broker, topic, as_json(between))
    second = read(spark, sql, tmp_path / "state", kept, len(ROWS))
    assert (second.arrived, second.late, second.unreadable) == (240, 0, 0)
    assert [identity(a) for a in kept[: len(answered)]] == answered
    # both stretches lay in the topic before they were read, so each was one batch
    assert (first.batch, second.batch) == (0, 1)
    assert not differences(kept, evaluate(sql, {"p": arrival([before, between])}, end=False))


def test_messages_that_cannot_be_read_are_counted_and_take_nothing_with_them(
    spark: Any, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    topic = kafka_broker.create_topic("torn", PARTITIONS)
    sql = script(kafka_broker, topic)
    wrong = ["", "not JSON", '{"ts": "2026-01-01T00:00:09Z", "host": "a"', '{"host": "a", "size": 3}']
    kept: list[Answer] = []
    produce(spark, kafka_broker, topic, [*as_json(ROWS[:60]), *wrong, *as_json(ROWS[60:120])])
    state = read(spark, sql, tmp_path / "state", kept, 120 + len(wrong))
    assert (state.arrived, state.unreadable) == (120 + len(wrong), len(wrong))
    rows: list[Row] = [*ROWS[:60], *([{"ts": None, "host": None, "size": None}] * len(wrong)), *ROWS[60:120]]
    assert not differences(kept, evaluate(sql, {"p": arrival([rows])}, end=False))


def test_what_kafka_is_not_told_is_asked_for(spark: Any, tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    session = Session(spark, tmp_path / "state")
    session.sql(
        "CREATE STREAM p (ts TIMESTAMP) USING kafka OPTIONS (subscribe 'packets') FORMAT json TIMESTAMP BY ts;"
        "CREATE QUERY q AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '1 second');"
    )
    with pytest.raises(SourceError, match=r"kafka\.bootstrap\.servers"):
        session.start()
    assert not list((tmp_path / "state" / "versions").iterdir())


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_a_topic_is_sampled_by_its_offsets_and_read_in_part(
    spark: Any, tmp_path: Path, kafka_broker: KafkaBroker, share: float
) -> None:
    topic = kafka_broker.create_topic(f"sampled-{share:g}", PARTITIONS)
    stream = script(kafka_broker, topic).split("\n")[0]
    sql = stream + (
        "CREATE QUERY part AS SELECT COUNT(*) AS n, SUM(size) AS s FROM p WHERE host <> 'd' "
        "GROUP BY window(ts, '100 seconds') WITH ERROR 5% CONFIDENCE 99.99%;"
    )
    rows = [
        {"ts": EPOCH + timedelta(milliseconds=50 * i), "host": "abcd"[i % 4], "size": (37 * i) % 501}
        for i in range(4200)
    ]
    kept: list[Answer] = []
    session = Session(
        spark, tmp_path / "state", Settings(trigger_ms=100), ruler=FixedRates({"part": 0.5}, share)
    )
    session.sql(sql)
    produce(spark, kafka_broker, topic, as_json(rows[:2100]))
    session.start(ListSink(kept))
    try:
        until(lambda: session.engine.state.streams["p"].arrived >= 2100, session)
        produce(spark, kafka_broker, topic, as_json(rows[2100:]))
        until(lambda: session.engine.state.streams["p"].arrived >= 4200, session)
    finally:
        session.stop()
    assert session.engine.state.streams["p"].arrived == 4200
    assert [a.window_start for a in kept if a.column == "n"] == [EPOCH, EPOCH + timedelta(seconds=100)]
    for answer in kept:
        assert answer.how == "sampled"
        inside = [r for r in rows if answer.window_start <= r["ts"] < answer.window_end and r["host"] != "d"]
        truth = len(inside) if answer.column == "n" else sum(r["size"] for r in inside)
        assert answer.low <= truth <= answer.high
        assert answer.value == pytest.approx(truth, rel=0.15)
    # the first batch has no offsets before it, and is read whole
    first, second = (a.rate for a in kept if a.column == "n")
    assert first == pytest.approx(0.5, abs=0.05)
    assert second == pytest.approx(0.5 * share, abs=0.08)
