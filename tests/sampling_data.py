"""A stream and queries that the tests of sampling share, and how they look up answers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from slackwater.runtime.answers import Answer

ORIGIN = 1_700_000_000_000_000
STREAM = "CREATE STREAM p (ts TIMESTAMP, size INT, port INT, host STRING) USING {using} TIMESTAMP BY ts;"
QUERIES = """
CREATE QUERY web AS SELECT COUNT(*) AS n, SUM(size) AS bytes, AVG(size) AS mean, SUM(size) / COUNT(*) AS ratio
  FROM p WHERE port = 80 GROUP BY window(ts, '20 seconds', '10 seconds') WITH ERROR 5%;
CREATE QUERY middle AS SELECT MEDIAN(size) AS m, COUNT(*) AS n FROM p WHERE port = 443
  GROUP BY window(ts, '20 seconds') WITH ERROR 5%;
CREATE QUERY tail AS SELECT percentile(size, 0.9) AS m FROM p WHERE port = 443 AND size > 100
  GROUP BY window(ts, '20 seconds') WITH ERROR 5%;
CREATE QUERY spread AS SELECT STDDEV(size) AS s, VAR_POP(size) AS v FROM p WHERE port > 80
  GROUP BY window(ts, '20 seconds') WITH ERROR 5%;
CREATE QUERY ports AS SELECT port, COUNT(*) AS n, SUM(size) AS bytes FROM p
  GROUP BY port, window(ts, '20 seconds') WITH ERROR 5%;
CREATE QUERY sure AS SELECT MAX(size) AS m, COUNT(*) AS n FROM p WHERE port = 53
  GROUP BY window(ts, '20 seconds') WITH EXACT;
"""
RATES = {"web": 0.2, "middle": 0.4, "tail": 0.5, "spread": 0.3, "ports": 0.6}
Key = tuple[object, ...]


def batches(count: int = 6, rows: int = 2500, seed: int = 0) -> list[pa.Table]:
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(0, 60_000_000, count * rows))
    made = []
    for part in np.split(times, count):
        size = len(part)
        columns = {
            "ts": pa.array(ORIGIN + part, pa.timestamp("us", "UTC")),
            "size": pa.array(random.integers(40, 1500, size).astype("int32")),
            "port": pa.array(random.choice([80, 443, 53], size, p=[0.6, 0.3, 0.1]).astype("int32")),
            "host": pa.array(random.choice(["a", "b", "c"], size)),
        }
        made.append(pa.table(columns))
    return made


BATCHES = batches()


def key(answer: Answer) -> Key:
    return (answer.query, answer.column, answer.window_start, answer.keys)


def by_key(answers: list[Answer]) -> dict[Key, Answer]:
    found = {key(a): a for a in answers}
    assert len(found) == len(answers), "an answer was delivered twice"
    return found
