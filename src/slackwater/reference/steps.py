"""Steps that read one another: streams, views, queries, subqueries and lookups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from slackwater.errors import LanguageError
from slackwater.language.statements import CreateStream
from slackwater.reference.answers import ReferenceAnswer
from slackwater.reference.current import CurrentGrouping
from slackwater.reference.expressions import holds
from slackwater.reference.outcomes import Outcome, current, projected, windowed
from slackwater.reference.recording import Recording, Scope, Step, latest_name, scope_in
from slackwater.reference.relations import Field, Relation, look_up
from slackwater.reference.ticks import Moment
from slackwater.reference.values import Value
from slackwater.reference.windowed import WindowGrouping

_CLAUSES = {"expressions", "from_", "joins", "where", "group", "having", "with_"}


def answers_of(recording: Recording, steps: Sequence[Step]) -> list[list[ReferenceAnswer]]:
    """The answers of each step: those of its windows or rows, or those of current values at every tick."""
    over_windows = Evaluation(recording, None, {})
    found = []
    for step in steps:
        stream = recording.latest_below(step)
        if stream is None or not stream.key:
            found.append(list(over_windows.step(step).answers))
            continue
        # A step that cannot be evaluated is refused even where there is no tick at all.
        over_windows.at(Moment(stream.name, 0, 0)).step(step)
        moments = recording.timeline(stream).moments
        found.append([a for moment in moments for a in over_windows.at(moment).step(step).answers])
    return found


class Evaluation:
    """The steps of a recording, each computed once: over windows, or over current values at one moment."""

    def __init__(self, recording: Recording, moment: Moment | None, others: dict[Moment, Evaluation]) -> None:
        self.recording = recording
        self.registry = recording.registry
        self.moment = moment
        self._others = others
        self._outcomes: dict[str, Outcome | None] = {}
        self._groupings: dict[int, CurrentGrouping] = {}

    def at(self, moment: Moment) -> Evaluation:
        """The same steps at a moment."""
        if moment not in self._others:
            self._others[moment] = Evaluation(self.recording, moment, self._others)
        return self._others[moment]

    def step(self, step: Step) -> Outcome:
        """The outcome of a view or query."""
        name = step.name.lower()
        if name not in self._outcomes:
            self._outcomes[name] = None
            try:
                self._outcomes[name] = self._select(self.recording.select_of(step), {})
            except LanguageError as error:
                if error.position is not None:
                    raise
                raise step.source.error(f"in {step.name}: {error.message}", hint=error.hint) from error
        outcome = self._outcomes[name]
        if outcome is None:
            raise step.source.error(f"{step.name} reads itself")
        return outcome

    def _select(self, select: exp.Expr, scope: Scope) -> Outcome:
        if not isinstance(select, exp.Select):
            raise LanguageError(f"expected a SELECT, got {select.sql('spark')}")
        for clause, value in select.args.items():
            if value and clause not in _CLAUSES:
                raise LanguageError(f"the reference does not know {clause.upper()} in {select.sql('spark')}")
        aggregates = select.args.get("having") or any(map(self.registry.aggregates_in, select.expressions))
        if self.moment is not None:
            if aggregates or select.args.get("group"):
                return current(self._current(select, scope, self.moment))
            return projected(select, self._read(select, scope), self.registry, self.moment.tick)
        relation = self._read(select, scope)
        if select.args.get("group"):
            return windowed(WindowGrouping(select, relation, self.registry))
        if aggregates:
            raise LanguageError(
                f"an aggregate over a stream needs a window, got {select.sql('spark')}",
                hint="add GROUP BY window(…) or tuples(…)",
            )
        return projected(select, relation, self.registry, None)

    def _current(self, select: exp.Select, scope: Scope, moment: Moment) -> CurrentGrouping:
        """An aggregating SELECT over current values; it may ask for itself at earlier ticks."""
        if id(select) not in self._groupings:  # the recording keeps every SELECT
            stream = self.recording.streams[moment.stream.lower()]
            ticks = self.recording.timeline(stream).ticks_until(moment.tick)
            self._groupings[id(select)] = CurrentGrouping(
                select,
                self._read(select, scope),
                self.registry,
                moment.tick,
                ticks,
                lambda tick: self._earlier(select, scope, replace(moment, tick=tick)),
            )
        return self._groupings[id(select)]

    def _earlier(self, select: exp.Select, scope: Scope, moment: Moment) -> CurrentGrouping:
        return self.at(moment)._current(select, scope, moment)

    def _read(self, select: exp.Select, scope: Scope) -> Relation:
        """The rows that a SELECT is over: FROM, its lookups and WHERE."""
        source = select.args.get("from_")
        if source is None:
            raise LanguageError(f"there is no FROM in {select.sql('spark')}")
        relation = self._source(source.this, scope_in(select, scope))
        for join in select.args.get("joins") or ():
            relation = self._join(relation, join)
        where = select.args.get("where")
        if where is not None:
            rows = [row for row in relation.rows if self._passes(where.this, relation.fields, row.values)]
            relation = replace(relation, rows=tuple(rows))
        return relation

    def _source(self, node: exp.Expr, scope: Scope) -> Relation:
        if isinstance(node, exp.Subquery):
            return self._select(node.this, scope).relation.called(node.alias)
        latest = latest_name(node)
        if latest is not None:
            stream = self._keyed(latest)
            assert self.moment is not None
            relation = self.recording.timeline(stream).current(self.moment)
            return relation.called(node.alias or stream.name)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier) or node.db:
            raise LanguageError(f"expected a stream, view, query or subquery, got {node.sql('spark')}")
        name = node.name.lower()
        if name in scope:
            relation = self._select(scope[name].select, scope[name].scope).relation
        elif name in self.recording.steps:
            relation = self.step(self.recording.steps[name]).relation
        elif name in self.recording.streams:
            relation = self.recording.intake(self.recording.streams[name]).relation
        else:
            raise LanguageError(f"there is no stream, view or query {node.name}")
        return relation.called(node.alias or node.name)

    def _keyed(self, name: str) -> CreateStream:
        """The stream that LATEST names."""
        stream = self.recording.streams.get(name)
        if stream is None:
            raise LanguageError(f"LATEST reads a stream, and there is none called {name}")
        if not stream.key:
            raise LanguageError(
                f"LATEST({stream.name}) needs to know whose value is the latest: declare a KEY"
            )
        return stream

    def _join(self, relation: Relation, join: exp.Join) -> Relation:
        table = join.this
        side, kind = join.side.upper(), join.kind.upper()
        using, on = join.args.get("using") or [], join.args.get("on")
        plain = side in ("", "LEFT") and kind in ("", "INNER", "OUTER") and not join.method
        if not plain or (not using and on is None):
            raise LanguageError(f"expected [INNER|LEFT] JOIN … ON or USING, got {join.sql('spark').strip()}")
        if not isinstance(table, exp.Table) or table.name.lower() not in self.recording.tables:
            raise LanguageError(f"a stream can be joined with a table only, got {join.sql('spark').strip()}")
        return look_up(
            relation,
            self.recording.table(self.recording.tables[table.name.lower()]),
            table.alias or table.name,
            [column.name for column in using],
            None if on is None else lambda fields, values: self._passes(on, fields, values),
            left=side == "LEFT",
            many=self.moment is not None,
        )

    def _passes(self, condition: exp.Expr, fields: Sequence[Field], values: Sequence[Value]) -> bool:
        return holds(condition, self.registry.row_environment(fields, values))
