"""What is learnt of keys beside drift and variance: how they move together, and what silences are like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from slackwater.planners.manner import Manner
from slackwater.runtime.current.linear import Motions
from slackwater.statistics.covariance import Factors
from slackwater.statistics.diffusion import Floats
from slackwater.statistics.interruptions import Interruptions
from slackwater.statistics.series import Bools, Ints, Series

PRETENDED_AT_MOST = 100_000
"""Keys up to which silences are learnt by pretending them: some kilobytes for each key."""
UNSEEN, SEEN_TICKS = 0.3, 60.0
"""The share of their variance that keys are taken to have in common before anything was seen of it, and the
ticks after which only what was seen counts."""
BELIEF = 0.9
"""At which the spread of a silent key is learnt; other beliefs scale it as a normal distribution does."""


class Model:
    """One set of factors and one of pretended silences for each signal."""

    def __init__(self, signals: int, manner: Manner) -> None:
        self._signals = signals
        self._manner = manner
        self._keys = 0
        self.factors: list[Factors] = []
        self.silences: list[Interruptions] = []

    def grow(self, keys: int) -> None:
        """Make places for more keys; what is known of the others stays."""
        if keys <= self._keys:
            return
        if self._manner.covariance:
            known = self.factors or [Factors.fresh(0) for _ in range(self._signals)]
            self.factors = [_more_factors(old, keys) for old in known]
        if self._manner.calibration and keys <= PRETENDED_AT_MOST:
            pretended = self.silences or [Interruptions.fresh(0, BELIEF) for _ in range(self._signals)]
            self.silences = [_more_silences(old, keys) for old in pretended]
        else:
            self.silences = []
        self._keys = keys

    def observe(self, series: Series, fresh: Ints, moved: Floats, elapsed: Floats, gap: float) -> None:
        """Learn from a tick: the changes of the keys that said something, over so many seconds each."""
        for signal in range(self._signals):
            sigma = np.sqrt(series.variance[signal, fresh] * elapsed)
            if self.factors:
                standard = np.full(self._keys, np.nan)
                with np.errstate(divide="ignore", invalid="ignore"):
                    standard[fresh] = np.where(sigma > 0, moved[signal] / sigma, np.nan)
                self.factors[signal].observe(standard)
            if self.silences:
                said = np.full(self._keys, np.nan)
                said[fresh] = np.where(series.there[signal, fresh], series.value[signal, fresh], np.nan)
                drift, variance = series.drift[signal], series.variance[signal]
                self.silences[signal].observe(said, drift, variance, gap)

    def motions(self, series: Series) -> Motions:
        """How the keys move, by themselves and together."""
        if not self.factors:
            return Motions(series.time, series.drift, series.variance)
        both = [_with_doubt(factors) for factors in self.factors]
        loadings, own = tuple(np.stack([b[i] for b in both]) for i in (0, 1))
        return Motions(series.time, series.drift, series.variance, loadings, own)

    def drifted(self, series: Series, silent: Bools, now: int, gap: float) -> Floats:
        """How far silent keys have gone since they were heard of, by signal and key (equation 13)."""
        seconds = np.where(silent, (now - series.time) / 1e6, 0.0)
        if not self.silences:
            return np.asarray(series.drift * seconds)
        ticks = seconds / gap
        gone = [s.drifted(series.drift[i], ticks, gap) for i, s in enumerate(self.silences)]
        return np.where(silent, np.stack(gone), 0.0)

    def spread(self, series: Series, silent: Bools, now: int, ahead: float, gap: float) -> Floats:
        """The standard deviation of each key up to some seconds ahead; silent ones since they were heard."""
        seconds = np.where(silent, (now - series.time) / 1e6, 0.0) + ahead
        sigma = np.sqrt(series.variance)
        if self.silences:
            ticks = seconds / gap
            learnt = [s.sigma(series.variance[i], ticks) for i, s in enumerate(self.silences)]
            sigma = np.where(silent, np.stack(learnt), sigma)
        return np.asarray(sigma * np.sqrt(seconds))

    def carry(self, before: Model, origin: Sequence[int]) -> None:
        """Take over what is known of signals; ``origin`` says where each was, or -1."""
        self._keys = before._keys
        if self._manner.covariance:
            old = [before.factors[o] if 0 <= o < len(before.factors) else None for o in origin]
            self.factors = [f if f is not None else Factors.fresh(self._keys) for f in old]
        if before.silences or (self._manner.calibration and self._keys <= PRETENDED_AT_MOST):
            kept = [before.silences[o] if 0 <= o < len(before.silences) else None for o in origin]
            self.silences = [s if s is not None else Interruptions.fresh(self._keys, BELIEF) for s in kept]

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        found: dict[str, npt.NDArray[np.generic]] = {"keys": np.array(self._keys)}
        for place, factors in enumerate(self.factors):
            found |= {f"factors.{place}.{n}": a for n, a in factors.to_arrays().items()}
        for place, silences in enumerate(self.silences):
            found |= {f"silences.{place}.{n}": a for n, a in silences.to_arrays().items()}
        return found

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        keys = int(arrays["keys"])
        # what is switched off now was perhaps not then, and the other way round
        if self._manner.covariance:
            self.factors = [Factors.from_arrays(a) for a in _parts("factors", arrays)]
        if self._manner.calibration:
            self.silences = [Interruptions.from_arrays(a) for a in _parts("silences", arrays)]
        complete = (bool(self.factors) or not self._manner.covariance) and (
            bool(self.silences) or not self._manner.calibration
        )
        self._keys = keys if complete else 0


def _with_doubt(factors: Factors) -> tuple[Floats, Floats]:
    """Loadings and own shares; at first with one more factor, for what has not been seen yet."""
    loadings, own = factors.correlations()
    doubt = UNSEEN * max(0.0, 1 - factors.seen / SEEN_TICKS)
    common = np.full((len(own), 1), np.sqrt(doubt))
    return np.concatenate([loadings * np.sqrt(1 - doubt), common], axis=1), own * (1 - doubt)


def _parts(name: str, arrays: Mapping[str, npt.NDArray[np.generic]]) -> list[dict[str, Floats]]:
    found: dict[int, dict[str, Floats]] = {}
    for key, array in arrays.items():
        if key.startswith(f"{name}."):
            _, place, field = key.split(".", 2)
            found.setdefault(int(place), {})[field] = np.array(array, np.float64)
    return [found[place] for place in sorted(found)]


def _more_factors(old: Factors, keys: int) -> Factors:
    fresh, known = Factors.fresh(keys), len(old.squares)
    if known and old.loadings.shape[1] == fresh.loadings.shape[1]:
        fresh.loadings[:known], fresh.squares[:known], fresh.seen = old.loadings, old.squares, old.seen
    return fresh


def _more_silences(old: Interruptions, keys: int) -> Interruptions:
    fresh, known = Interruptions.fresh(keys, BELIEF), old.log_spread.shape[1]
    if known:
        fresh.log_spread[:, :known], fresh.past[:, :, :known] = old.log_spread, old.past
        fresh.products, fresh.looks, fresh.ticks = old.products, old.looks, old.ticks
    return fresh
