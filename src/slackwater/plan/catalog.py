"""Everything declared so far, as one immutable value; a statement gives the next one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from sqlglot import exp

from slackwater.errors import Position
from slackwater.language.contracts import Contract, Drift, Precision, Standing
from slackwater.language.parse import NESTED, parse
from slackwater.language.render import alter_query
from slackwater.language.statements import (
    AlterQuery,
    AnyStatement,
    CreateAlert,
    CreateQuery,
    CreateStream,
    CreateTable,
    CreateView,
    Drop,
    Explain,
    Source,
)
from slackwater.language.tokens import position_at
from slackwater.plan.alerts import settled
from slackwater.plan.analyse import Known, analyse
from slackwater.plan.doubles import inexact_in_doubles
from slackwater.plan.functions import Functions
from slackwater.plan.honour import Impossible, Refused, honour, settle
from slackwater.plan.model import Step, plain
from slackwater.plan.scope import canonical, item_name, position_of
from slackwater.plan.texts import text_as_number

CONJUNCTS = 150
"""Conditions of one query: each is an operator below the one before it, and plans are told as trees."""
Declared = CreateStream | CreateTable | CreateView | CreateQuery | CreateAlert


@dataclass(frozen=True)
class Catalog:
    """Streams, tables, views, queries and alerts by lower-case name, in the order of declaration."""

    declared: Mapping[str, Declared] = field(default_factory=dict)
    steps: Mapping[str, Step] = field(default_factory=dict)
    contracts: Mapping[str, Contract] = field(default_factory=dict)
    """By query; where ALTER has changed one, the changed one."""
    functions: Functions = field(default_factory=Functions, compare=False)

    @cached_property
    def streams(self) -> dict[str, CreateStream]:
        return {n: d for n, d in self.declared.items() if isinstance(d, CreateStream)}

    @cached_property
    def tables(self) -> dict[str, CreateTable]:
        return {n: d for n, d in self.declared.items() if isinstance(d, CreateTable)}

    @cached_property
    def views(self) -> dict[str, CreateView]:
        return {n: d for n, d in self.declared.items() if isinstance(d, CreateView)}

    @cached_property
    def alerts(self) -> dict[str, CreateAlert]:
        return {n: d for n, d in self.declared.items() if isinstance(d, CreateAlert)}

    def alerts_on(self, query: str) -> list[CreateAlert]:
        return [alert for alert in self.alerts.values() if alert.query.lower() == query.lower()]

    @cached_property
    def queries(self) -> dict[str, Step]:
        """The published steps, with their contracts."""
        return {n: replace(s, contract=self.contracts[n]) for n, s in self.steps.items() if s.published}

    def step_of(self, source: str) -> Step | None:
        """The windowed step that a path reads, None where it reads a stream."""
        return self.steps.get(source.lower())

    def only(self, names: Iterable[str]) -> Catalog:
        """Some of what is declared, with all that it reads and nothing else."""
        wanted: set[str] = set()
        waiting = [name.lower() for name in names]
        while waiting:
            name = waiting.pop()
            if name in self.declared and name not in wanted:
                wanted.add(name)
                waiting += self._named_by(name)
        return replace(
            self,
            declared={n: d for n, d in self.declared.items() if n in wanted},
            steps={n: s for n, s in self.steps.items() if self._owner(n) in wanted},
            contracts={n: c for n, c in self.contracts.items() if n in wanted},
        )

    def apply(self, statement: AnyStatement, *, kept: bool = False) -> Catalog:
        """The catalog after a statement; raises LanguageError where it cannot be.

        ``kept``: an earlier run took it. What is asked of new statements, so that they can be worked with
        wherever they are shown, is not asked of it again: its state could not be gone on with.
        """
        try:
            return self._applied(statement, kept)
        except RecursionError:
            raise statement.source.error(
                "this statement is nested too deeply to be planned", hint=NESTED
            ) from None

    def _applied(self, statement: AnyStatement, kept: bool) -> Catalog:
        if isinstance(statement, CreateStream | CreateTable):
            self._free(statement.name, statement.source)
            return replace(self, declared={**self.declared, statement.name.lower(): statement})
        if isinstance(statement, CreateView | CreateQuery):
            return self._create(statement, kept)
        if isinstance(statement, CreateAlert):
            return self._watch(statement)
        if isinstance(statement, AlterQuery):
            return self._alter(statement)
        if isinstance(statement, Drop):
            return self._drop(statement)
        assert isinstance(statement, Explain)
        name = statement.name
        if name is not None and name.lower() not in self.declared:
            raise statement.source.error(
                f"there is no stream, view, query or alert called {name}",
                hint=f"there are {', '.join(s.name for s in self.declared.values()) or 'none yet'}",
            )
        return self

    def apply_all(self, statements: Iterable[AnyStatement], *, kept: bool = False) -> Catalog:
        catalog = self
        for statement in statements:
            catalog = catalog.apply(statement, kept=kept)
        return catalog

    def sql(self) -> str:
        """A text that declares all of this again, altered contracts included."""
        parts = []
        for name, declared in self.declared.items():
            parts.append(declared.sql)
            if isinstance(declared, CreateQuery) and self.contracts[name] != declared.contract:
                parts.append(alter_query(declared.name, self.contracts[name]))
        return ";\n".join(parts) + (";\n" if parts else "")

    @classmethod
    def from_sql(cls, text: str, functions: Functions, *, file: str = "", kept: bool = False) -> Catalog:
        return cls(functions=functions).apply_all(parse(text, file=file), kept=kept)

    def _free(self, name: str, source: Source) -> None:
        taken = self.declared.get(name.lower())
        if taken is not None:
            kind = type(taken).__name__.removeprefix("Create").lower()
            raise source.error(
                f"there is a {kind} called {taken.name} already",
                hint=f"choose another name, or DROP {kind.upper()} {taken.name} first",
            )

    def _create(self, statement: CreateView | CreateQuery, kept: bool) -> Catalog:
        self._free(statement.name, statement.source)
        known = Known(self.streams, self.tables, self.steps, self.functions)
        added = {step.name.lower(): step for step in analyse(statement, known)}
        for step in added.values():
            if len(step.path.predicates) > CONJUNCTS and not kept:
                raise statement.source.error(
                    f"{statement.name} asks for {len(step.path.predicates):,} conditions, those of the views "
                    f"below it among them; {CONJUNCTS} can be planned, each as an operator",
                    hint="write those on one column as one with NOT IN (…), or look values up in a table",
                )
        steps = {**self.steps, **added}
        declared = {**self.declared, statement.name.lower(): statement}
        after = replace(self, declared=declared, steps=steps)
        if isinstance(statement, CreateView):
            return after
        return after._promise(statement.name, statement.contract, statement.standing, statement)

    def _promise(
        self,
        name: str,
        contract: Contract | None,
        standing: Standing,
        statement: CreateQuery | AlterQuery,
    ) -> Catalog:
        step = self.steps[name.lower()]
        settled = settle(contract, standing, step, self.steps, self.functions)
        at = statement.contract_at if isinstance(statement, CreateQuery) else None
        if isinstance(settled, Precision) and settled.immediate and isinstance(statement, CreateQuery):
            raise statement.source.error(
                "IMMEDIATE goes with ALTER QUERY … WITH PRECISION",
                at=at,
                hint="leave it out: a new query has its width from the beginning",
            )
        try:
            honour(settled, step, self.steps, self.streams[step.stream.lower()], self.functions)
        except Impossible as refused:
            raise statement.source.error(
                f"query {step.name}: {refused}",
                at=_call_position(statement, refused.function),
                hint=refused.instead,
            ) from None
        except Refused as refused:
            word = str(settled).split()[0]
            raise statement.source.error(
                f"query {step.name} cannot honour {word}: {refused}",
                at=_part_position(statement, refused.parts) or at,
                hint=refused.instead,
            ) from None
        self._check_extremes(step, settled, statement, at)
        self._check_texts(step, settled, statement, at)
        return replace(self, contracts={**self.contracts, name.lower(): settled})

    def _check_extremes(
        self, step: Step, contract: Contract, statement: CreateQuery | AlterQuery, at: Position | None
    ) -> None:
        """Raise where an extreme over time would make other items of a query inexact."""
        if not step.moves or isinstance(contract, Drift | Precision):
            return
        inexact = inexact_in_doubles(step, self.streams[step.stream.lower()], self.tables)
        if inexact is not None:
            raise statement.source.error(
                f"query {step.name}: beside an extreme over time all is computed in doubles, and {inexact}",
                at=at,
                hint="write CAST(… AS DOUBLE) inside the aggregate, or make it a query of its own",
            )

    def _check_texts(
        self, step: Step, contract: Contract, statement: CreateQuery | AlterQuery, at: Position | None
    ) -> None:
        """Raise where texts would be added up, of which no interval ever comes."""
        if not isinstance(contract, Precision):
            return
        found = text_as_number(step, self.streams[step.stream.lower()], self.tables)
        if found is not None:
            raise statement.source.error(
                f"query {step.name} cannot honour PRECISION: {found}",
                at=at,
                hint="aggregate a value that agents send, COUNT it, or GROUP BY it; "
                "where the texts are numbers, write CAST(… AS DOUBLE)",
            )

    def _watch(self, statement: CreateAlert) -> Catalog:
        self._free(statement.name, statement.source)
        if not isinstance(self.declared.get(statement.query.lower()), CreateQuery):
            at = statement.places.get("query")
            raise self._unknown("query", statement.query, statement.source, at)
        alert = settled(statement, self.steps[statement.query.lower()])
        return replace(self, declared={**self.declared, alert.name.lower(): alert})

    def _alter(self, statement: AlterQuery) -> Catalog:
        name = statement.name.lower()
        if not isinstance(self.declared.get(name), CreateQuery):
            raise self._unknown("query", statement.name, statement.source)
        contract = statement.contract
        if contract is None:
            # WEIGHT and PRIORITY alone change how the contract stands, not what it promises
            present = self.contracts[name]
            if not isinstance(present, Standing):
                word = str(present).split()[0]
                raise statement.source.error(
                    f"WEIGHT and PRIORITY do not go with {word}", hint="they go with EXACT, ERROR and SUBSET"
                )
            contract = replace(
                present, weight=statement.standing.weight, priority=statement.standing.priority
            )
        return self._promise(statement.name, contract, statement.standing, statement)

    def _drop(self, statement: Drop) -> Catalog:
        kinds = {
            "stream": CreateStream,
            "table": CreateTable,
            "view": CreateView,
            "query": CreateQuery,
            "alert": CreateAlert,
        }
        name = statement.name.lower()
        found = self.declared.get(name)
        if found is None or not isinstance(found, kinds[statement.kind]):
            if statement.if_exists and found is None:
                return self
            raise self._unknown(statement.kind, statement.name, statement.source)
        if statement.kind == "alert":
            return replace(self, declared={n: d for n, d in self.declared.items() if n != name})
        reading = {self._owner(n) for n, s in self.steps.items() if name in _below(s)}
        reading |= {n for n in self.declared if name in self._written(n)}
        readers = sorted(self.declared[n].name for n in reading - {name})
        if readers:
            raise statement.source.error(
                f"{statement.kind} {found.name} is read by {', '.join(readers)}", hint="drop those first"
            )
        alerts = [a.name for a in self.alerts_on(name)] if statement.kind == "query" else []
        if alerts:
            noun = "alert" if len(alerts) == 1 else "alerts"
            raise statement.source.error(
                f"query {found.name} has the {noun} {', '.join(alerts)}",
                hint=f"first DROP ALERT {alerts[0]}" if len(alerts) == 1 else "drop those first",
            )
        return replace(
            self,
            declared={n: d for n, d in self.declared.items() if n != name},
            steps={n: s for n, s in self.steps.items() if self._owner(n) != name},
            contracts={n: c for n, c in self.contracts.items() if n != name},
        )

    def _owner(self, step: str) -> str:
        """The view or query that a step is of, or was made for; names may have dots, too."""
        while step and step not in self.declared:
            step = step.rpartition(".")[0]
        return step

    def _named_by(self, name: str) -> set[str]:
        """All that a view or query reads, by its text and by its plan."""
        own = (step for n, step in self.steps.items() if self._owner(n) == name)
        return self._written(name).union(*map(_below, own))

    def _written(self, name: str) -> set[str]:
        """All that a statement names after FROM, even where the plan looks through it."""
        declared = self.declared.get(name)
        if isinstance(declared, CreateView | CreateQuery):
            return {table.name.lower() for table in declared.select.find_all(exp.Table)}
        return set()

    def _unknown(self, kind: str, name: str, source: Source, at: Position | None = None) -> Exception:
        near = difflib.get_close_matches(name.lower(), self.declared, n=1)
        hint = f"did you mean {self.declared[near[0]].name}?" if near else ""
        return source.error(f"there is no {kind} called {name}", hint=hint, at=at)


def _below(step: Step) -> set[str]:
    return {step.path.source.lower(), step.stream.lower(), *(k.table.lower() for k in step.path.lookups)}


def _part_position(statement: CreateQuery | AlterQuery, parts: Sequence[str]) -> Position | None:
    """Where the first of some parts that a SELECT has begins: an expression, an item or a clause."""
    select = statement.select if isinstance(statement, CreateQuery) else exp.Select()
    for part in parts:
        items = [item.unalias() for item in select.expressions if item_name(item) == part]
        same = (n for n in select.walk() if plain(canonical(n)).lower() == part.lower())
        clause = select.args.get(part)
        found = [*items, *same, *(clause if isinstance(clause, list) else [clause])]
        for node in found:
            starts = [int(n.meta["start"]) for n in node.walk() if "start" in n.meta] if node else []
            if starts:
                return position_at(statement.source.text, min(starts))
    return None


def _call_position(statement: CreateQuery | AlterQuery, function: str) -> Position | None:
    """Where a function is called for the first time."""
    select = statement.select if isinstance(statement, CreateQuery) else exp.Select()
    calls = (c for c in select.find_all(exp.Anonymous) if str(c.this).lower() == function)
    places = [at for c in calls if (at := position_of(c, statement.source)) is not None]
    return min(places, key=lambda at: at.offset, default=None)
