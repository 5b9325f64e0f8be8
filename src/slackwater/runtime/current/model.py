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
    """How all signals of all keys move together, and for each signal what silences are like."""

    def __init__(self, signals: int, manner: Manner) -> None:
        self._signals = signals
        self._manner = manner
        self._keys = 0
        self.factors: Factors | None = None
        """Of all signals of all keys, the keys of the first signal first."""
        self.silences: list[Interruptions] = []
        self.path: Floats = np.zeros((signals, 0))
        """By signal and key: how far the others say that it has gone since the beginning."""
        self.heard_at: Floats = np.zeros((signals, 0))
        """What the path was when the key was last heard of."""

    def grow(self, keys: int) -> None:
        """Make places for more keys; what is known of the others stays."""
        if keys <= self._keys:
            return
        if self._manner.covariance:
            fresh = Factors.fresh(self._signals * keys)
            self.factors = _taken(fresh, self.factors, keys, range(self._signals), self._keys)
        if self._manner.calibration and keys <= PRETENDED_AT_MOST:
            pretended = self.silences or [Interruptions.fresh(0, BELIEF) for _ in range(self._signals)]
            self.silences = [_more_silences(old, keys) for old in pretended]
        else:
            self.silences = []
        more = np.zeros((self._signals, keys - self.path.shape[1]))
        self.path = np.concatenate([self.path, more], axis=1)
        self.heard_at = np.concatenate([self.heard_at, more], axis=1)
        self._keys = keys

    def observe(self, series: Series, fresh: Ints, moved: Floats, elapsed: Floats, gap: float) -> None:
        """Learn from a tick: the changes of the keys that said something, over so many seconds each."""
        if self.factors is not None:
            standard = np.full((self._signals, self._keys), np.nan)
            sigma = np.sqrt(series.variance[:, fresh] * elapsed)
            with np.errstate(divide="ignore", invalid="ignore"):
                standard[:, fresh] = np.where(sigma > 0, moved / sigma, np.nan)
            if self.silences:
                told = self.factors.told(standard.ravel()).reshape(standard.shape)
                self.path += np.nan_to_num(told * np.sqrt(series.variance * gap))
                self.heard_at[:, fresh] = self.path[:, fresh]
            self.factors.observe(standard.ravel())
        for signal in range(self._signals):
            if self.silences:
                said = np.full(self._keys, np.nan)
                said[fresh] = np.where(series.there[signal, fresh], series.value[signal, fresh], np.nan)
                drift, variance = series.drift[signal], series.variance[signal]
                self.silences[signal].observe(said, drift, variance, self.path[signal], gap)

    def motions(self, series: Series) -> Motions:
        """How the keys move, by themselves and together."""
        if self.factors is None:
            return Motions(series.time, series.drift, series.variance)
        loadings, own = _with_doubt(self.factors)
        shape = (self._signals, self._keys)
        by_signal = loadings.reshape(*shape, loadings.shape[1]), own.reshape(shape)
        return Motions(series.time, series.drift, series.variance, *by_signal)

    def unheard(self, series: Series, silent: Bools, now: int, gap: float) -> Motions:
        """How the keys move while some are silent: beside what is told of these by the others."""
        found = self.motions(series)
        if self.factors is None or not self.silences or found.loadings is None or found.own is None:
            return found
        shape = self.path.shape
        ticks = np.where(silent, (now - series.time) / 1e6, 0.0) / gap
        left = np.stack([1 - s.shares(ticks)[1] for s in self.silences])
        heard = np.broadcast_to(~silent, shape)
        loadings, own = self.factors.untold(heard.ravel(), left.ravel())
        loadings, own = loadings.reshape(*shape, loadings.shape[1]), own.reshape(shape)
        together = np.stack([s.together(ticks) for s in self.silences])
        own = own * (1 - together)
        loadings = loadings * np.sqrt(1 - together)[:, :, None]
        loadings = np.concatenate([loadings, np.sqrt(together)[:, :, None]], axis=2)
        # keys that are heard go on as they do, from now on, which has nothing to do with what is past
        silences = silent[:, None]
        parts = [np.where(silences, loadings, 0.0), np.where(silences, 0.0, found.loadings)]
        loadings = np.concatenate(parts, axis=2)
        return Motions(found.time, found.drift, found.variance, loadings, np.where(silent, own, found.own))

    def gone(self, series: Series, silent: Bools, now: int, gap: float) -> Floats:
        """How far silent keys have gone since they were heard of, by signal and key (equation 13)."""
        seconds = np.where(silent, (now - series.time) / 1e6, 0.0)
        if not self.silences:
            return np.asarray(series.drift * seconds)
        ticks, told = seconds / gap, self.path - self.heard_at
        gone = [s.gone(series.drift[i], told[i], ticks, gap) for i, s in enumerate(self.silences)]
        return np.where(silent, np.stack(gone), 0.0)

    def repaired(self, keys: Ints, ago: Floats) -> None:
        """Rows of keys came late, that are so many ticks old: what others told since then counts."""
        for signal, silences in enumerate(self.silences):
            self.heard_at[signal, keys] = silences.path_ago(keys, ago, self.path[signal, keys])

    def spread(self, series: Series, silent: Bools, now: int, ahead: float, gap: float) -> Floats:
        """The standard deviation of each key up to some seconds ahead; silent ones since they were heard."""
        seconds = np.where(silent, (now - series.time) / 1e6, 0.0)
        rate = square = series.variance
        if self.silences:
            learnt = [
                s.spread(series.variance[i], series.drift[i], seconds / gap, gap)
                for i, s in enumerate(self.silences)
            ]
            with np.errstate(divide="ignore", invalid="ignore"):
                square = np.where(silent, np.square(np.stack(learnt)) / seconds, rate)
        # nobody tells yet how far they go from now on
        return np.asarray(np.sqrt(np.nan_to_num(square) * seconds + np.fmax(rate, square) * ahead))

    def carry(self, before: Model, origin: Sequence[int]) -> None:
        """Take over what is known of signals; ``origin`` says where each was, or -1."""
        self._keys = before._keys
        if self._manner.covariance:
            fresh = Factors.fresh(self._signals * self._keys)
            self.factors = _taken(fresh, before.factors, self._keys, origin, self._keys)
        if before.silences or (self._manner.calibration and self._keys <= PRETENDED_AT_MOST):
            kept = [before.silences[o] if 0 <= o < len(before.silences) else None for o in origin]
            self.silences = [s if s is not None else Interruptions.fresh(self._keys, BELIEF) for s in kept]
        self.path, self.heard_at = (
            np.stack([old[o] if o >= 0 else np.zeros(self._keys) for o in origin])
            if origin
            else np.zeros((0, self._keys))
            for old in (before.path, before.heard_at)
        )

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        found: dict[str, npt.NDArray[np.generic]] = {
            "keys": np.array(self._keys),
            "path": self.path,
            "heard_at": self.heard_at,
        }
        if self.factors is not None:
            found |= {f"factors.{n}": a for n, a in self.factors.to_arrays().items()}
        for place, silences in enumerate(self.silences):
            found |= {f"silences.{place}.{n}": a for n, a in silences.to_arrays().items()}
        return found

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        keys = int(arrays["keys"])
        self.path, self.heard_at = (np.array(arrays[n], np.float64) for n in ("path", "heard_at"))
        # what is switched off now was perhaps not then, and the other way round
        if self._manner.covariance:
            own = {n: a for n, a in arrays.items() if n.startswith("factors.")}
            kept = {n.removeprefix("factors."): np.array(a, np.float64) for n, a in own.items()}
            fits = "squares" in kept and len(kept["squares"]) == self._signals * keys
            self.factors = Factors.from_arrays(kept) if fits else None
        if self._manner.calibration:
            self.silences = [Interruptions.from_arrays(a) for a in _silences(arrays)]
        complete = (self.factors is not None or not self._manner.covariance) and (
            bool(self.silences) or not self._manner.calibration or keys > PRETENDED_AT_MOST
        )
        self._keys = keys if complete else 0


