"""What is known at a tick, what is asked of the rows of a matrix then, and what an evaluation finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from slackwater.language.contracts import Drift
from slackwater.plan.model import Move
from slackwater.planners.manner import Manner
from slackwater.runtime.current.history import History
from slackwater.runtime.current.linear import Aggregate, Motions
from slackwater.runtime.current.matrix import Values
from slackwater.statistics.diffusion import Floats
from slackwater.statistics.series import Bools, Ints


@dataclass(frozen=True)
class Tick:
    """What is known at a tick."""

    now: int
    gap: int
    """Microseconds to the tick after it, as far as the last ones tell."""
    series: Motions
    unheard: Motions
    """How keys move while some are silent, beside what is modelled of these."""
    values: Values
    """With what is modelled of keys that are interrupted."""
    held: Values
    """What the keys said last."""
    silent: Bools
    """The keys that are interrupted."""
    history: History | None
    longest: int
    """The longest that an evaluation is put off."""
    resting: int
    """How often a query is evaluated while a key of it is interrupted: the paper's T."""
    gone: Floats
    """By signal and key: how far it has gone while it was silent."""
    spread: Floats
    """By signal and key: its standard deviation up to the next evaluation of an interrupted query."""
    manner: Manner = field(default_factory=Manner)
    number: int = 0
    """How many ticks there have been."""
    span: float = 1.0
    """Seconds from which drifts are known."""


@dataclass(frozen=True)
class Asked:
    """What is asked of some rows of a matrix: an item of a query, at a tick."""

    aggregate: Aggregate
    move: Move | None
    contract: Drift
    tick: Tick
    cached: Floats
    """By row: the answer that stands; of extremes since a landmark, the one to go on from."""
    factor: Floats
    """By row: what variances are multiplied by, as evaluations have shown."""
    rows: Ints
    """Which rows of all they are, in order."""
    count: int
    """How many are asked about in all."""
    since: int
    """The tick up to which the extremes to go on from are known."""


@runtime_checkable
class Sharded(Protocol):
    """A matrix whose rows are evaluated elsewhere."""

    def evaluated(self, asked: Asked) -> tuple[Evaluated, Bools]: ...

    def planned(self, asked: Asked) -> tuple[Floats, Floats]: ...

    def said(self, asked: Asked) -> tuple[Floats, Floats]: ...


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation found, by row."""

    value: Floats
    known: Floats
    """Of extremes since a landmark: without what is modelled of keys that are interrupted."""
    drift: Floats
    variance: Floats
    wait: Floats
    """Seconds until the next one."""
    longest: Floats
    """Seconds that it may be put off where more misses are to be spent."""
    scanned: Floats
    """Seconds after which it must be whatever is known of how it moves: what leaves a window, a limit."""
    width: Floats
    """Half of the interval that holds the truth with the belief."""
    modelled: Bools
    counted: Floats
    """Current rows that it rests on."""


def bound_of(contract: Drift, value: Floats) -> Floats:
    """How far from a cached answer the truth may be."""
    if contract.relative:
        return contract.bound * np.abs(value)
    return np.full(value.shape, contract.bound)
