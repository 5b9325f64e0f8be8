"""The queries of a stream that read its current values: which are sparse matrices, and what they read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from slackwater.language.contracts import Drift, Precision
from slackwater.language.statements import CreateStream
from slackwater.plan.catalog import Catalog
from slackwater.plan.doubles import inexact_in_doubles
from slackwater.plan.linear import Linear, NotLinear, linear_form
from slackwater.plan.model import Step

TICK = 1_000_000
"""Microseconds between two ticks where a stream does not say."""


@dataclass(frozen=True)
class CurrentStep:
    """A published query over current values; without a linear form Spark evaluates it."""

    step: Step
    linear: Linear | None

    @property
    def drift(self) -> Drift | None:
        """The contract, where evaluations may be deferred."""
        contract = self.step.contract
        return contract if isinstance(contract, Drift) else None


@dataclass(frozen=True)
class CurrentPlan:
    """What is to be kept of each key of a stream, and for whom."""

    stream: CreateStream
    steps: tuple[CurrentStep, ...]

    @property
    def tick(self) -> int:
        return self.stream.tick or TICK

    @cached_property
    def signals(self) -> tuple[str, ...]:
        """What is read of a key's current row by those that are matrices, in a fixed order."""
        found = (s for step in self.steps if step.linear is not None for s in step.linear.signals)
        return tuple(dict.fromkeys(found))

    @property
    def deferred(self) -> bool:
        """Whether drift and diffusion are learnt."""
        return any(step.drift is not None for step in self.steps)


def current_plan(catalog: Catalog, stream: str) -> CurrentPlan | None:
    """The plan of a stream's current values; None where no query reads them."""
    declared = catalog.streams[stream.lower()]
    steps = [
        s
        for s in catalog.queries.values()
        # what agents bound is evaluated from bounds
        if s.current and s.stream.lower() == stream.lower() and not isinstance(s.contract, Precision)
    ]
    if not steps:
        return None
    return CurrentPlan(declared, tuple(CurrentStep(s, _linear(s, declared, catalog)) for s in steps))


def _linear(step: Step, stream: CreateStream, catalog: Catalog) -> Linear | None:
    """The linear form of a step, where doubles do for it."""
    if not step.aggregates:
        return None
    try:
        form = linear_form(step, stream)
    except NotLinear:
        return None
    if isinstance(step.contract, Drift) or step.moves:
        return form
    return form if inexact_in_doubles(step, stream, catalog.tables) is None else None
