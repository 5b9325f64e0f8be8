"""``reproduce deferral-interruption``: answers while series are silent, Figure 8.

Averages over nine series of which two or three fall silent, at random times, for up to an hour. The paper
lets each go on with its drift, and claims the weighted sum of their errors at the belief (equations 7, 13).
Ours takes as much of a drift as has held before, and what the series that are still heard of say about the
others; the claim is what then remains unknown, as wide as interruptions that were only pretended have shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress
from scipy.special import ndtri

from slackwater.experiments.deferral_data import SOURCES, Floats, Series, queries
from slackwater.experiments.deferral_fidelity import SEED
from slackwater.experiments.deferral_motion import Estimates, estimates
from slackwater.experiments.deferral_simulation import ITEMS, PAPER_ITEMS, Results
from slackwater.statistics.covariance import Factors
from slackwater.statistics.interruptions import Interruptions

BELIEF = 0.9
SILENT = (2, 3)
MINUTES = (1, 2, 5, 10, 15, 20, 30, 45, 60)
"""Ticks: of prices they are minutes."""
LEARNT = 500
"""Ticks before the first interruption."""


@dataclass(frozen=True)
class Sizes:
    """How much is simulated."""

    ticks: int
    queries: int
    every: int
    """Ticks from one interruption to the next."""


FULL = Sizes(ticks=40_200, queries=10, every=5)
QUICK = Sizes(ticks=450, queries=2, every=20)


@dataclass(frozen=True)
class Claim:
    """An answer during an interruption: how wrong it was, and how wrong it claimed to be at most."""

    silent: int
    minutes: int
    error: float
    width: float
    paper_error: float
    paper_width: float


def deferral_interruption(spark: Any, folder: Path, sizes: Sizes, shown: Progress) -> Results:
    """All figures of the experiment; Spark has no part in it, and nothing is written."""
    results = Results()
    task = shown.add_task("data sets", total=len(SOURCES))
    for name, source in SOURCES.items():
        before = "" if name == "prices" else f"{name}."
        claims = list(_claims(source(sizes.ticks), sizes))
        for silent in SILENT:
            of = [claim for claim in claims if claim.silent == silent]
            _add(results.figures, f"{before}{{}}.{silent}", of)
            for minutes in MINUTES:
                at = [claim for claim in of if claim.minutes == minutes]
                for scheme, error in (("", "error"), ("paper.", "paper_error")):
                    mean = float(np.mean([abs(getattr(claim, error)) for claim in at]))
                    results.figures[f"{before}{scheme}error.{silent}.{minutes}"] = mean
        results.figures[f"{before}claims"] = len(claims)
        shown.advance(task)
    for scheme in ("", "paper."):
        curve = {f"{n}": [results.figures[f"{scheme}error.{n}.{m}"] for m in MINUTES] for n in SILENT}
        results.series["paper" if scheme else "ours"] = curve
    results.series["minutes"] = list(MINUTES)
    return results


def _add(figures: dict[str, float], name: str, claims: list[Claim]) -> None:
    """How often claims held, and how wide they were beside the width that would have held as often."""
    for scheme, error, width in (("", "error", "width"), ("paper.", "paper_error", "paper_width")):
        wrong = np.array([abs(getattr(claim, error)) for claim in claims])
        claimed = np.array([getattr(claim, width) for claim in claims])
        needed = 0.0
        for minutes in MINUTES:
            needed += float(np.quantile(wrong[[c.minutes == minutes for c in claims]], BELIEF))
        figures[name.format(f"{scheme}coverage")] = float(np.mean(wrong <= claimed))
        figures[name.format(f"{scheme}width")] = float(claimed.mean() / (needed / len(MINUTES)))


def _claims(series: Series, sizes: Sizes) -> Iterator[Claim]:
    """What is said during interruptions, by both schemes, from nothing but what is known by then."""
    rng = np.random.default_rng(SEED)
    ticks, width = series.values.shape
    weights = queries(width, sizes.queries, SEED).toarray()
    known, paper = estimates(series, ITEMS), estimates(series, PAPER_ITEMS)
    factors, pretended = Factors.fresh(width), Interruptions.fresh(width, BELIEF)
    spread, path = np.sqrt(known.variance * series.tick_s), np.zeros(width)
    learnt = min(LEARNT, ticks // 3)
    for tick in range(1, ticks - MINUTES[-1]):
        moves = _moves(series, spread, tick)
        path += np.nan_to_num(factors.told(moves) * spread[tick - 1])
        factors.observe(moves)
        there = np.where(series.fresh[tick], series.values[tick], np.nan)
        pretended.observe(there, known.drift[tick], known.variance[tick], path, series.tick_s)
        if tick >= learnt and tick % sizes.every == 0:
            query = weights[rng.integers(len(weights))]
            for silent in SILENT:
                lost = rng.choice(np.flatnonzero(query), silent, replace=False)
                told = _told(series, spread, factors, lost, tick)
                for minutes in MINUTES:
                    later = series.values[tick + minutes]
                    model = (factors, pretended, told[minutes])
                    ours = _ours(series, known, model, query, lost, tick, minutes)
                    theirs = _papers(series, paper, query, lost, tick, minutes)
                    truth = float(query[lost] @ later[lost])
                    yield Claim(silent, minutes, ours[0] - truth, ours[1], theirs[0] - truth, theirs[1])


def _moves(series: Series, spread: Floats, tick: int) -> Floats:
    """Increments over their standard deviations, NaN where nothing was heard."""
    with np.errstate(divide="ignore", invalid="ignore"):
        moves = (series.values[tick] - series.values[tick - 1]) / spread[tick - 1]
    return np.where(series.fresh[tick] & (spread[tick - 1] > 0), moves, np.nan)


def _told(
    series: Series, spread: Floats, factors: Factors, lost: NDArray[np.intp], tick: int
) -> dict[int, Floats]:
    """How far silent series have gone since a tick as those say that are heard, by minutes."""
    path, found = np.zeros(len(spread[tick])), {}
    for minutes in range(1, MINUTES[-1] + 1):
        moves = _moves(series, spread, tick + minutes)
        moves[lost] = np.nan
        path = path + np.nan_to_num(factors.told(moves) * spread[tick])
        if minutes in MINUTES:
            found[minutes] = path
    return found


def _papers(
    series: Series, known: Estimates, query: Floats, lost: NDArray[np.intp], tick: int, after: int
) -> tuple[float, float]:
    """What silent series add to the answer, and the claimed error. Section 4.5."""
    seconds = after * series.tick_s
    went_on = series.values[tick, lost] + known.drift[tick, lost] * seconds
    errors = -ndtri((1 - BELIEF) / 2) * np.sqrt(known.variance[tick, lost] * seconds)
    return float(query[lost] @ went_on), float(query[lost] @ errors)


def _ours(
    series: Series,
    known: Estimates,
    model: tuple[Factors, Interruptions, Floats],
    query: Floats,
    lost: NDArray[np.intp],
    tick: int,
    after: int,
) -> tuple[float, float]:
    """The same, as the runtime does it: what has held of drifts and of what others tell, and of silences."""
    factors, pretended, told = model
    lasting = np.full(series.values.shape[1], float(after))
    went_on = series.values[tick] + pretended.gone(known.drift[tick], told, lasting, series.tick_s)
    sigma = pretended.spread(known.variance[tick], known.drift[tick], lasting, series.tick_s)
    heard = np.ones(len(sigma), bool)
    heard[lost] = False
    loadings, own = factors.untold(heard, 1 - pretended.shares(lasting)[1])
    share = np.zeros(len(went_on))
    share[lost] = query[lost] * sigma[lost]
    variance = np.square(share @ loadings).sum() + np.square(share) @ own
    rho = pretended.together(lasting)[0]
    variance = (1 - rho) * variance + rho * share.sum() ** 2
    return float(query[lost] @ went_on[lost]), float(-ndtri((1 - BELIEF) / 2) * np.sqrt(variance))
