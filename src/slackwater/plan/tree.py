"""One tree of operators per source: the common prefixes of all its queries, merged.

Conjuncts may be tested in any order, so the order is chosen to share most: at every node the
operator wanted by most of the paths goes first. The best order of all is a hard problem (it
contains set cover); this greedy one is deterministic and finds every prefix that all paths have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from slackwater.plan.model import Lookup, Path, plain

Operator = Lookup | str
"""A lookup, or a predicate in canonical SQL."""


@dataclass(frozen=True)
class Node:
    """An operator, what follows it, and the steps whose path ends here."""

    operator: Operator | None
    children: tuple[Node, ...] = ()
    steps: tuple[str, ...] = ()

    def __str__(self) -> str:
        return str(self.operator) if isinstance(self.operator, Lookup) else plain(self.operator or "")


def shared_tree(paths: Mapping[str, Path], costly: frozenset[str] = frozenset()) -> Node:
    """The tree of the paths of one source, by step name.

    Guarantee: the operators from the root to a step are exactly those of its path, each once, a
    lookup before the predicates that read it, and predicates in ``costly`` (Python functions) last.

    >>> tree = shared_tree({"q1": Path("p", (), ("a", "b")), "q2": Path("p", (), ("c", "b"))})
    >>> [str(child) for child in tree.children], [str(child) for child in tree.children[0].children]
    (['b'], ['a', 'c'])
    """
    wanted: dict[str, tuple[Operator, ...]] = {
        name: (*path.lookups, *path.predicates) for name, path in paths.items()
    }
    return _node(None, wanted, costly)


def _node(
    operator: Operator | None, wanted: Mapping[str, tuple[Operator, ...]], costly: frozenset[str]
) -> Node:
    steps = tuple(name for name, rest in wanted.items() if not rest)
    rest = {name: operators for name, operators in wanted.items() if operators}
    wanting: dict[Operator, list[str]] = {}
    for name, operators in rest.items():
        for candidate in _next(operators, costly):
            wanting.setdefault(candidate, []).append(name)
    candidates = list(wanting)
    queue = [(-len(names), isinstance(o, Lookup), place) for place, (o, names) in enumerate(wanting.items())]
    heapify(queue)
    children = []
    while rest:
        count, late, place = heappop(queue)
        best = candidates[place]
        taking = [name for name in wanting[best] if name in rest]
        if len(taking) < -count:
            # some have gone another way since it was put in
            heappush(queue, (-len(taking), late, place))
            continue
        below = {name: tuple(o for o in rest.pop(name) if o != best) for name in taking}
        children.append(_node(best, below, costly))
    return Node(operator, tuple(children), steps)


def _next(operators: Sequence[Operator], costly: frozenset[str]) -> list[Operator]:
    """The operators of a path that may come next: costly ones only where nothing else is left."""
    ready = [o for o in operators if _ready(o, operators)]
    return [o for o in ready if not (isinstance(o, str) and o in costly)] or ready


def _ready(operator: Operator, operators: Sequence[Operator]) -> bool:
    """Whether every lookup that an operator reads has been done (is not among those to come)."""
    text = operator.on if isinstance(operator, Lookup) else operator
    pending = (o for o in operators if isinstance(o, Lookup) and o != operator)
    return not any(f"{lookup.alias}." in text for lookup in pending)
