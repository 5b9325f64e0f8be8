"""Alerts over given answers, turn by turn, without Spark."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.runtime.alerts.delivering import Delivery
from slackwater.runtime.alerts.desk import Alerts, AlertStatus
from slackwater.runtime.alerts.outbox import Outbox
from slackwater.runtime.alerts.silence import Stretch
from slackwater.runtime.alerts.watching import RAISED_AT_MOST
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import How
from slackwater.runtime.clocks import Clocks

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DECLARED = """CREATE STREAM p (ts TIMESTAMP, host STRING, size INT) USING traffic KEY host TIMESTAMP BY ts;
CREATE STREAM other (ts TIMESTAMP, size INT) USING traffic TIMESTAMP BY ts;
CREATE QUERY q AS SELECT host, SUM(size) AS bytes, COUNT(*) AS n FROM p GROUP BY window(ts, '10 seconds'), host;
CREATE QUERY total AS SELECT SUM(size) AS bytes FROM p GROUP BY window(ts, '10 seconds');
CREATE QUERY some AS SELECT host, SUM(size) AS bytes FROM p GROUP BY window(ts, '10 seconds'), host HAVING COUNT(*) > 5;
CREATE QUERY rows AS SELECT host, COUNT(*) AS n FROM p GROUP BY tuples(10), host;
CREATE QUERY now AS SELECT host, SUM(size) AS s FROM LATEST(p) GROUP BY host WITH DRIFT 5;
CREATE QUERY elsewhere AS SELECT SUM(size) AS bytes FROM other GROUP BY window(ts, '10 seconds');
"""


def catalog_of(*alerts: str) -> Catalog:
    return Catalog.from_sql(DECLARED + ";\n".join(alerts), Functions())


def alert(
    when: str, *, name: str = "a", on: str = "total", url: str = "http://127.0.0.1:9/", also: str = ""
) -> str:
    to = f"'{url}'" + (f" AND '{also}'" if also else "")
    return f"CREATE ALERT {name} ON {on} WHEN {when} TO {to}"


def answers(
    low: Sequence[Any] | pa.Array,
    high: Sequence[Any] | pa.Array | None = None,
    *,
    query: str | pa.Array = "total",
    column: str = "bytes",
    hosts: Sequence[Any] | pa.Array | None = None,
    ends: Sequence[int] | int = 10,
    how: How = "exact",
    keys: Mapping[str, pa.Array] | None = None,
    ticks: bool = False,
) -> AnswerBatch:
    """Answers whose windows end after so many seconds (or that speak of such a time)."""
    value = low if isinstance(low, pa.Array) else pa.array(low)
    size = len(value)
    moments = np.broadcast_to(np.asarray(ends, dtype=np.int64) * 1_000_000, (size,)).copy()
    groups = {} if hosts is None else {"host": hosts if isinstance(hosts, pa.Array) else pa.array(hosts)}
    return AnswerBatch(
        query=query,
        column=column,
        window_start=None if ticks else moments - 10_000_000,
        window_end=None if ticks else moments,
        at=moments if ticks else None,
        keys=keys or groups,
        value=value,
        low=None if high is None else value,
        high=high if high is None or isinstance(high, pa.Array) else pa.array(high),
        confidence=1.0 if high is None else 0.95,
        how=how,
        emitted_at=NOW,
    )


class Turns:
    """The alerts of a run whose turns are given; what is committed survives ``restarted``."""

    def __init__(
        self, folder: Path, catalog: Catalog, *, kept: str = "", step: int = 0, **options: Any
    ) -> None:
        self.folder = folder
        self.catalog = catalog
        self.options = options
        self.kept = kept
        self.step = step
        clocks, room = options.get("clocks", Clocks()), options.get("room", RAISED_AT_MOST)
        rest = {name: value for name, value in options.items() if name not in ("clocks", "room")}
        delivery = Delivery(Outbox(folder / "alerts"), clocks, **rest)
        self.alerts = Alerts(folder / "alerts", clocks, delivery=delivery, room=room)
        self.alerts.open(kept, step, catalog)

    def turn(
        self,
        *batches: AnswerBatch,
        stream: str = "p",
        commit: bool = True,
        dropped: Collection[str] = (),
        stretches: Mapping[str, Stretch] = MappingProxyType({}),
    ) -> list[dict[str, Any]]:
        """The events of a turn, as they are on disk before it is committed."""
        step = self.step + 1
        self.alerts.turn(step, stream, self.catalog, lambda: iter(batches), dropped, stretches)
        path = self.folder / "alerts" / f"{step:012d}.jsonl"
        found = [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
        if commit:
            self.kept, self.step = self.alerts.mark(), step
            self.alerts.committed()
        return found

    def states(self, *batches: AnswerBatch, **options: Any) -> list[tuple[str, Any]]:
        """What the events of a turn say, in short: the state and the group."""
        found = self.turn(*batches, **options)
        return [(event["state"], event["keys"].get("host")) for event in found]

    def change(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.alerts.declare(catalog)

    def restarted(self, catalog: Catalog | None = None) -> Turns:
        """Another process that goes on from the last commit."""
        return Turns(self.folder, catalog or self.catalog, kept=self.kept, step=self.step, **self.options)

    def status(self, name: str = "a") -> AlertStatus:
        return next(s for s in self.alerts.status() if s.name == name)
