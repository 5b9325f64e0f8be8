"""The windowed SELECT: rows into windows, and each window's rows into groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from slackwater.errors import LanguageError
from slackwater.reference.expressions import Environment
from slackwater.reference.grouping import Grouping, Registry, Result, in_order
from slackwater.reference.relations import Event, Relation
from slackwater.reference.values import Value, from_micros
from slackwater.reference.windows import Window, Windows, read_windows


class WindowGrouping(Grouping):
    """A SELECT with a window in its GROUP BY, over the rows of a stream or of another windowed step."""

    def __init__(self, select: exp.Select, relation: Relation, registry: Registry) -> None:
        group = select.args["group"]
        found = [read_windows(node, relation) for node in group.expressions]
        windows = [window for window in found if window is not None]
        if len(windows) != 1:
            raise LanguageError(
                f"expected one window(…) or tuples(…) in {group.sql('spark').strip()}, found {len(windows)}"
            )
        self.windows: Windows = windows[0]
        super().__init__(select, relation, registry)

    def results(self) -> Iterator[tuple[Window, Result]]:
        """One result per group, by window and then keys."""
        for window in self.windows.closed(self.relation.rows, self.relation.watermark):
            groups = self.groups(window.rows).values()
            found = [self.result(self._environment(window, rows)) for rows in groups]
            for result in in_order(result for result in found if result is not None):
                yield window, result

    def _environment(self, window: Window, rows: Sequence[Event]) -> Environment:
        env = self.environment(rows)

        def column(node: exp.Column) -> Value:
            if not self.is_window(node):
                return env.column(node)
            if node.name.lower() == "window":
                raise LanguageError(
                    "a window as a whole can only be selected: use window.start or window.end"
                )
            return from_micros(window.start if node.name.lower() == "start" else window.end)

        return replace(env, column=column)

    def is_window(self, node: exp.Expr) -> bool:
        """Whether a node is the window, its start or its end."""
        if isinstance(node, exp.Dot):
            return node.name.lower() in ("start", "end") and self.is_window(node.this)
        if isinstance(node, exp.Column):
            if node.table.lower() == "window":
                return node.name.lower() in ("start", "end")
            return not node.table and node.name.lower() == "window" and not self.has("window")
        return read_windows(node, self.relation) is not None
