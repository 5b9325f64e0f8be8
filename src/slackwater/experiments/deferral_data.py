"""The series that deferral is tried on: prices, sensors, buoys; generated ones where those are missing.

Prices are the minute closes of 2018 of the twelve symbols with the most complete minutes, each as a
percentage of its first value in the stretch; a minute without a tick keeps the last price. A minute of
trading is a tick: nights and weekends without any price are not there. Settings were chosen on one stretch,
which is never reported on. Temperatures of the 52 motes of the Berkeley lab are taken every 30 s for 48
hours; sea surface temperatures of 34 buoys of the TAO array, which the paper used, once a day for four years.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.sparse import csr_array

from slackwater.experiments.packets import DATA

Floats = NDArray[np.float64]

SYMBOLS = 12
CHOSEN_ON, REPORTED_ON = 100_000, 200_000
"""Rows of the prices at which the stretches begin: the one that settings were chosen on, and the other."""
WARM_UP = 200
"""Ticks before anything is counted: the longest buffer is full, twice."""
BUOYS_FROM, BUOYS_DAYS = 4650, 1500
BUOYS_FILLED = 0.9
WIDTH = 9
"""Series of a query, as in the paper."""


@dataclass(frozen=True)
class Series:
    """Values of all series at every tick."""

    name: str
    values: Floats
    """(ticks, series), without gaps: the last value is carried on."""
    fresh: NDArray[np.bool_]
    """Where a value arrived at the tick itself."""
    tick_s: float
    horizon_s: float
    """Over how long misses are spent: a daily course, or a yearly one."""
    bounds: tuple[float, ...]
    real: bool

    def first(self, ticks: int) -> Series:
        """The same, cut off after so many ticks."""
        cut = slice(0, ticks)
        return Series(
            self.name,
            self.values[cut],
            self.fresh[cut],
            self.tick_s,
            self.horizon_s,
            self.bounds,
            self.real,
        )


def prices(ticks: int, begin: int = REPORTED_ON, folder: Path = DATA) -> Series:
    """Minute prices, in hundredths of what they were at the beginning of the stretch."""
    path = folder / "prices_minute_2018.parquet"
    if path.exists():
        table = pq.read_table(path).drop_columns(["time"])
        complete = sorted(table.column_names, key=lambda name: table[name].null_count)[:SYMBOLS]
        all_of_it = np.column_stack([table[name].to_numpy() for name in complete])
        fresh = np.isfinite(all_of_it)[begin : begin + ticks]
        values = _carried(all_of_it)[begin : begin + ticks]
    else:
        values, fresh = generated(ticks, SYMBOLS, seed=begin)
    values = 100 * values / values[0]
    return Series("prices", values, fresh, 60.0, 86_400.0, (0.02, 0.04, 0.08, 0.16), path.exists())


def sensors(ticks: int, folder: Path = DATA) -> Series:
    """Temperatures in a building, in °C."""
    path = folder / "motes_temperature_30s.parquet"
    if path.exists():
        table = pq.read_table(path)
        values = np.column_stack([table[name].to_numpy() for name in table.column_names])[:ticks]
        fresh = np.isfinite(values)
        values = _carried(values)
    else:
        values, fresh = generated(ticks, 52, seed=2)
    return Series("sensors", values, fresh, 30.0, 86_400.0, (0.05, 0.1, 0.2, 0.4), path.exists())


def buoys(ticks: int, folder: Path = DATA) -> Series:
    """Sea surface temperatures in °C, one a day, of the buoys that are rarely silent."""
    path = folder / "tao_sst_daily.parquet"
    year = 365 * 86_400.0
    if path.exists():
        table = pq.read_table(path).drop_columns(["yymmdd"]).slice(BUOYS_FROM, min(ticks, BUOYS_DAYS))
        filled = [n for n in table.column_names if table[n].null_count < (1 - BUOYS_FILLED) * len(table)]
        values = np.column_stack([table[name].to_numpy() for name in filled])
        fresh = np.isfinite(values)
        values = _carried(values)
    else:
        values, fresh = generated(min(ticks, BUOYS_DAYS), 34, seed=3)
    return Series("buoys", values, fresh, 86_400.0, year, (0.1, 0.15, 0.2, 0.3), path.exists())


SOURCES: dict[str, Callable[[int], Series]] = {"prices": prices, "sensors": sensors, "buoys": buoys}


def _carried(values: Floats) -> Floats:
    """Each gap filled with the last value before it; a gap at the beginning with the first value after it."""
    place = np.where(np.isfinite(values), np.arange(len(values))[:, None], 0)
    np.maximum.accumulate(place, axis=0, out=place)
    filled = np.take_along_axis(values, place, axis=0)
    first = np.isfinite(filled).argmax(axis=0)
    return np.where(np.isfinite(filled), filled, filled[first, np.arange(values.shape[1])])


def generated(ticks: int, series: int, seed: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Random walks with common moves, heavy tails, and a volatility that has a daily course and lasts.

    >>> values, fresh = generated(1000, 3, seed=1)
    >>> values.shape, bool(np.isfinite(values).all()), bool(0.9 < fresh.mean() < 1)
    ((1000, 3), True, True)
    """
    rng = np.random.default_rng(seed)
    common = rng.standard_t(4, (ticks, 2)) @ rng.normal(0, 0.6, (2, series))
    moves = common + rng.standard_t(4, (ticks, series))
    day = 1 + 0.7 * np.sin(2 * np.pi * np.arange(ticks) / 1440)
    lasting = np.empty(ticks)
    state = 0.0
    for tick, push in enumerate(rng.normal(0, 0.05, ticks)):
        state = 0.99 * state + push
        lasting[tick] = state
    values = 100 * np.exp(np.cumsum(1e-4 * moves * (day * np.exp(lasting))[:, None], axis=0))
    fresh = rng.random((ticks, series)) < 0.95
    fresh[0] = True
    return _carried(np.where(fresh, values, np.nan)), fresh


def queries(series: int, number: int, seed: int, width: int = WIDTH) -> csr_array[Any]:
    """Weighted averages: each of some series at random, with weights that differ by up to three times.

    >>> queries(12, 2, seed=1).sum(axis=1).round(6)
    array([1., 1.])
    """
    rng = np.random.default_rng(seed)
    weights = np.zeros((number, series))
    for row in weights:
        chosen = rng.choice(series, min(width, series), replace=False)
        row[chosen] = rng.uniform(0.5, 1.5, len(chosen))
    return csr_array(weights / weights.sum(axis=1, keepdims=True))
