"""From a plan to its description: the shared tree with everything that hangs on it."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field, replace

from slackwater.errors import PlanError
from slackwater.language.durations import format_duration
from slackwater.language.statements import CreateStream
from slackwater.plan.description import (
    CURRENT,
    JOINED,
    Description,
    Item,
    Member,
    StreamNote,
)
from slackwater.plan.layout import calls_python
from slackwater.plan.model import Lookup, Step, plain
from slackwater.plan.notes import Notes, kind_of
from slackwater.plan.passes import counts_apart, operator_tree
from slackwater.plan.signature import Signature
from slackwater.plan.tables import Plan, StepPlan
from slackwater.plan.tree import Node, Operator

_HOLE = re.compile(r"\{(\d+)\}")


def describe(plan: Plan, name: str | None = None) -> Description:
    """The plan of all streams, of the stream named, or of the step named with what it reads."""
    streams = plan.catalog.streams
    if name is None:
        return Description(tuple(_Describer(plan, None).stream(s) for s in streams.values()))
    if name.lower() in streams:
        return Description((_Describer(plan, None).stream(streams[name.lower()]),))
    if name.lower() in plan.catalog.alerts:
        name = plan.catalog.alerts[name.lower()].query
    if name.lower() not in plan.steps:
        raise _unknown(plan, name)
    wanted = set()
    found: StepPlan | None = plan.steps[name.lower()]
    while found is not None:
        wanted.add(found.step.name)
        found = plan.steps.get(found.step.path.source.lower())
    stream = streams[plan.steps[name.lower()].step.stream.lower()]
    return Description((_Describer(plan, frozenset(wanted)).stream(stream),))


def _unknown(plan: Plan, name: str) -> PlanError:
    if name.lower() in plan.catalog.tables:
        return PlanError(f"{name} is a table; EXPLAIN shows streams, views and queries")
    names = {n: s.name for n, s in plan.catalog.streams.items()}
    names |= {n: s.step.name for n, s in plan.steps.items()}
    near = difflib.get_close_matches(name.lower(), names, n=1)
    if near:
        hint = f"did you mean {names[near[0]]}?"
    else:
        shown = list(names.values())
        more = f" and {len(shown) - 20} more" if len(shown) > 20 else ""
        hint = f"there are {', '.join(shown[:20])}{more}" if shown else "nothing is declared yet"
    return PlanError(f"there is no stream, view or query called {name}: {hint}")


def _length(micros: int | None) -> str | None:
    return format_duration(micros) if micros else None


@dataclass
class _Branch:
    """An operator under construction."""

    operator: Operator | None
    below: list[_Branch] = field(default_factory=list)
    leaves: list[Item] = field(default_factory=list)


class _Describer:
    """Builds the tree of one plan; ``wanted`` are the names of the steps to show, None for all."""

    def __init__(self, plan: Plan, wanted: frozenset[str] | None) -> None:
        self.plan = plan
        self.wanted = wanted
        self._notes = Notes(plan)

    def stream(self, stream: CreateStream) -> StreamNote:
        steps = [s for s in self.plan.steps.values() if s.step.stream.lower() == stream.name.lower()]
        shown = [s for s in steps if self._shown(s.step)]
        queries = [s for s in shown if s.step.published]
        used = {id_ for s in shown for id_ in s.tables}
        tables = tuple(self._notes.table(id_, t) for id_, t in self.plan.tables.items() if id_ in used)
        passes = sum(t.passes for t in tables if t.source.lower() == stream.name.lower())
        passes += sum(1 for s in queries if self._emits(s.step, stream.name))
        apart = self.wanted is None and passes > 0 and counts_apart(self.plan, stream.name)
        through = tuple(s.step.name for s in shown if kind_of(s.step) == "view")
        return StreamNote(
            stream.name,
            stream.format,
            stream.payload,
            stream.time if stream.time_expression is None else f"{stream.time} = {stream.time_expression}",
            _length(stream.lateness),
            stream.key,
            _length(stream.tick),
            _length(stream.interrupted),
            passes + apart,
            apart,
            len(queries),
            sum(1 for s in queries if s.step.current),
            tables,
            through if self.wanted is None else (),
            self._items(stream.name, stream.key),
        )

    @staticmethod
    def _emits(step: Step, source: str) -> bool:
        """Whether rows go straight from a source to the reader of a step."""
        return kind_of(step) == "rows" and not step.current and step.path.source.lower() == source.lower()

    def _shown(self, step: Step) -> bool:
        return self.wanted is None or step.name in self.wanted

    def _items(self, source: str, key: tuple[str, ...] = ()) -> tuple[Item, ...]:
        """The tree of everything that reads a source."""
        root = self._branch(operator_tree(self.plan, source))
        for signature, members in self._groups(source).items():
            self._graft(root, signature, members)
        for s in self.plan.steps_on(source):
            if kind_of(s.step) == "view" and self.wanted is not None and self._shown(s.step):
                self._hang(root, s)
        items = self._close(root)
        latest = self._close(self._branch(operator_tree(self.plan, source, current=True)))
        if latest and key:
            latest = (Item("latest", f"latest by {', '.join(key)}", (CURRENT,), children=latest),)
        return (*items, *latest)

    def _branch(self, node: Node) -> _Branch:
        steps = [self.plan.steps[name.lower()] for name in node.steps]
        leaves = [self._leaf(s) for s in steps if self._shown(s.step)]
        return _Branch(node.operator, [self._branch(child) for child in node.children], leaves)

    def _groups(self, source: str) -> dict[Signature, list[StepPlan]]:
        groups: dict[Signature, list[StepPlan]] = {}
        for step in self.plan.steps_on(source):
            if step.member is not None:
                signature = self.plan.tables[step.tables[0]].signature
                assert signature is not None
                groups.setdefault(signature, []).append(step)
        return groups

    def _graft(self, root: _Branch, signature: Signature, members: list[StepPlan]) -> None:
        """Hang the members of a signature below the operators that all of them have."""
        branch = _down(root, [*signature.lookups, *signature.common])
        alike: dict[object, list[StepPlan]] = {}
        for step in members:
            if self._shown(step.step):
                alike.setdefault(replace(self._notes.step(step), read_by=(), shares=()), []).append(step)
        if not alike:
            return
        template = " and ".join(plain(_HOLE.sub("?", v)) for v in signature.varying)
        places = sorted({int(hole) for v in signature.varying for hole in _HOLE.findall(v)})
        children = tuple(self._alike(group, places) for group in alike.values())
        branch.leaves.append(Item("constants", template, (JOINED,), alike=len(members), children=children))

    def _alike(self, group: list[StepPlan], places: list[int]) -> Item:
        first = group[0]
        constants = self.plan.members[first.tables[0]]
        members = tuple(
            Member(s.step.name, tuple(constants[s.member][place] for place in places))
            for s in group
            if s.member is not None
        )
        leaf = self._leaf(first)
        if len(group) == 1:
            return replace(leaf, members=members)
        assert leaf.step is not None
        noun = "queries" if leaf.step.role == "query" else "views"
        read = [self._leaf(s) for s in group if self._notes.readers(s.step)]
        return replace(leaf, title=f"{len(group)} {noun} alike", members=members, children=tuple(read))

    def _hang(self, root: _Branch, step: StepPlan) -> None:
        path = step.step.path
        _down(root, [*path.lookups, *path.predicates]).leaves.append(self._leaf(step))

    def _close(self, branch: _Branch) -> tuple[Item, ...]:
        """The items of a branch without its operator; branches without steps are left out."""
        items = list(branch.leaves)
        for below in branch.below:
            children = self._close(below)
            if children:
                items.append(self._operator(below.operator, children))
        return tuple(items)

    def _operator(self, operator: Operator | None, children: tuple[Item, ...]) -> Item:
        how = tuple(dict.fromkeys(h for child in children for h in child.how))
        if isinstance(operator, Lookup):
            return Item("lookup", str(operator), how, children=children)
        assert operator is not None
        python = calls_python(operator, self.plan.catalog.functions)
        return Item("filter", plain(operator), how, python, children=children)

    def _leaf(self, step: StepPlan) -> Item:
        kind = kind_of(step.step)
        children = self._items(step.step.name) if self._notes.readers(step.step) else ()
        return Item(
            kind, step.step.name, self._notes.how(step), step=self._notes.step(step), children=children
        )


def _down(root: _Branch, operators: list[Operator]) -> _Branch:
    """The branch below all of the operators, along those that are there already."""
    branch, rest = root, list(operators)
    while rest:
        known = next((b for b in branch.below if b.operator in rest), None)
        if known is None:
            known = _Branch(rest[0])
            branch.below.append(known)
        rest.remove(known.operator)  # type: ignore[arg-type]
        branch = known
    return branch
