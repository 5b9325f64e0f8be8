"""Heavy-tailed sums on Spark: rows are kept in proportion to their size."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sampling_data import BATCHES, STREAM, by_key, key
from slackwater.planners.ruling import Ruling
from slackwater.runtime.governor import WARMING, Governor
from slackwater.runtime.session import Settings
from slackwater.runtime.statistician import DECAY
from slackwater.runtime.testing import run_scripted

HEAVY = """
CREATE QUERY bytes AS SELECT SUM(size) AS s FROM p WHERE port = 80 AND known(host)
  GROUP BY window(ts, '20 seconds') WITH ERROR 5%;
CREATE QUERY others AS SELECT COUNT(*) AS n FROM p WHERE port = 443 GROUP BY window(ts, '20 seconds') WITH ERROR 5%;
"""


def heavy_batches() -> list[pa.Table]:
    random = np.random.default_rng(11)
    made = []
    for table in BATCHES:
        size = np.minimum(40 * random.pareto(1.2, table.num_rows) + 1, 2_000_000)
        made.append(table.set_column(1, "size", pa.array(size.astype("int32"))))
    return made


class BySize:
    """Keeps about a tenth of the rows of ``bytes``, by their size where there is a mean to go by."""

    paced = False

    def __init__(self, tau: float) -> None:
        self.tau = tau

    def rule(self, coming):
        slot = coming.slots.by_step["bytes"]
        assert slot.summed is not None
        return Ruling({slot.id: 0.1}, 1.0, sizes={slot.id: self.tau} if self.tau else {})


def test_a_heavy_tailed_sum_keeps_rows_in_proportion_to_their_size(spark):
    tables = {"p": heavy_batches()}
    sql = STREAM.format(using="scripted") + HEAVY
    options = {"functions": {"known": (lambda host: host != "c", "boolean")}}
    truth = by_key(run_scripted(spark, sql, tables, **options))
    sizes = np.concatenate([t["size"].to_numpy() for t in tables["p"]])
    tau = float(sizes.mean() / 0.1)
    errors, widths = {}, {}
    for name, ruler in (("size", BySize(tau)), ("rows", BySize(0.0))):
        found = by_key(run_scripted(spark, sql, tables, ruler=ruler, **options))
        assert found.keys() == truth.keys()
        mine = {k: a for k, a in found.items() if a.query == "bytes"}
        assert all(a.how == "sampled" and a.low <= a.value <= a.high for a in mine.values())
        assert all(a.low <= truth[k].value <= a.high for k, a in mine.items())
        assert np.mean([a.rows / truth[k].rows for k, a in mine.items()]) < 0.15
        errors[name] = np.mean([abs(a.value / truth[k].value - 1) for k, a in mine.items()])
        widths[name] = np.mean([(a.high - a.low) / a.value for a in mine.values()])
        assert all(a.value == truth[k].value for k, a in found.items() if a.query == "others")
    assert widths["size"] < 0.5 * widths["rows"], widths
    assert errors["size"] < 0.15, errors


class LearnsBySize(Governor):
    """Keeps rows by their size, and learns what they are like."""

    def rule(self, coming):
        super().rule(coming)
        slot = coming.slots.by_step["bytes"]
        return Ruling({slot.id: 0.1}, 1.0, measured=True, sizes={slot.id: 800.0})


def test_what_is_learnt_of_values_does_not_depend_on_large_ones_being_kept_more_often(spark):
    # no row so small that the few of its kind that are kept stand for most of the others
    tables = {"p": [t.set_column(1, "size", pc.add(t["size"], 40).cast("int32")) for t in heavy_batches()]}
    options = {"functions": {"known": (lambda host: host != "c", "boolean")}}
    governor = LearnsBySize(lambda: 1e9, 2, everywhere=True)
    run_scripted(spark, STREAM.format(using="scripted") + HEAVY, tables, ruler=governor, **options)
    rows = total = of = 0.0
    for table in tables["p"][WARMING:]:
        mine = table.filter(pc.and_(pc.equal(table["port"], 80), pc.not_equal(table["host"], "c")))
        rows, total = DECAY * rows + mine.num_rows, DECAY * total + pc.sum(mine["size"]).as_py()
        of = DECAY * of + table.num_rows
    known = governor.snapshot()[0].queries["bytes"]
    assert known.mean == pytest.approx(total / rows, rel=0.15)
    assert known.share == pytest.approx(rows / of, rel=0.15)


def test_sums_by_size_are_unbiased(spark):
    tables = {"p": heavy_batches()[:2]}
    sql = STREAM.format(using="scripted") + HEAVY.split(";")[0] + ";"
    options = {"functions": {"known": (lambda host: host != "c", "boolean")}}
    truth = by_key(run_scripted(spark, sql, tables, **options))
    sizes = np.concatenate([t["size"].to_numpy() for t in tables["p"]])
    ratios = []
    for salt in range(1, 9):
        found = run_scripted(
            spark,
            sql,
            tables,
            ruler=BySize(float(sizes.mean() / 0.2)),
            settings=Settings(salt=salt),
            **options,
        )
        ratios += [a.value / truth[key(a)].value for a in found]
    assert abs(np.mean(ratios) - 1) < 3 * np.std(ratios) / np.sqrt(len(ratios)) + 1e-9
