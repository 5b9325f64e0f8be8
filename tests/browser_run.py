"""A run with a burst in it, of which a test knows what its batches cost: so it sheds the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from service_client import Client
from service_run import EPOCH, PORTS, SCHEMA, STREAM, TOKEN, Clock, Running
from slackwater.plan.slots import Slots
from slackwater.plan.tables import Plan
from slackwater.planners.terms import terms_of
from slackwater.runtime.clocks import Clocks
from slackwater.runtime.governor import Governor
from slackwater.runtime.shedding import Shed, Took
from slackwater.runtime.statistician import Statistician
from slackwater.runtime.testing import scripted_session
from slackwater.service.live import Live
from slackwater.service.server import serving
from slackwater.statistics.costs import predicted

QUERIES = """\
CREATE QUERY total AS SELECT SUM(size) AS bytes FROM p GROUP BY window(ts, '4 seconds', '1 second') WITH ERROR 5%;
CREATE QUERY web AS SELECT SUM(size) AS bytes FROM p WHERE port = 80 GROUP BY window(ts, '2 seconds') WITH ERROR 5%;
CREATE QUERY picked AS SELECT MAX(size) AS largest FROM p WHERE port = 443 GROUP BY window(ts, '2 seconds') WITH SUBSET GAP 4;
CREATE QUERY checked AS SELECT COUNT(*) AS n FROM p WHERE port = 53 GROUP BY window(ts, '2 seconds') WITH EXACT;
"""
BUDGET_S = 0.8
FIXED_S = 0.1
COSTS = {"pass": 0.01, "read": 1e-5, "block": 1e-5, "row": 1e-5, "test": 6e-5}
"""Executor seconds, of each pass and of each row: far more than they are, so that a few rows are many."""
CALM_ROWS = 300
BURST = 20
"""Times the rows of a calm batch."""


@dataclass
class Priced(Governor):
    """The governor, told of costs that do not depend on the machine nor on what else runs on it."""

    everywhere: bool = True

    def known(self, stream: str, plan: Plan, slots: Slots) -> Statistician:
        found = super().known(stream, plan, slots)
        if not found.batches:
            # as of a run that goes on from one that has learnt them
            found.calibration.update(COSTS)
            found.costs = dict(found.calibration)
        return found

    def learn(self, stream: str, shed: Shed | None, took: Took) -> None:
        load = self._load(self._streams[stream.lower()], float(took.arrived))
        if shed is None:
            spent, times = predicted(COSTS, terms_of(load, {})), {}
        else:
            load = replace(load, share=shed.share, parts=shed.parts)
            times = {table: predicted(COSTS, terms_of(load, shed.rates, table)) for table in took.times}
            spent = sum(times.values())
        super().learn(stream, shed, replace(took, wall=FIXED_S + spent / self.cores, times=times))


def calm_burst_calm(before: int, burst: int, after: int, seconds: float = 2.0) -> list[pa.Table]:
    """Batches of a stream that is calm, bursts, and is calm again; the same whenever they are made."""
    sizes = [CALM_ROWS] * before + [CALM_ROWS * BURST] * burst + [CALM_ROWS] * after
    found = []
    for batch, rows in enumerate(sizes):
        begin, step = EPOCH + timedelta(seconds=seconds * batch), timedelta(seconds=seconds / rows)
        found.append(
            pa.Table.from_pylist(
                [
                    {"ts": begin + step * i, "port": PORTS[i % 3], "size": 40 + i * 7919 % 1400}
                    for i in range(rows)
                ],
                SCHEMA,
            )
        )
    return found


@contextmanager
def bursting(spark: Any, state: Path, tables: list[pa.Table]) -> Iterator[Running]:
    """A run that sheds as the governor says; batches and frames come when a test says so."""
    clock = Clock()
    session = scripted_session(
        spark, STREAM + QUERIES, {"p": tables}, state=state, clocks=Clocks(clock.seconds), ends=False
    )
    session.governor = lambda budget, cores, split: Priced(lambda: BUDGET_S, cores, split)
    live = Live(session)
    session.start(manual=True)
    try:
        with serving(live, live.control, port=0, token=TOKEN) as address:
            yield Running(session, live, Client(address), clock)
    finally:
        session.stop()
