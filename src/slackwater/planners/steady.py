"""Rates of one batch after those of the last: few different ones, and no jumps without a reason."""

from __future__ import annotations

from collections.abc import Mapping

from slackwater.plan.slots import COUNTERS_AT_MOST, rare

DOWN, UP = 0.7, 0.35
"""How much of the way to what is planned a rate goes at once, in powers: down faster than up."""


def steadied(planned: Mapping[str, float], last: Mapping[str, float]) -> dict[str, float]:
    """Rates between the last ones and those planned, for a batch like the last one.

    Guarantee: what is given up, and what was given up before, follows the plan at once.

    >>> {s: round(r, 4) for s, r in steadied({"a": 0.01, "b": 0.0, "c": 0.5}, {"a": 0.04, "b": 0.1}).items()}
    {'a': 0.0152, 'b': 0.0, 'c': 0.5}
    """
    found = dict(planned)
    for slot, rate in planned.items():
        before = last.get(slot, 0.0)
        if rate > 0.0 and before > 0.0:
            found[slot] = before * (rate / before) ** (DOWN if rate < before else UP)
    return found


def together(rates: Mapping[str, float]) -> dict[str, float]:
    """Rates under which the rare groups of a slot are not given up while its frequent ones are kept.

    >>> together({"a": 0.5, "a/rare": 0.0, "b": 0.0})
    {'a': 0.5, 'a/rare': 0.5, 'b': 0.0}
    """
    found = dict(rates)
    for slot in rates:
        if (other := rare(slot)) in rates and 0.0 in (rates[slot], rates[other]):
            found[slot] = found[other] = max(rates[slot], rates[other])
    return found


def in_classes(rates: Mapping[str, float], classes: int = COUNTERS_AT_MOST) -> dict[str, float]:
    """Rates made at most so many different ones, each raised to the largest of its class.

    >>> in_classes({"a": 0.1, "b": 0.11, "c": 0.5}, 2)
    {'a': 0.11, 'b': 0.11, 'c': 0.5}
    """
    distinct = sorted(set(rates.values()))
    if len(distinct) <= classes:
        return dict(rates)
    gaps = sorted(
        range(1, len(distinct)), key=lambda i: distinct[i - 1] / distinct[i] if distinct[i] else 1.0
    )
    cuts = [*sorted(gaps[: classes - 1]), len(distinct)]
    upper: dict[float, float] = {}
    first = 0
    for cut in cuts:
        upper.update(dict.fromkeys(distinct[first:cut], distinct[cut - 1]))
        first = cut
    return {slot: upper[rate] for slot, rate in rates.items()}
