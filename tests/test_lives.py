"""Whole lives of a run at random: batches, changes of the query set, kills and restarts in any order."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agreement import identity, tables_of
from slackwater.errors import RunError
from slackwater.reference.evaluate import evaluate
from slackwater.runtime.answers import Answer
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.testing import Killed, ListSink, abandon, killer, scripted_session, take_turns

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("host", pa.string()), ("size", pa.int32())])
STREAM = "CREATE STREAM p (ts TIMESTAMP, host STRING, size INT) USING scripted TIMESTAMP BY ts LATENESS 2 SECONDS;\n"
VIEW = "CREATE VIEW v AS SELECT SUM(size) AS n FROM p GROUP BY window(ts, '2 seconds');\n"
ALWAYS = (
    "CREATE QUERY always AS SELECT host, SUM(size) AS s, MEDIAN(size) AS m FROM p "
    "GROUP BY window(ts, '4 seconds', '2 seconds'), host;\n"
    "CREATE QUERY always_rows AS SELECT SUM(size) AS s, MAX(host) AS h FROM p GROUP BY tuples(5, 2);\n"
)
POOL = {
    "plain": "SELECT SUM(size) AS s FROM p WHERE size > 10 GROUP BY window(ts, '6 seconds', '3 seconds')",
    "alike": "SELECT SUM(size) AS s FROM p WHERE size > 25 GROUP BY window(ts, '6 seconds', '3 seconds')",
    "few": "SELECT COUNT(*) AS n, AVG(size) AS a FROM p WHERE host = 'a' GROUP BY window(ts, '2 seconds')",
    "ends": "SELECT host, MIN(size) AS lo, MAX(size) AS hi FROM p GROUP BY window(ts, '3 seconds'), host",
    "nested": "SELECT MAX(n) AS n FROM v GROUP BY window(ts, '6 seconds', '2 seconds')",
    "kinds": "SELECT COUNT(DISTINCT host) AS h FROM p GROUP BY window(ts, '5 seconds')",
    "rows": "SELECT host, size FROM p WHERE size > 40",
}
SIZES = {"plain": 6, "alike": 6, "few": 2, "ends": 3, "nested": 6, "kinds": 5}
POINTS = ("opened", "recorded", "partials", "answers", "committed")
BATCHES = 6


batch_rows = st.lists(
    st.tuples(st.integers(0, 5999), st.sampled_from("abc"), st.integers(0, 50)), min_size=0, max_size=12
)
change = st.sampled_from([("toggle", name) for name in POOL] + [("alter", name) for name in POOL])
kill = st.tuples(st.just("kill"), st.tuples(st.sampled_from(POINTS), st.integers(1, 3)))
event = st.one_of(
    change, change, st.just(("batch", None)), st.just(("batch", None)), kill, st.just(("stop", None))
)


@dataclass
class Life:
    """A run with everything that happens to it, and what is known about each query."""

    spark: Any
    state: Path
    batches: list[list[dict[str, Any]]]
    kept: list[Answer] = field(default_factory=list)
    given: int = 0
    born: dict[str, int] = field(default_factory=dict)
    """Queries that are there now, by the batches given before them."""
    session: Session | None = None
    fault: Callable[[str], None] = lambda point: None

    def __post_init__(self) -> None:
        self.tables = tables_of({"p": self.batches}, SCHEMA)

    def run(self) -> Session:
        """The running session, started where it is not; a kill at the start starts it again."""
        while self.session is None:
            session = scripted_session(
                self.spark,
                STREAM + VIEW + ALWAYS,
                self.tables,
                state=self.state,
                settings=Settings(driver_rows=2),
                fault=self.fault,
            )
            try:
                session.start(ListSink(self.kept), manual=True)
                self.session = session
            except Killed:
                self.forget()
        return self.session

    def forget(self) -> None:
        self.session, self.fault = None, lambda point: None

    def do(self, what: str, detail: Any) -> None:
        if what == "kill":
            if self.session is not None:
                self.session.stop()
            self.session, self.fault = None, killer(*detail)
        elif what == "stop" and self.session is not None:
            self.session.stop()
            self.session = None
        elif what == "toggle":
            session = self.run()
            if detail in self.born:
                session.sql(f"DROP QUERY {detail}")
                del self.born[detail]
            elif self.given < BATCHES:
                session.sql(f"CREATE QUERY {detail} AS {POOL[detail]}")
                self.born[detail] = self.given
        elif what == "alter" and detail in self.born:
            self.run().sql(f"ALTER QUERY {detail} WITH EXACT PRIORITY {self.given + 1}")
        elif what == "batch" and self.given < BATCHES:
            self.given += 1
            self.turns()

    def turns(self) -> None:
        """The batches so far; a kill starts the run again, which is handed them again."""
        while True:
            try:
                take_turns(self.run(), {"p": self.tables["p"][: self.given]})
                return
            except Killed:
                with pytest.raises(RunError, match="has stopped"):
                    # nothing may pass for done after the kill: Spark would go on behind its rows
                    self.session.engine.batch("p", self.spark.range(0), BATCHES)
                abandon(self.session)
                self.forget()


@given(
    st.lists(batch_rows, min_size=BATCHES, max_size=BATCHES),
    st.lists(event, min_size=6, max_size=16),
)
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
def test_whatever_happens_answers_are_exact_and_none_is_missing(
    spark: Any, rows: list[list[tuple[int, str, int]]], events: list[tuple[str, Any]]
) -> None:
    batches = [
        [{"ts": EPOCH + timedelta(seconds=4 * b, milliseconds=t), "host": h, "size": s} for t, h, s in batch]
        for b, batch in enumerate(rows)
    ]
    with tempfile.TemporaryDirectory() as folder:
        life = Life(spark, Path(folder) / "state", batches)
        for what, detail in events:
            life.do(what, detail)
        life.given = BATCHES
        life.turns()
        life.run().stop()
        truth = evaluate(
            STREAM + VIEW + ALWAYS + "".join(f"CREATE QUERY {n} AS {t};" for n, t in POOL.items()),
            {"p": batches},
        )
        found = Counter(map(identity, life.kept))
        allowed = Counter(map(identity, truth))
        assert not found - allowed, "an answer that is wrong, or given twice"
        owed = Counter(identity(a) for a in truth if a.query.startswith("always"))
        for name, before in life.born.items():
            # every window of which no row had been seen when the query came
            seen = max((r["ts"] for b in batches[:before] for r in b), default=EPOCH - timedelta(days=1))
            owed += Counter(
                identity(a)
                for a in truth
                if a.query == name and name in SIZES and a.window_start is not None and a.window_start > seen
            )
        assert not owed - found, f"an answer is missing after {events}"
