"""A real run behind a real server, whose batches and frames come when a test says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from service_client import Client
from slackwater.runtime.clocks import Clocks
from slackwater.runtime.session import Session
from slackwater.runtime.testing import scripted_session
from slackwater.runtime.watching import Observer
from slackwater.service.live import Live
from slackwater.service.server import serving
from slackwater.service.watched import Dials

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("port", pa.int32()), ("size", pa.int32())])
STREAM = "CREATE STREAM p (ts TIMESTAMP, port INT, size INT) USING scripted TIMESTAMP BY ts;\n"
QUERIES = """\
CREATE QUERY total AS SELECT SUM(size) AS bytes, COUNT(*) AS n FROM p GROUP BY window(ts, '2 seconds', '1 second') WITH EXACT;
CREATE QUERY by_port AS SELECT port, COUNT(*) AS n FROM p GROUP BY window(ts, '1 second'), port;
CREATE QUERY web AS SELECT SUM(size) AS bytes FROM p WHERE port = 80 GROUP BY window(ts, '2 seconds') WITH ERROR 5%;
"""
PORTS = (80, 53, 443)
TOKEN = "a-token-of-the-tests"


def batches(count: int, rows: int = 300, seconds: float = 2.0) -> list[pa.Table]:
    """Rows that go on from batch to batch, the same whenever they are made."""
    step = timedelta(seconds=seconds / rows)
    return [
        pa.Table.from_pylist(
            [
                {"ts": EPOCH + step * i, "port": PORTS[i % 3], "size": 40 + i * 7919 % 1400}
                for i in range(batch * rows, (batch + 1) * rows)
            ],
            SCHEMA,
        )
        for batch in range(count)
    ]


@dataclass
class Clock:
    """Seconds that go on as they do, and may jump."""

    ahead: float = 0.0

    def seconds(self) -> float:
        return time.monotonic() + self.ahead


@dataclass
class Running:
    """A session that is served: `turn` gives it batches, `live.advance` makes a frame."""

    session: Session
    live: Live
    client: Client
    clock: Clock
    taken: int = 0

    def turn(self, count: int = 1) -> None:
        """Some more batches, and a frame after each."""
        carrier = self.session.engine.executor.session.range(0)
        for _ in range(count):
            # so that nothing is put off for having been done just now
            self.clock.ahead += 100.0
            self.session.engine.batch("p", carrier, self.taken)
            self.taken += 1
            self.live.advance()


@contextmanager
def running(
    spark: Any,
    state: Path,
    sql: str = STREAM + QUERIES,
    *,
    tables: list[pa.Table] | None = None,
    dials: Dials | None = None,
    record: Path | None = None,
    functions: Mapping[str, tuple[Callable[..., Any], str]] | None = None,
) -> Iterator[Running]:
    """A run of scripted batches; nothing happens in it by itself."""
    given = batches(60) if tables is None else tables
    clock = Clock()
    session = scripted_session(
        spark,
        sql,
        {"p": given},
        functions=functions,
        state=state,
        clocks=Clocks(clock.seconds),
        ends=record is not None,
    )
    # every batch is measured and none is shed, however slow the machine is at this hour
    session.governor = Observer
    live = Live(session, dials=dials, record=record)
    session.start(manual=True, record=record)
    try:
        with serving(live, live.control, port=0, token=TOKEN, recording=record) as address:
            yield Running(session, live, Client(address), clock)
    finally:
        session.stop()