def _with_doubt(factors: Factors) -> tuple[Floats, Floats]:
    """Loadings and own shares; at first with one more factor, for what has not been seen yet."""
    loadings, own = factors.correlations()
    doubt = UNSEEN * np.maximum(0.0, 1 - factors.heard / SEEN_TICKS)
    common = np.sqrt(doubt)[:, None]
    return np.concatenate([loadings * np.sqrt(1 - doubt)[:, None], common], axis=1), own * (1 - doubt)


def _silences(arrays: Mapping[str, npt.NDArray[np.generic]]) -> list[dict[str, Floats]]:
    found: dict[int, dict[str, Floats]] = {}
    for key, array in arrays.items():
        if key.startswith("silences."):
            _, place, field = key.split(".", 2)
            found.setdefault(int(place), {})[field] = np.array(array, np.float64)
    return [found[place] for place in sorted(found)]


def _taken(fresh: Factors, old: Factors | None, keys: int, origin: Sequence[int], known: int) -> Factors:
    """Fresh factors with what is known: of so many keys, of each signal where it was, or -1."""
    if old is None or not known or old.loadings.shape[1] != fresh.loadings.shape[1]:
        return fresh
    for place, source in enumerate(origin):
        if source >= 0:
            into = slice(place * keys, place * keys + known)
            out = slice(source * known, (source + 1) * known)
            for name in ("loadings", "squares", "heard"):
                getattr(fresh, name)[into] = getattr(old, name)[out]
    fresh.seen = old.seen if any(source >= 0 for source in origin) else 0.0
    return fresh


def _more_silences(old: Interruptions, keys: int) -> Interruptions:
    fresh, known = Interruptions.fresh(keys, BELIEF), old.log_spread.shape[1]
    if known:
        fresh.log_spread[:, :known], fresh.past[:, :, :known] = old.log_spread, old.past
        fresh.products, fresh.pairs = old.products, old.pairs
        fresh.looks, fresh.ticks = old.looks, old.ticks
    return fresh
