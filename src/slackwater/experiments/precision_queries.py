"""``reproduce precision-queries``: five queries that overlap, over measurement groups, Fig. 8.

From packets: the queries Q1 to Q5 of the paper's Example 2 over ten hosts. At each host the packets fall into
groups by which of the five queries they are in; a group is an object, its value a moving rate over a minute,
told every second. A query is the average over the hosts of the sum of its groups. Groups in which there never
is a packet are no objects: they would only take width away from equal allocation.

From hosts: five queries over what some 190 hosts receive and send, every five minutes: (Q2) received by all,
(Q5) received and sent by all, and three over a random fifth to third of the hosts: (Q1, Q3) received, (Q4)
sent.

The constraint is that of Q2 and Q5; the others' is as much smaller as what they measure (the paper's: 100
times).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from slackwater.experiments.precision_data import (
    EXTERNAL,
    INCOMING,
    LOGINS,
    LOOKUPS,
    QUERIES,
    SOURCES,
    SYNS,
    Packets,
    generated_packets,
    hosts,
    moving_rates,
    real_packets,
)
from slackwater.experiments.precision_schemes import Burden, ByCurves, Static
from slackwater.experiments.precision_simulation import Counted, Results, simulated
from slackwater.planners.precision_constraints import (
    Bools,
    Constraints,
    Floats,
    Ints,
    constrained,
    total,
)

PAPERS_SHRINK = 0.05


@dataclass(frozen=True)
class Sizes:
    """How much is simulated."""

    seconds: int
    warm_up: int
    host_steps: int
    hosts: int
    within: dict[str, tuple[float, ...]]
    """By data set: the constraints of Q2 and Q5."""


FULL = Sizes(
    3600,
    600,
    4320,
    190,
    {
        "generated": (1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
        "packets": (0.1, 0.2, 0.5, 1.0, 2.0, 4.0),
        "hosts": (5.0, 20.0, 50.0, 200.0, 1000.0),
    },
)
QUICK = Sizes(300, 100, 300, 20, {"generated": (8.0,), "packets": (0.5,), "hosts": (100.0,)})


@dataclass(frozen=True)
class Workload:
    """Objects and which of them each query sums up; a query's answer is that sum over ``sources``."""

    values: Floats
    members: Bools
    """Queries by objects."""
    sources: int
    real: bool
    warm_up: int

    def asked(self, within: float) -> Constraints:
        """Constraints as large as what each query measures, against Q2."""
        mean = (self.values @ self.members.T).mean(axis=0)
        share = np.minimum(mean / mean[INCOMING], 1.0)
        share[EXTERNAL] = 1.0
        queries = [
            total(np.flatnonzero(row), within * part * self.sources)
            for row, part in zip(self.members, share, strict=True)
            if row.any()
        ]
        return constrained(queries, self.values.shape[1])


def grouped(packets: Packets) -> tuple[Ints, Ints]:
    """The measurement group of each packet; and of each group its host, times 32, and its queries as bits."""
    subset = packets.matches @ (1 << np.arange(QUERIES))
    known, group = np.unique(packets.source * 2**QUERIES + subset, return_inverse=True)
    return group.astype(np.int64), known.astype(np.int64)


def from_packets(packets: Packets, sizes: Sizes) -> Workload:
    group, known = grouped(packets)
    members = (known[None, :] >> np.arange(QUERIES)[:, None]) & 1 == 1
    return Workload(moving_rates(packets, group, len(known)), members, SOURCES, packets.real, sizes.warm_up)


def from_hosts(sizes: Sizes) -> Workload:
    received, sent = (hosts(f"2013-07_{way}", sizes.host_steps) for way in ("rx", "tx"))
    number = min(sizes.hosts, received.values.shape[1], sent.values.shape[1])
    rng = np.random.default_rng(5)
    members = np.zeros((QUERIES, 2 * number), bool)
    members[INCOMING, :number] = True
    members[EXTERNAL] = True
    for query, share, first in ((LOGINS, 0.2, 0), (SYNS, 0.33, 0), (LOOKUPS, 0.25, number)):
        members[query, first + rng.choice(number, round(share * number), replace=False)] = True
    values = np.concatenate([received.values[:, :number], sent.values[:, :number]], axis=1)
    return Workload(values, members, number, received.real, 0)


def _real(sizes: Sizes) -> Workload | None:
    packets = real_packets(sizes.seconds)
    return None if packets is None else from_packets(packets, sizes)


WORKLOADS: dict[str, Callable[[Sizes], Workload | None]] = {
    "generated": lambda sizes: from_packets(generated_packets(sizes.seconds), sizes),
    "packets": _real,
    "hosts": from_hosts,
}


def precision_queries(spark: Any, folder: Path, sizes: Sizes, shown: Progress) -> Results:
    """All figures of the experiment; Spark has no part in it, and nothing is written."""
    results = Results()
    task = shown.add_task("constraints", total=sum(map(len, sizes.within.values())))
    violations = 0
    for name, made in WORKLOADS.items():
        workload = made(sizes)
        results.figures[f"real.{name}"] = float(workload is not None and workload.real)
        if workload is None:
            shown.advance(task, len(sizes.within[name]))
            continue
        results.figures[f"objects.{name}"] = workload.values.shape[1]
        panel = results.series.setdefault(name, {"within": list(sizes.within[name])})
        for within in sizes.within[name]:
            runs = _measured(workload, workload.asked(within))
            violations += sum(run.violations for run in runs.values())
            costs = {scheme: run.a_step(workload.warm_up) for scheme, run in runs.items()}
            costs["burden"] = min(costs["burden.paper"], costs["burden.fitted"])
            for scheme, cost in costs.items():
                panel.setdefault(scheme, []).append(cost)
                results.figures[f"{scheme}.{name}.{within:g}"] = cost
                if scheme != "uniform" and costs["uniform"] > 0:
                    ratio = cost / costs["uniform"]
                    results.figures[f"{scheme.replace('.', '_')}_over_uniform.{name}.{within:g}"] = ratio
            shown.advance(task)
    results.figures["violations"] = violations
    return results


def _measured(workload: Workload, constraints: Constraints) -> dict[str, Counted]:
    """Equal widths, the paper's allocation (its own shrink, and the fitted one), and ours."""
    values, ones = workload.values, np.ones(constraints.objects)
    runs = {"uniform": simulated(values, constraints, Static(constraints))}
    for name, shrink in (("paper", PAPERS_SHRINK), ("fitted", None)):
        burden = Burden(constraints, ones, np.random.default_rng(1), shrink)
        runs[f"burden.{name}"] = simulated(values, constraints, burden)
    chosen = ByCurves(constraints, ones)
    runs["curves"] = simulated(values, constraints, chosen, placing="following")
    return runs
