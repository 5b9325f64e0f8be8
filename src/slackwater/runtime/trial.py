"""A query tried on rows of a run before it is there: what share of them it takes, and of what values."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from slackwater.language.statements import CreateStream
from slackwater.plan.catalog import Catalog
from slackwater.runtime.governor import Governor
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.watching import Observer
from slackwater.spark.execute import SparkSession
from slackwater.spark.scripted import ScriptedSource
from slackwater.statistics.snapshot import StreamStatistics

SIXTEENTHS = (1, 1, 2, 12)
"""How the rows are parted. The first batches are passed over, as in a run; the others differ in size, since
batches of one size do not tell what takes its time with each row from what takes it once."""


def tried(
    spark: SparkSession,
    catalog: Catalog,
    stream: str,
    rows: pa.Table,
    prepare: Callable[[Session], None],
) -> StreamStatistics | None:
    """What would be known of a stream after these rows, if there were only this catalog; None: nothing.

    The rows are taken in order of their time, in a few batches; answers go nowhere. ``prepare`` registers
    the functions of the run.
    """
    batches = [rows.slice(start, end - start) for start, end in pairwise(_ends(rows.num_rows))]
    with tempfile.TemporaryDirectory(prefix="slackwater-trial-") as folder:
        session = Session(
            spark,
            Path(folder) / "state",
            Settings(),
            sources={stream.lower(): partial(_scripted, batches=batches)},
            governor=Observer,
            kept=[declared.sql for declared in catalog.declared.values()],
        )
        prepare(session)
        session.sql(catalog.sql())
        session.start(manual=True)
        try:
            carrier = session.engine.executor.session.range(0)
            name = catalog.streams[stream.lower()].name
            for number in range(len(batches)):
                session.engine.batch(name, carrier, number)
            governor = session.engine.load.ruler
            if not isinstance(governor, Governor):
                return None
            governor.settle()
            known = governor.snapshot()
            return next((k for k in known if k.stream.lower() == stream.lower()), None)
        finally:
            session.stop()


def _ends(rows: int) -> list[int]:
    """Where batches end, none of them empty: of few rows the first ones have one each.

    >>> _ends(1600), _ends(5), _ends(2)
    ([0, 100, 200, 400, 1600], [0, 1, 2, 3, 5], [0, 1, 2])
    """
    parts = [sum(SIXTEENTHS[:n]) for n in range(len(SIXTEENTHS) + 1)]
    ends = (min(rows, max(n, rows * part // parts[-1])) for n, part in enumerate(parts))
    return sorted(set(ends))


def _scripted(spark: SparkSession, declared: CreateStream, *, batches: Sequence[pa.Table]) -> ScriptedSource:
    return ScriptedSource(spark, declared, batches, ends=False)


def registering(
    scalars: Mapping[str, tuple[Callable[..., Any], str]], aggregates: Mapping[str, Any]
) -> Callable[[Session], None]:
    """Registers the functions that another session has."""

    def register(session: Session) -> None:
        for name, (function, returns) in scalars.items():
            session.function(name, function, returns)
        for name, aggregate in aggregates.items():
            session.aggregate(name, aggregate)

    return register
