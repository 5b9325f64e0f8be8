"""Samples of other kinds of queries on Spark: signatures, rows, queries over queries, lookups, odd types."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sampling_data import BATCHES, STREAM, by_key
from slackwater.planners.ruling import FixedRates
from slackwater.runtime.testing import run_scripted

MEMBERS = "".join(
    f"CREATE QUERY h{i} AS SELECT COUNT(*) AS n, SUM(size) AS s FROM p WHERE port = {80 + i} "
    f"GROUP BY window(ts, '20 seconds') WITH ERROR 5%;\n"
    for i in range(12)
)


def test_members_of_a_signature_have_rates_of_their_own(spark):
    random = np.random.default_rng(5)
    tables = []
    for table in BATCHES:
        ports = pa.array((80 + random.integers(0, 12, table.num_rows)).astype("int32"))
        tables.append(table.set_column(2, "port", ports))
    sql = STREAM.format(using="scripted") + MEMBERS
    truth = by_key(run_scripted(spark, sql, {"p": tables}))
    rates = {f"h{i}": 1.0 if i == 3 else 0.15 + 0.07 * i for i in range(12)}
    found = by_key(run_scripted(spark, sql, {"p": tables}, ruler=FixedRates(rates)))
    assert found.keys() == truth.keys()
    inside = []
    for place, answer in found.items():
        if answer.query == "h3":
            assert (answer.how, answer.value) == ("exact", truth[place].value)
            continue
        assert answer.how == "sampled"
        assert answer.rate == pytest.approx(rates[answer.query], abs=0.09)
        inside.append(answer.low <= truth[place].value <= answer.high)
    # the samples are nested, so that a bad one is bad for many
    assert np.mean(inside) >= 0.85


def test_rows_of_a_set_valued_query_are_thinned_out(spark):
    sql = (
        STREAM.format(using="scripted")
        + "CREATE QUERY big AS SELECT size, host FROM p WHERE size > 1000 WITH ERROR 5%;"
    )
    whole = run_scripted(spark, sql, {"p": BATCHES})
    part = run_scripted(spark, sql, {"p": BATCHES}, ruler=FixedRates({"big": 0.25}))
    assert len(part) == pytest.approx(0.25 * len(whole), rel=0.15)
    assert {(a.at, a.keys) for a in part} <= {(a.at, a.keys) for a in whole}
    assert {(a.how, a.rate, a.met) for a in part} == {("sampled", 0.25, False)}
    nearly = run_scripted(spark, sql, {"p": BATCHES[:1]}, ruler=FixedRates({"big": 0.97}))
    assert {(a.how, a.met) for a in nearly} == {("sampled", True)}


def test_a_query_that_others_read_is_never_sampled(spark):
    sql = STREAM.format(using="scripted") + (
        "CREATE QUERY base AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '5 seconds') WITH ERROR 5%;"
        "CREATE QUERY above AS SELECT MAX(n) AS m FROM base GROUP BY window(ts, '20 seconds') WITH EXACT;"
    )
    truth = by_key(run_scripted(spark, sql, {"p": BATCHES}))
    found = by_key(run_scripted(spark, sql, {"p": BATCHES}, ruler=FixedRates({"base": 0.1})))
    assert {k: (a.value, a.how) for k, a in found.items()} == {k: (a.value, a.how) for k, a in truth.items()}


def test_only_rows_that_are_kept_are_looked_up(spark, tmp_path):
    pq.write_table(pa.table({"host": ["a", "b"], "site": ["x", "y"]}), tmp_path / "sites.parquet")
    sql = STREAM.format(using="scripted") + (
        f"CREATE TABLE sites (host STRING, site STRING) USING parquet OPTIONS (path '{tmp_path / 'sites.parquet'}');"
        "CREATE QUERY looked AS SELECT COUNT(*) AS n, SUM(size) AS s FROM p JOIN sites USING (host) "
        "WHERE site = 'x' GROUP BY window(ts, '20 seconds') WITH ERROR 5%;"
        "CREATE QUERY plain AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '20 seconds') WITH ERROR 5%;"
    )
    truth = by_key(run_scripted(spark, sql, {"p": BATCHES}))
    found = by_key(run_scripted(spark, sql, {"p": BATCHES}, ruler=FixedRates({"looked": 0.3})))
    assert found.keys() == truth.keys()
    for place, answer in found.items():
        if answer.query == "plain":
            assert answer.value == truth[place].value
        else:
            assert answer.how == "sampled"
            assert answer.low <= truth[place].value <= answer.high


def test_sums_of_intervals_and_decimals_are_measured_without_harm(spark):
    class Measuring(FixedRates):
        def rule(self, coming):
            ruling = super().rule(coming)
            return replace(ruling, measured=True)

    sql = (
        "CREATE STREAM p (ts TIMESTAMP, size INT, port INT, host STRING) USING scripted TIMESTAMP BY ts;"
        "CREATE QUERY late AS SELECT SUM(ts - TIMESTAMP '2023-11-14 00:00:00') AS d "
        "FROM p GROUP BY window(ts, '20 seconds');"
        "CREATE QUERY money AS SELECT SUM(CAST(size AS DECIMAL(12, 2))) AS d, AVG(CAST(size AS DECIMAL(12, 2))) AS a "
        "FROM p WHERE port = 80 GROUP BY window(ts, '20 seconds');"
        "CREATE QUERY texts AS SELECT SUM(CAST(size AS STRING)) AS d FROM p WHERE port = 53 GROUP BY window(ts, '20 seconds');"
    )
    truth = by_key(run_scripted(spark, sql, {"p": BATCHES}))
    rates = {"late": 0.5, "money": 0.5, "texts": 0.5}
    found = by_key(run_scripted(spark, sql, {"p": BATCHES}, ruler=Measuring(rates)))
    assert found.keys() == truth.keys()
    for place, answer in found.items():
        if answer.query == "late":
            assert (answer.how, answer.value) == ("exact", truth[place].value)
        else:
            assert answer.how == "sampled"
            assert float(answer.value) == pytest.approx(float(truth[place].value), rel=0.2)
