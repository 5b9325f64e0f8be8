"""Random walks through deferred queries, and what their readers have at each tick."""

from __future__ import annotations

import numpy as np

from current_harness import DirectAsking, items, run, values_of
from slackwater.runtime.answers import Answer

STREAM = "CREATE STREAM t (ts TIMESTAMP, k BIGINT, x DOUBLE) USING scripted KEY k TIMESTAMP BY ts{clauses};\n"


def walks(count: int, ticks: int, seed: int, sigma: float = 1.0, drift: float = 0.0) -> np.ndarray:
    steps = np.random.default_rng(seed).normal(drift, sigma, (ticks, count))
    return 1000 + np.cumsum(steps, axis=0)


def rows_of(x: np.ndarray, first: int, stop: int, silent: frozenset[int] = frozenset()):
    return [(t, k, x[t, k]) for t in range(first, stop) for k in range(x.shape[1]) if k not in silent]


def answered(query: str, x: np.ndarray, batch: int = 50, clauses: str = "", weights=None) -> list[Answer]:
    values = values_of(STREAM.format(clauses=clauses) + f"CREATE QUERY q AS {query};")
    ask = DirectAsking(weights)
    values.prepare(ask)
    found = []
    for first in range(0, len(x), batch):
        stop = min(first + batch, len(x))
        found += run(values, ask, items(rows_of(x, first, stop)), first, stop)
    return found


def cached(found: list[Answer], ticks: int) -> np.ndarray:
    """The answer that a reader has at each tick."""
    kept = np.full(ticks, np.nan)
    for answer in found:
        if answer.value is None:
            continue
        since = int(answer.at.timestamp())
        slope = answer.slope or 0.0
        kept[since:] = answer.value + slope * np.arange(ticks - since)
    return kept


WARM = 200
TRUE = {
    "AVG(x)": lambda a: a,
    "max_over(AVG(x), '60 seconds')": lambda a: np.array(
        [a[max(0, t - 60) : t + 1].max() for t in range(len(a))]
    ),
    "min_over(AVG(x), '60 seconds')": lambda a: np.array(
        [a[max(0, t - 60) : t + 1].min() for t in range(len(a))]
    ),
    "max_since(AVG(x), TIMESTAMP '1970-01-01 00:01:00')": lambda a: np.array(
        [a[60 : t + 1].max() if t >= 60 else np.nan for t in range(len(a))]
    ),
}


def prepared(sql: str, clauses: str = "", weights=None):
    values, ask = values_of(STREAM.format(clauses=clauses) + sql), DirectAsking(weights)
    values.prepare(ask)
    return values, ask
