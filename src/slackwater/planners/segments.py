"""The tree of shared segments: the operators that always run at one rate are taken as one.

Reference: Babcock, Datar, Motwani (ICDE 2004), Observation 3.3: no shedder stands inside a segment. Here a
segment is a chain of nodes of which only the last has more than one child or the end of a query.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slackwater.planners.load import Bools, Floats, Ints, LoadTree, prefix_rates


@dataclass(frozen=True)
class Level:
    """The segments of one depth, as a range; those of one parent stand together."""

    start: int
    stop: int
    parents: Ints
    """The segments above that have children here, in order."""
    first: Ints
    """Where the children of each of them begin, counted from ``start``."""
    parent_of: Ints
    """The parent of each segment here."""


@dataclass(frozen=True)
class Segments:
    """Segments ordered by depth. Arrays of rates may have leading axes: the last one is over segments."""

    costs: Floats
    levels: tuple[Level, ...]
    """Without the roots."""
    of_node: Ints
    """The segment of each node of the tree, -1 where no query ends below."""
    parent: Ints

    @cached_property
    def paths(self) -> Ints:
        """Each segment with all above it, nearest first, filled up with -1."""
        found = [np.arange(len(self.parent))]
        while (found[-1] >= 0).any():
            found.append(np.where(found[-1] >= 0, self.parent[found[-1]], -1))
        return np.stack(found[:-1], axis=1)

    def below(self, tops: Ints) -> Bools:
        """Whether each segment is one of the tops or below it: tops by segments."""
        found: Bools = (self.paths[None] == tops[:, None, None]).any(axis=-1)
        return found

    @cached_property
    def totals(self) -> Floats:
        """The cost of each segment with all below it."""
        found = self.costs.copy()
        for level in reversed(self.levels):
            np.add.at(found, level.parent_of, found[level.start : level.stop])
        return found

    @cached_property
    def order(self) -> Ints:
        """Subtree by subtree: after a segment come all below it."""
        sizes = np.ones(len(self.parent), dtype=np.int64)
        for level in reversed(self.levels):
            np.add.at(sizes, level.parent_of, sizes[level.start : level.stop])
        place = np.zeros(len(self.parent), dtype=np.int64)
        roots = self.levels[0].start if self.levels else len(place)
        place[:roots] = np.cumsum(sizes[:roots]) - sizes[:roots]
        for level in self.levels:
            before = np.cumsum(sizes[level.start : level.stop]) - sizes[level.start : level.stop]
            counts = np.diff(level.first, append=len(before))
            before -= np.repeat(before[level.first], counts)
            place[level.start : level.stop] = place[level.parent_of] + 1 + before
        return np.argsort(place)

    def maxima(self, own: Floats) -> Floats:
        """The largest value at or below each segment."""
        found = own.copy()
        for level in reversed(self.levels):
            below = np.maximum.reduceat(found[..., level.start : level.stop], level.first, axis=-1)
            found[..., level.parents] = np.maximum(found[..., level.parents], below)
        return found

    def blocks(self, rates: Floats) -> Ints:
        """A number for each segment; those that run at their parent's rate have its number."""
        found = np.arange(len(rates))
        for level in self.levels:
            here = slice(level.start, level.stop)
            joins = rates[here] == rates[level.parent_of]
            found[here] = np.where(joins, found[level.parent_of], found[here])
        return found

    def beside(self, own: Floats, rates: Floats) -> tuple[Floats, Floats]:
        """The largest rate below each segment, and the largest that its parent needs without it.

        ``rates`` are the maxima of ``own``.
        """
        inner, beside = np.zeros_like(rates), np.zeros_like(rates)
        for level in self.levels:
            here = rates[..., level.start : level.stop]
            sizes = np.diff(level.first, append=level.stop - level.start)
            top = np.maximum.reduceat(here, level.first, axis=-1)
            is_top = here == np.repeat(top, sizes, axis=-1)
            ties = np.add.reduceat(is_top.astype(np.int64), level.first, axis=-1)
            second = np.maximum.reduceat(np.where(is_top, 0.0, here), level.first, axis=-1)
            others = np.where(
                is_top & (np.repeat(ties, sizes, axis=-1) == 1),
                np.repeat(second, sizes, axis=-1),
                np.repeat(top, sizes, axis=-1),
            )
            inner[..., level.parents] = top
            beside[..., level.start : level.stop] = np.maximum(others, own[..., level.parent_of])
        return inner, beside


def segments(tree: LoadTree, ends: Ints) -> Segments:
    """Collapse a tree in which queries end at the given nodes.

    >>> found = segments(LoadTree((-1, 0, 1, 1, 0), (1,) * 5, (1, 2, 3, 4, 5)), np.array([2, 3]))
    >>> found.costs.tolist(), found.of_node.tolist()
    ([3.0, 3.0, 4.0], [0, 0, 1, 2, -1])
    """
    size = len(tree.parent)
    needed = prefix_rates(tree, ends, np.ones(len(ends))) > 0
    parents = np.array(tree.parent, dtype=np.int64)
    inner = needed & (parents >= 0)
    children = np.bincount(parents[inner], minlength=size)
    alone = children == 1  # one child and no query: it runs at the child's rate
    alone[ends] = False
    of_node = np.full(size, -1, dtype=np.int64)
    above: list[Ints] = []
    levels: list[Level] = []
    start = 0
    for nodes, node_parents in tree.levels:
        joins = needed[nodes] & (node_parents >= 0) & alone[node_parents]
        of_node[nodes[joins]] = of_node[node_parents[joins]]
        begins = needed[nodes] & ~joins
        over = np.where(node_parents >= 0, of_node[node_parents], -1)[begins]
        order = np.argsort(over, kind="stable")
        stop = start + len(order)
        of_node[nodes[begins][order]] = np.arange(start, stop)
        over = over[order]
        if stop > start and over[0] >= 0:
            parents_here, first = np.unique(over, return_index=True)
            levels.append(Level(start, stop, parents_here, first, over))
        above.append(over)
        start = stop
    costs = np.zeros(start)
    np.add.at(costs, of_node[needed], tree.costs[needed])
    return Segments(costs, tuple(levels), of_node, np.concatenate(above))
