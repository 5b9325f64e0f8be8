"""What EXPLAIN shows of a stream that agents send: widths, and how many messages they cost."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from slackwater.edge.widths import Floats
from slackwater.runtime.bounds.belief import Belief, LiveSum
from slackwater.runtime.bounds.mirror import Mirror
from slackwater.runtime.bounds.queries import BoundedQuery
from slackwater.runtime.bounds.weighing import Weighed

SECONDS = 60.0
"""Over which messages are counted."""
SHOWN = 5
"""Agents that are named: those that are away, and those whose messages cost something else."""


@dataclass(frozen=True)
class Told:
    """What agents have sent of a stream: of keys, and of sums of keys."""

    updates: int
    rate: float
    """Updates a second."""
    late: int | None
    """Those that came after the tolerance; None where a query heeds LATENESS and not that."""


class Rates:
    """Messages of the last minute, up and down."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int, int]] = deque()
        self._granted = 0

    def note(self, time: int, rows: int, granted: int) -> None:
        """How many rows there have been up to a time, and grants that are made now."""
        self._granted += granted
        self._seen.append((time, rows, self._granted))
        while len(self._seen) > 2 and time - self._seen[1][0] > SECONDS * 1e6:
            self._seen.popleft()

    @property
    def up(self) -> float:
        """Rows a second."""
        return self._a_second(1)

    @property
    def down(self) -> float:
        """Grants a second."""
        return self._a_second(2)

    def _a_second(self, what: int) -> float:
        if len(self._seen) < 2:
            return 0.0
        first, last = self._seen[0], self._seen[-1]
        return (last[what] - first[what]) / max((last[0] - first[0]) / 1e6, 1e-9)


def used_of(item: Weighed, bounds: tuple[Floats, Floats]) -> float | None:
    """The width of the widest interval that bounds make of an item's groups.

    None where some group has no interval, since an agent is away for instance; and of an extreme, whose
    objects share no width.
    """
    if item.least is not None:
        return None
    low, high = item.ends(np.arange(item.weights.shape[0]), *bounds)
    # a group of which there is nothing has no width either
    wide = (high - low)[~np.isnan(low)]
    widest = float(wide.max(initial=0.0))
    return widest if np.isfinite(widest) else None


def described(
    stream: str, mirror: Mirror, queries: list[BoundedQuery], rates: Rates, now: int, manner: str
) -> list[str]:
    """Lines on a stream, on how its widths are adjusted, and on each of its queries under PRECISION."""
    belief = mirror.belief
    widths, bounds = belief.widths(slice(None), now), belief.bounds(slice(None), now)
    there = sum(not agent.lost for agent in mirror.agents.values())
    keys = int((belief.here & ~belief.summed).sum())
    lines = [
        f"agents of {stream}: {there} of {len(mirror.agents)} there, {keys} keys, "
        f"{rates.up:.3g} updates and {rates.down:.3g} grants a second, "
        f"{mirror.queue.late} of {mirror.queue.rows} rows late",
    ]
    if away := sorted(name for name, agent in mirror.agents.items() if agent.lost):
        lines.append(f"  away: {_some(away)}")
    lines.append(f"  {manner}")
    if mirror.unread:
        lines.append(f"  {mirror.unread} words of agents could not be read, and were passed over")
    lines += _sums(belief)
    dear = {name: agent.cost for name, agent in mirror.agents.items() if agent.cost != 1}
    if dear:
        shown = [f"{name} {cost:g}" for name, cost in sorted(dear.items(), key=lambda d: -d[1])]
        lines.append(f"  a message costs 1, of {_some(shown)}")
    if apart := int((mirror.cost != 1).sum()):
        own = mirror.cost[mirror.cost != 1]
        lines.append(f"  messages of {apart} keys cost {own.min():g} to {own.max():g} times that")
    for query in queries:
        items = query.means.told if query.ready and query.means is not None else query.items
        for output, item in zip(query.outputs(), items, strict=True):
            if not item.weights.nnz and len(query.counted):
                lines.append(f"  {query.step.name}.{output.name}: counted, whatever the widths")
                continue
            own = widths[np.unique(item.weights.indices)]
            own = own[np.isfinite(own)]
            if not len(own):
                lines.append(f"  {query.step.name}.{output.name}: no bounds yet")
                continue
            used = used_of(item, bounds)
            known = "–" if used is None else f"{used:.4g}"
            spent = f", {known} of {query.contract.width:g} used" if item.least is None else ""
            lines.append(
                f"  {query.step.name}.{output.name}: widths {own.min():.4g} to {own.max():.4g}, "
                f"half of them up to {np.median(own):.4g}{spent}"
            )
    return lines


def _some(names: list[str]) -> str:
    """The first of some names, and how many more there are.

    >>> _some(["a", "b"]), _some(list("abcdefg"))
    ('a, b', 'a, b, c, d, e and 2 more')
    """
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _sums(belief: Belief) -> list[str]:
    """What agents tell instead of each key at every moment."""
    lines = []
    now = [s for s in belief.live.values() if not s.window]
    if now:
        by_query = sum(bool(s.scope) for s in now)
        ways = ((len(now) - by_query, "by group"), (by_query, "by query"))
        how = " and ".join(f"{n} {way}" for n, way in ways if n)
        lines.append(f"  sums of {_keys(now)} keys are told in their place: {how}")
    for window in sorted({s.window for s in belief.live.values() if s.window}):
        some = [s for s in belief.live.values() if s.window == window]
        over = f"{window / 1e6:g} s"
        lines.append(
            f"  means of {_keys(some)} keys over {over} are told instead of what they are at every moment"
        )
    return lines


def _keys(sums: list[LiveSum]) -> int:
    return len(np.unique(np.concatenate([s.members for s in sums])))
