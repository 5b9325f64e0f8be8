"""Queries whose PRECISION was altered: which width is enforced, beside the one that is promised.

Reference: section 3.4 of the precision paper. A looser constraint is taken with the next adjustment. A
tighter one is enforced at once if it is IMMEDIATE; else with the next adjustment, or, where widths shrink by
themselves, not at all: they get there without a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slackwater.language.contracts import Precision
from slackwater.plan.model import Step
from slackwater.runtime.bounds.queries import BoundedQuery


class Altered:
    """By query: the width that is enforced. What answers promise is the query's own."""

    def __init__(self) -> None:
        self._steps: dict[str, Step] = {}
        self._enforced: dict[str, float] = {}

    def take(self, queries: Sequence[BoundedQuery]) -> None:
        """Have these queries: one that was there before, with another width, was altered; others are new."""
        steps = {query.step.name: query.step for query in queries}
        enforced = {}
        for name, step in steps.items():
            before, wanted = self._steps.get(name), _contract(step)
            altered = before is not None and replace(before, contract=None) == replace(step, contract=None)
            held = self._enforced[name] if altered else wanted.width
            at_once = wanted.immediate and wanted.width < held
            enforced[name] = wanted.width if at_once else held
        self._steps, self._enforced = steps, enforced

    def enforced(self, query: BoundedQuery) -> float:
        """The width that bounds are narrowed to where they are wider."""
        return self._enforced[query.step.name]

    def least(self, query: BoundedQuery) -> float:
        """The width that bounds do not grow beyond."""
        return min(self._enforced[query.step.name], query.contract.width)

    @property
    def looser(self) -> bool:
        """Whether a looser width is still to be enforced."""
        return any(_contract(step).width > self._enforced[name] for name, step in self._steps.items())

    @property
    def tighter(self) -> bool:
        """Whether a tighter width is still to be enforced."""
        return any(_contract(step).width < self._enforced[name] for name, step in self._steps.items())

    def enforce(self, *, tighter: bool) -> None:
        """Enforce looser widths from now on, and tighter ones if so said."""
        for name, step in self._steps.items():
            wanted = _contract(step).width
            if tighter or wanted > self._enforced[name]:
                self._enforced[name] = wanted


def _contract(step: Step) -> Precision:
    assert isinstance(step.contract, Precision)
    return step.contract
