"""The queries of a stream that read its current values: which are sparse matrices, and what they read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from slackwater.language.contracts import Drift
from slackwater.language.statements import CreateStream
from slackwater.plan.catalog import Catalog
from slackwater.plan.linear import Linear, NotLinear, linear_form
from slackwater.plan.model import Step

TICK = 1_000_000
"""Microseconds between two ticks where a stream does not say."""
_COLUMN = re.compile(r"(\w+)\.`((?:[^`]|``)+)`")
_PLAIN_NUMBERS = ("INT", "INTEGER", "SMALLINT", "SHORT", "TINYINT", "BYTE", "DOUBLE", "FLOAT", "REAL")
_WIDE_NUMBERS = ("BIGINT", "LONG", "DECIMAL", "DEC", "NUMERIC")


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
    steps = [s for s in catalog.queries.values() if s.current and s.stream.lower() == stream.lower()]
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
    return form if _exact_in_doubles(step, stream, catalog) else None


def _exact_in_doubles(step: Step, stream: CreateStream, catalog: Catalog) -> bool:
    """Whether all numbers that are aggregated, and what becomes of them, are what doubles hold exactly.

    Large whole numbers and decimals are not, nor are texts and times: of these Spark makes the answers.
    """
    types = {("s", c.name): c.type for c in stream.columns}
    for lookup in step.path.lookups:
        table = catalog.tables[lookup.table.lower()]
        types |= {(lookup.alias, c.name): c.type for c in table.columns}
    for call in step.calls:
        if call.function == "count":
            continue
        for argument in call.arguments:
            for alias, name in _COLUMN.findall(argument):
                kind = types.get((alias, name.replace("``", "`")), "DOUBLE").upper()
                if kind.split("(")[0].strip() not in _PLAIN_NUMBERS:
                    return False
            # 1.5 is a decimal in Spark, and so is what is made of it
            if re.search(r"\d\.\d|\.\d|\d\.(?!\w)", _COLUMN.sub("", argument)) and "DOUBLE" not in {
                types.get((a, n), "").upper() for a, n in _COLUMN.findall(argument)
            }:
                return False
    return True
