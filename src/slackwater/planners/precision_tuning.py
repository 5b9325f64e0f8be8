"""How often widths are adjusted, and how much of them goes by itself: fitted to what the data do.

The paper leaves both to future work (section 5). What was found by simulation:

* *The period belongs to the time scale of the data.* Response curves are learnt from values, not from
  seconds: on random walks, hosts and packets alike messages are about the fewest with ten values in a period.
  `reproduce precision-tuning` has what that saves where values come more or less often than once a second.
* *The shrink* of `burden` has a flat optimum: below what is fitted to the number of objects where the world
  stands still, near it where the world changes. So it is lowered as long as that costs nothing, and raised
  again when messages become more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from slackwater.planners.precision_constraints import Bools, Floats

PERIOD = 10_000_000
"""Microseconds: the paper's, from which periods are doubled and halved."""
VALUES = 10.0
"""Changes of a typical object in a period."""
HALVINGS, DOUBLINGS = 3, 13
STAY = 0.75
"""Octaves by which a period may be off before it is changed: then it is not changed back by chance."""
SEEN = 3.0
"""Changes of an object that must have been counted before its rate says something."""
ENOUGH = 3
"""Objects of which that must be known, or half of them where there are fewer."""

LOWEST = 0.25
"""The least part of the fitted shrink: what changes must still be followed."""
GENERATION = 1.0
"""After how many times 1/S periods a shrink is judged: by then all widths are of its making."""
SHORTEST = 20
"""Periods for which it is judged at least."""
WORSE = 0.05
"""By how much messages must become more to take a lowered shrink back; chance comes on top."""


def fitted_period(changes: Floats, watched: Floats, among: Bools, last: int, least: int) -> int:
    """The period, in microseconds, in which a typical object changes ten times.

    ``changes`` a second and for how long they were ``watched``, by object, ``among`` those that count; never
    below ``least``. Guarantee: a function of what was told and of the last period; one that is off by less
    than ``STAY`` octaves stays.

    >>> every, told = np.ones(4, bool), np.full(4, 1200.0)
    >>> fitted_period(np.full(4, 1 / 60), told, every, PERIOD, 2_000_000) / 1e6
    640.0
    >>> fitted_period(np.full(4, 0.7), told, every, PERIOD, 2_000_000) / 1e6
    10.0
    """
    known = among & (changes * watched >= SEEN)
    if known.sum() < min(ENOUGH, max(1, int(among.sum()) // 2)):
        return max(last, least)
    typical = float(np.median(changes[known]))
    octaves = math.log2(VALUES / typical * 1e6 / PERIOD)
    if abs(octaves - math.log2(last / PERIOD)) <= STAY and last >= least:
        return last
    found = round(PERIOD * 2.0 ** min(max(round(octaves), -HALVINGS), DOUBLINGS))
    while found < least:
        found *= 2
    return found


@dataclass(frozen=True)
class Shrinking:
    """What part of the fitted shrink is in use, and what is known of its cost."""

    part: float = 1.0
    periods: int = 0
    messages: float = 0.0
    """Since this part is in use."""
    before: float | None = None
    """Messages in a period of the part before it; None: there was none."""
    spread: float = 0.0
    """The standard deviation of that mean."""


def judged(state: Shrinking, messages: float, fitted: float) -> Shrinking:
    """The part of the fitted shrink for the next period, after one with so many messages.

    Guarantee: between ``LOWEST`` and 1, deterministic. It is halved after each generation that did not cost
    more than the one before, and 1 again after one that did: by ``WORSE``, and by more than chance explains
    (counts are taken to vary twice as much as independent ones do).

    >>> state = Shrinking()
    >>> for _ in range(60): state = judged(state, 30.0, 0.05)
    >>> state.part
    0.25
    >>> for _ in range(80): state = judged(state, 45.0, 0.05)
    >>> state.part
    1.0
    """
    state = replace(state, periods=state.periods + 1, messages=state.messages + messages)
    length = max(SHORTEST, math.ceil(GENERATION / max(fitted * state.part, 1e-6)))
    if state.periods < length:
        return state
    mean = state.messages / state.periods
    spread = 2 * math.sqrt(max(state.messages, 1.0)) / state.periods
    worse = False
    if state.before is not None:
        chance = 2 * math.hypot(spread, state.spread)
        worse = mean - state.before > WORSE * state.before + chance
    part = 1.0 if worse else max(LOWEST, state.part / 2)
    return Shrinking(part, before=mean, spread=spread)
