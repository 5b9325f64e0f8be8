"""Response curves: how often each object would send at each width, as far as the coordinator can know.

Agents tell the rates that their shadow filters have counted, on rows that they send anyway. So the curve of
an object that has been silent is old; but that it was silent says something too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

UNKNOWN_PERIODS = 2.0
"""Periods for which a curve must have been watched to weigh as much as what is assumed without one."""

SAID_AN_OCTAVE = 0.9
"""What silence says of bounds an octave narrower: of the logarithm by which it lets rates fade, this share.
On hosts, what was known of silent objects at a half to a sixteenth of their widths was up to four times what
they came to send; with this it is 1.2 times, however long they had been silent and however narrow."""
_SAID = SAID_AN_OCTAVE ** np.arange(64.0)


REFINED = ((100, 11), (10_000, 5), (100_000, 2))
"""Up to so many objects so many points between two rungs: what a walk in large steps sends falls in stairs,
and with fewer points random walks cost 1 to 2 % more; but a hull takes time by the square of its points."""


def refinement(objects: int) -> int:
    """How many points to put between two rungs.

    >>> refinement(40), refinement(50_000), refinement(10**6)
    (11, 2, 0)
    """
    return next((between for most, between in REFINED if objects <= most), 0)


@dataclass(frozen=True)
class Told:
    """What agents have told of their objects; arrays by object, and by rung."""

    lowest: Ints
    """The first width above 0 of an object's ladder is 2 to this power, each next one twice as wide."""
    seconds: Floats
    """How long an object had been watched when it told; 0: it never has."""
    rates: Floats
    """Updates a second, by object: at width 0, then by rung."""
    age: Floats
    """Seconds since then, in which it has sent nothing."""


@dataclass(frozen=True)
class Curves:
    """Least rates by width: convex, falling, from width 0 on; arrays by object and point.

    Between two points a curve is the line that joins them: the width that a mixture of the two has on
    average. ``slopes`` are what a unit of width saves there.
    """

    widths: Floats
    rates: Floats

    @property
    def slopes(self) -> Floats:
        """By object and segment, falling along each curve; 0 where a segment has no length."""
        length = np.diff(self.widths, axis=1)
        fall = -np.diff(self.rates, axis=1)
        return np.divide(fall, length, out=np.zeros(length.shape), where=length > 0)

    def at(self, widths: Floats) -> Floats:
        """The rates at some widths, one for each object; 0 beyond every curve's end only if it ends there."""
        points = self.widths.shape[1]
        place = np.clip((self.widths <= widths[:, None]).sum(axis=1) - 1, 0, points - 2)
        rows = np.arange(len(widths))
        low, high = self.widths[rows, place], self.widths[rows, place + 1]
        part = np.divide(
            np.minimum(widths, high) - low, high - low, out=np.zeros(len(widths)), where=high > low
        )
        found: Floats = self.rates[rows, place] + part * (
            self.rates[rows, place + 1] - self.rates[rows, place]
        )
        return found


def known_curves(told: Told, widths: Floats, period: float, between: int = 0) -> Curves:
    """The curves that follow from what was told, from how long each object has been silent, and its width.

    At widths from the one in use on, an object that is silent has sent nothing since: its rate fades. At
    narrower ones nothing new is known, but who is quiet is so at all widths, as a rule: rates fade there too,
    the less the narrower. What was told counts by how long it had been watched, against the assumption that
    the object sends the more often the narrower it is, once since it was last heard at the width in use.
    ``between`` as many points are put between two rungs, by a power of the width.

    >>> told = Told(np.array([0]), np.array([0.0]), np.zeros((1, 3)), np.array([90.0]))
    >>> known_curves(told, np.array([2.0]), 10.0).rates.round(3).tolist()
    [[0.04, 0.02, 0.0]]
    """
    objects, points = told.rates.shape
    widths_at, found = np.zeros((objects, points)), np.empty((objects, points))
    for start in range(0, objects, AT_A_TIME):
        part = slice(start, start + AT_A_TIME)
        ladder = np.ldexp(1.0, told.lowest[part, None] + np.arange(points - 1))
        widths_at[part, 1:] = ladder
        # of width 0 no law of widths can say anything: twice the narrowest rung's
        ladder = np.concatenate([ladder[:, :1] / 2, ladder], axis=1)
        rates = np.minimum.accumulate(told.rates[part], axis=1)
        watched, age, width = told.seconds[part, None], told.age[part, None], widths[part, None]
        since = np.maximum(watched + age, np.finfo(np.float64).tiny)
        doubt = UNKNOWN_PERIODS * period
        octaves = _octaves_below(told.lowest[part], widths[part], points)
        faded = rates * np.exp(np.log(np.maximum(watched / since, 1e-300)) * _SAID[octaves])
        assumed = np.where(np.isfinite(width), width, 0.0) / ladder / (age + period)
        mixed = (faded * watched + doubt * assumed) / (watched + doubt)
        known = np.where(ladder >= width * 0.999, rates * (watched / since), mixed)
        found[part] = np.minimum.accumulate(known, axis=1)
    return hulls(*_refined(widths_at, found, between))


