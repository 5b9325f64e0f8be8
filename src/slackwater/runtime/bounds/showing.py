"""What EXPLAIN shows of a stream that agents send: widths, and how many messages they cost."""

from __future__ import annotations

from collections import deque

import numpy as np

from slackwater.runtime.bounds.mirror import Mirror
from slackwater.runtime.bounds.queries import BoundedQuery

SECONDS = 60.0
"""Over which messages are counted."""


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


def described(stream: str, mirror: Mirror, queries: list[BoundedQuery], rates: Rates, now: int) -> list[str]:
    """Lines on a stream and on each of its queries under PRECISION."""
    belief = mirror.belief
    widths = belief.widths(slice(None), now)
    there = sum(not agent.lost for agent in mirror.agents.values())
    lines = [
        f"agents of {stream}: {there} of {len(mirror.agents)} there, {belief.size} keys, "
        f"{rates.up:.3g} updates and {rates.down:.3g} grants a second, "
        f"{mirror.queue.late} of {mirror.queue.rows} rows late"
    ]
    for query in queries:
        for output, item in zip(query.outputs(), query.items, strict=True):
            used = abs(item.weights) @ np.where(np.isfinite(widths), widths, 0.0)
            own = widths[np.unique(item.weights.indices)]
            own = own[np.isfinite(own)]
            if not len(own):
                lines.append(f"  {query.step.name}.{output.name}: no bounds yet")
                continue
            spent = f", {used.max():.4g} of {query.contract.width:g} used" if item.least is None else ""
            lines.append(
                f"  {query.step.name}.{output.name}: widths {own.min():.4g} to {own.max():.4g}, "
                f"half of them up to {np.median(own):.4g}{spent}"
            )
    return lines
