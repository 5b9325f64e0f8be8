"""What repetitions of a run show: how often intervals hold the truth, and how large errors are on average."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from slackwater.experiments.accuracy import relative_errors
from slackwater.experiments.replica import Rates, Replica, Stream, draw
from slackwater.experiments.runs import Answers, Floats, Ints, Run, Strategy
from slackwater.experiments.workload import CONFIDENCE

FIRST_SALT = 1000
"""Repetitions take the salts from here on."""


class Unfaithful(AssertionError):
    """The replica does not give a run's own answers: nothing it says about other salts means anything."""


@dataclass(frozen=True)
class Repeated:
    """What many salts gave, for one run."""

    average: float
    """The average error as section 5.2 has it, over all salts."""
    worst: float
    """The largest error of any second, on average over the salts."""
    coverage: Mapping[str, float]
    """By query: the share of windows whose interval held the truth."""

    @property
    def shortfall(self) -> float:
        """By how much the claimed confidence exceeds the least coverage."""
        return max(CONFIDENCE - share for share in self.coverage.values())


def replicas(run: Run, strategy: Strategy, stream: Stream, ends: Ints) -> dict[str, Replica]:
    own = {name: run.rates(name) for name in stream.queries}
    sized = np.array([bool(ruling.sizes) for ruling in run.governor.rulings])
    # to know a row's size it must be read
    root = np.where(sized, 1.0, np.max(list(own.values()), axis=0))
    found = {}
    for name, query in stream.queries.items():
        alone = run.plan.tables[run.step(name).tables[0]].path is not None
        rates = Rates(own[name], root, run.taus(name), strategy.calibrated, alone)
        found[name] = Replica(stream, query, rates, run.step(name), ends)
    return found


def check_faithful(run: Run, strategy: Strategy, stream: Stream, salt: int, ends: Ints) -> float:
    """The largest relative difference between the run's answers and the replica's; raises where it is any."""
    u = draw(stream, salt)
    worst, where = 0.0, ""
    for name, replica in replicas(run, strategy, stream, ends).items():
        mine, theirs = replica.answers(u), run.answers[name].at(ends)
        for part in ("value", "low", "high"):
            a, b = getattr(mine, part), getattr(theirs, part)
            scale = np.maximum(np.abs(b), 1.0)
            off = float(np.max(np.abs(a - b) / scale))
            if not off <= worst:
                worst, where = off, f"{part} of {name}"
    if not worst < 1e-9:
        raise Unfaithful(f"{strategy.name}: the replica's {where} is off by {worst:.2g}")
    return worst


def repeat(
    run: Run,
    strategy: Strategy,
    stream: Stream,
    truth: Mapping[str, Answers],
    ends: Ints,
    salts: int,
) -> Repeated:
    """Draw the run's sample again under other salts."""
    made = replicas(run, strategy, stream, ends)
    true = {name: answers.at(ends).value for name, answers in truth.items()}
    largest: list[Floats] = []
    # what nothing is dropped of is exact whatever the salt
    drawn = {name: replica for name, replica in made.items() if (replica.rates.own < 1).any()}
    held = {name: 0.0 if name in drawn else float(salts) for name in made}

    def once(salt: int) -> tuple[Floats, dict[str, float]]:
        u, errors, inside = draw(stream, salt), [np.zeros(len(ends))], {}
        for name, replica in drawn.items():
            found = replica.answers(u)
            errors.append(relative_errors(found.value, true[name]))
            inside[name] = float(np.mean((found.low <= true[name]) & (true[name] <= found.high)))
        return np.max(errors, axis=0), inside

    with ThreadPoolExecutor(os.cpu_count()) as workers:
        for errors, inside in workers.map(once, range(FIRST_SALT, FIRST_SALT + salts)):
            largest.append(errors)
            for name, share in inside.items():
                held[name] += share
    every = np.array(largest)
    return Repeated(
        average=float(every.mean()),
        worst=float(every.max(axis=1).mean()),
        coverage={name: total / salts for name, total in held.items()},
    )