def _octaves_below(lowest: Ints, widths: Floats, points: int) -> Ints:
    """By object and point: how many octaves it is below the width in use; many, where that is infinite."""
    power = np.where(np.isfinite(widths), np.frexp(widths)[1] - 1 - lowest, len(_SAID))
    # of width 0 as of half the narrowest rung
    found: Ints = np.clip(power[:, None] - np.arange(-1, points - 1), 0, len(_SAID) - 1)
    return found


def _refined(widths: Floats, rates: Floats, between: int) -> tuple[Floats, Floats]:
    """More points between the rungs of a ladder, where a rate is taken to fall as a power of the width.

    Between the two last ones with a rate and those without, nothing is known: a line joins them.
    """
    if not between:
        return widths, rates
    objects = len(widths)
    share = np.arange(between + 1) / (between + 1)
    low, high = rates[:, 1:-1, None], rates[:, 2:, None]
    ratio = np.divide(high, low, out=np.zeros(low.shape), where=low > 0)
    straight = low + (high - low) * (np.exp2(share) - 1)
    fine = np.where(ratio > 0, low * np.maximum(ratio, 1e-300) ** share, straight)
    grid = widths[:, 1:-1, None] * np.exp2(share)
    parts = [(widths, grid), (rates, fine)]
    refined = [
        np.concatenate([a[:, :1], f.reshape(objects, -1), a[:, -1:]], axis=1, dtype=np.float64)
        for a, f in parts
    ]
    return refined[0], refined[1]


AT_A_TIME = 8192
"""Objects that are worked on together: what they need fits into the processor's cache."""
FEW = 100
"""Objects up to which one call is quicker than a loop over points."""


def hulls(widths: Floats, rates: Floats) -> Curves:
    """The lower convex hulls of falling curves, at the same widths.

    Guarantee: convex, falling, nowhere above the given points, and equal to them at the hull's corners.
    Variant: a hull's slopes are the nearest falling ones to the given slopes, weighted by length, and those
    are least of largest means (isotonic regression by the min-max formula), so all objects go at once.

    >>> found = hulls(np.array([[0.0, 1.0, 2.0, 4.0]]), np.array([[8.0, 7.0, 2.0, 0.0]]))
    >>> found.rates.tolist()
    [[8.0, 5.0, 2.0, 0.0]]
    """
    hull = np.empty_like(rates)
    for start in range(0, len(widths), AT_A_TIME):
        part = slice(start, start + AT_A_TIME)
        hull[part] = _hull(np.ascontiguousarray(widths[part].T), np.ascontiguousarray(rates[part].T)).T
    return Curves(widths, hull)


def _hull(widths: Floats, rates: Floats) -> Floats:
    """Hulls by point and object."""
    last = len(widths) - 1
    slopes = np.full((last, widths.shape[1]), np.inf)
    for first in range(last):
        # means of all stretches from here, the largest of those that reach at least so far
        length = np.maximum(widths[first + 1 :] - widths[first], np.finfo(np.float64).tiny)
        means = (rates[first] - rates[first + 1 :]) / length
        if widths.shape[1] <= FEW:
            means = np.maximum.accumulate(means[::-1], axis=0)[::-1]
        else:
            for place in range(last - 1 - first, 0, -1):
                np.maximum(means[place - 1], means[place], out=means[place - 1])
        np.minimum(slopes[first:], means, out=slopes[first:])
    falls = slopes * np.diff(widths, axis=0)
    hull = np.empty_like(rates)
    hull[0] = rates[0]
    np.subtract(rates[0], np.cumsum(falls, axis=0), out=hull[1:])
    # the end is the given one, whatever the sums have lost
    hull[-1] = rates[-1]
    kept: Floats = np.maximum(hull, rates[-1])
    return kept
