"""The aggregating SELECT over current values: ordinary at each tick, but that it may ask for earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from slackwater.errors import LanguageError
from slackwater.reference.expressions import Environment, interpret
from slackwater.reference.grouping import Grouping, Key, Registry, Result, in_order
from slackwater.reference.history import read_history
from slackwater.reference.relations import Relation
from slackwater.reference.values import Value
from slackwater.reference.windows import read_windows


class CurrentGrouping(Grouping):
    """A SELECT with aggregates over what it reads at one moment.

    ``ticks`` are the evaluated ticks up to that of the moment, and ``at`` gives the same SELECT at one of
    them, over all rows that are known at the moment.
    """

    def __init__(
        self,
        select: exp.Select,
        relation: Relation,
        registry: Registry,
        tick: int,
        ticks: Sequence[int],
        at: Callable[[int], CurrentGrouping],
    ) -> None:
        self.tick = tick
        self._ticks = ticks
        self._at = at
        self._values: dict[tuple[str, Key], Value] = {}
        group = select.args.get("group")
        for node in group.expressions if group else ():
            if read_windows(node, relation) is not None:
                raise LanguageError(
                    f"LATEST holds one row per key and takes no window, got {node.sql('spark')}",
                    hint="leave the window out",
                )
        super().__init__(select, relation, registry)
        self._rows = self.groups(relation.rows)
        if not self.keys:
            self._rows.setdefault((), [])  # without GROUP BY there is one group, if need be of no rows

    def results(self) -> list[Result]:
        """One result per group, by keys."""
        found = [self.result(self._environment(key)) for key in self._rows]
        return in_order(result for result in found if result is not None)

    def _environment(self, key: Key) -> Environment:
        env = self.environment(self._rows[key])
        assert env.aggregate is not None
        over_rows = env.aggregate

        def aggregated(node: exp.Expr) -> Value:
            return self._extreme(node, key) if self.registry.is_history(node) else over_rows(node)

        return replace(env, aggregate=aggregated)

    def _extreme(self, node: exp.Expr, key: Key) -> Value:
        history = read_history(node)
        first = history.first(self.tick)
        # what was said before and still stood counts too
        stood = [tick for tick in self._ticks if tick <= first][-1:] if first <= self.tick else []
        reached = stood + [tick for tick in self._ticks if tick > first]
        text = history.expression.sql("spark")
        return history.extreme(self._at(tick).value(history.expression, text, key) for tick in reached)

    def value(self, expression: exp.Expr, text: str, key: Key) -> Value:
        """An expression over the aggregates of a group; NULL where the group has no rows at the moment.

        Later ticks ask for it again, so that it is kept under its text.
        """
        if key not in self._rows:
            return None
        if (text, key) not in self._values:
            self._values[text, key] = interpret(expression, self.environment(self._rows[key]))
        return self._values[text, key]

    def check_history(self, node: exp.Expr) -> None:
        """Refuse an extreme of what is no expression over aggregates and keys."""
        expression = read_history(node).expression
        if any(map(self.registry.is_history, expression.walk())):
            raise LanguageError(f"an extreme cannot be taken of another one, got {node.sql('spark')}")
        if not self.registry.aggregates_in(expression):
            raise LanguageError(f"expected an aggregate in {node.sql('spark')}")
        self.check(expression)
