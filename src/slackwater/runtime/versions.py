"""Versions of the query set: each change is one, takes effect at a recorded turn, and can be read back."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from slackwater.errors import SlackwaterError, StateError
from slackwater.language.parse import parse, parse_one
from slackwater.language.statements import (
    AlterQuery,
    AnyStatement,
    CreateAlert,
    CreateQuery,
    CreateStream,
    CreateTable,
    CreateView,
)
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.model import TupleWindow
from slackwater.plan.panes import AFTER_ALL, BEFORE_ALL, first_start
from slackwater.plan.slots import slots_of
from slackwater.plan.tables import Plan, StepPlan
from slackwater.planners.window_needs import may_leave_out
from slackwater.planners.window_schedule import Schedule
from slackwater.runtime.definitions import definitions_of
from slackwater.runtime.journal import Journal
from slackwater.runtime.samples import BATCHES
from slackwater.runtime.state import StreamState


class Versions:
    """The plans of all versions. One follows from its catalog and the plan before: only SQL is kept."""

    def __init__(self, journal: Journal, functions: Functions) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._plans: dict[int, Plan] = {0: Plan()}
        self.script: list[str] = []
        """The statements of the file as last applied: a restart applies only what has changed."""
        self._others: tuple[int, int, frozenset[str]] = (0, 0, frozenset())
        """The last answer of `others`: a turn asks for each of its batches."""
        for number, kept in journal.versions().items():
            try:
                catalog = Catalog.from_sql(kept["sql"], functions, kept=True)
            except SlackwaterError as error:
                raise StateError(
                    f"version {number} of the query set in {journal.root} cannot be read any more: {error}\n"
                    "hint: register the functions it uses, or start over with --fresh"
                ) from error
            self._plans[number] = extend(self._plans[number - 1], catalog)
            self.script = list(kept.get("script", []))

    @property
    def latest(self) -> int:
        return max(self._plans)

    def plan(self, number: int) -> Plan:
        return self._plans[number]

    def alerts_dropped(self, before: int, number: int) -> set[str]:
        """Alerts of a version that were not there in some version between it and an earlier one."""
        plans = self._plans
        between = [plans[n].catalog.alerts.keys() for n in range(before + 1, number)]
        return {name for name in plans[number].catalog.alerts if any(name not in known for known in between)}

    def others(self, before: int, number: int) -> frozenset[str]:
        """Queries of a version that were not there, or were others, in some version since an earlier one."""
        # turns ask, and those who change the query set: each goes by what it has read once
        kept = self._others
        if kept[:2] == (before, number):
            return kept[2]
        found: set[str] = set()
        was = definitions_of(self._plans[before].catalog)
        for version in range(before + 1, number + 1):
            known = definitions_of(self._plans[version].catalog)
            found = {name for name in known if name in found or known[name] != was.get(name)}
            was = known
        self._others = (before, number, frozenset(found))
        return frozenset(found)

    def propose(self, catalog: Catalog, script: list[str] | None = None) -> int:
        """Make a catalog the latest version; the streams adopt it at their next turn."""
        with self._lock:
            number = self.latest + 1
            plan = extend(self._plans[number - 1], catalog)
            if script is not None:
                self.script = script
            self._journal.write_version(number, {"sql": catalog.sql(), "script": self.script})
            # a new mapping: turns read it meanwhile
            self._plans = {**self._plans, number: plan}
            return number


def partials_of(step: StepPlan) -> set[str]:
    """Names of the partials that a step is read from, and of the tables that hold them."""
    member = "" if step.member is None else f"/{step.member}"
    return _columns_of(step) | {f"{call.table}{member}" for call in step.calls}


def _columns_of(step: StepPlan) -> set[str]:
    """Names of the partials alone: each is of one path, while tables are shared by many."""
    member = "" if step.member is None else f"/{step.member}"
    names = {f"{call.table}/{column}{member}" for call in step.calls for column in call.columns.values()}
    if step.presence is not None:
        names.add(f"{step.presence[0]}/{step.presence[1]}{member}")
    return names


def whole_from(partial_since: Mapping[str, int], step: StepPlan) -> int:
    """Where windows of a step may start so that all it is read from has seen every row of them."""
    return max((partial_since.get(p, BEFORE_ALL) for p in partials_of(step)), default=BEFORE_ALL)


def handed_watermark(state: StreamState, stream: str, plan: Plan, source: str) -> int:
    """Up to where a source has handed its rows on: a stream's watermark, a step's first open window."""
    if source.lower() == stream.lower():
        return state.watermark(stream)
    step = plan.steps[source.lower()].step
    below = handed_watermark(state, stream, plan, step.path.source)
    if isinstance(step.window, TupleWindow) or step.window is None or abs(below) >= AFTER_ALL:
        return below
    return first_start(step.window, below)


def adopt(state: StreamState, stream: str, before: Plan, after: Plan, number: int) -> None:
    """Move a stream to another version: note from when on each new step can answer exactly.

    A partial that is new has missed the rows so far, so its windows must start after the latest of
    them; one that was there already serves as far back as its panes have been kept, and have seen every
    row. A step that reads another starts with windows of that one which no sampled batch has a part in.
    """
    state.seen_to = fresh = _seen_to(state, stream, before)
    known = _since_sampled(state, stream, before)
    kept: dict[str, int] = {}
    since: dict[str, int] = {}
    for plan in after.steps_of_stream(stream):
        step = plan.step
        name = step.name.lower()
        source = step.path.source
        nested = after.catalog.step_of(source) is not None
        start = fresh
        if nested:
            handed = handed_watermark(state, stream, after, source)
            start = max(handed, whole_from(kept, after.steps[source.lower()]))
        for partial in partials_of(plan):
            kept[partial] = known.get(partial, start)
        if before.steps.get(name) == plan and name in state.since:
            since[name] = state.since[name]
            continue
        if before.steps.get(name) != plan:
            # another query of the same name is not filled with the values of this one
            state.filling.pop(name, None)
        earliest = whole_from(kept, plan) if partials_of(plan) else start
        for table in plan.tables:
            if not after.tables[table].tuples:
                earliest = max(earliest, state.kept_from.get(table, BEFORE_ALL))
        if nested:
            earliest = max(earliest, since.get(source.lower(), BEFORE_ALL))
        since[name] = earliest
    # up to where a step has handed rows on is known only while somebody reads it
    for name in [n for n in state.watermarks if n != stream.lower() and not after.steps_on(n)]:
        del state.watermarks[name]
    for plan in after.steps_of_stream(stream):
        name = plan.step.name.lower()
        if after.steps_on(name) and name not in state.watermarks:
            state.watermarks[name] = handed_watermark(state, stream, after, name)
    state.partial_since = kept
    state.since = since
    live = {t for plan in after.steps_of_stream(stream) for t in plan.tables}
    for mapping in (state.kept_from, state.counted, state.closed_tuples, state.sizes):
        for table in [t for t in mapping if t not in live]:
            del mapping[table]
    state.large = [t for t in state.large if t in live]
    state.version = number


def _sheddable(plan: Plan, stream: str) -> list[StepPlan]:
    """The steps of a version that batches may have been sampled for."""
    return [plan.steps[name] for slot in slots_of(plan, stream).sheddable for name in slot.steps]


def sampled_to(state: StreamState) -> int:
    """The end of the last sampled batch that an open window may have a part in."""
    return max((f.high + 1 for f in state.files.get(BATCHES, ())), default=BEFORE_ALL)


def _dropped_to(state: StreamState) -> int:
    """Up to where rows have been dropped that no kept window needs."""
    return Schedule.from_json(state.schedule).dropped_to


def _seen_to(state: StreamState, stream: str, before: Plan) -> int:
    """A time that every row so far lies before, those that were dropped or skipped too.

    The latest row is only the latest of those kept.
    """
    latest = state.latest + 1 if state.latest is not None else BEFORE_ALL
    reached = max(state.seen_to, latest, sampled_to(state), _dropped_to(state))
    if not _sheddable(before, stream):
        return reached
    # a sampled batch that the log has forgotten ends before all panes that are kept, or the watermark
    bounds = [state.kept_from.get(id_, BEFORE_ALL) for id_, t in before.tables_on(stream) if not t.tuples]
    bounds = bounds or [state.watermark(stream)]
    promised = (state.offsets or {}).get("to")
    if promised is not None:
        bounds.append(int(promised))
    return max(reached, min(bounds))


def _since_sampled(state: StreamState, stream: str, before: Plan) -> dict[str, int]:
    """From when on each partial has seen every row, now that samples of it have been drawn, or rows dropped.

    All that could be sampled or dropped until now counts as such: a new query may start somewhat later.
    """
    known = dict(state.partial_since)
    sampled = sampled_to(state)
    if sampled > BEFORE_ALL:
        for partial in {p for step in _sheddable(before, stream) for p in _columns_of(step)}:
            known[partial] = max(sampled, known.get(partial, sampled))
    dropped = _dropped_to(state)
    if dropped > BEFORE_ALL:
        for step in before.steps_of_stream(stream):
            for partial in partials_of(step) if may_leave_out(before, step) else ():
                known[partial] = max(dropped, known.get(partial, dropped))
    return known


def reconcile(
    catalog: Catalog, applied: Sequence[str], script: str, *, file: str = ""
) -> tuple[Catalog, list[str]]:
    """The catalog after a restart with a script: only what has changed in it since is applied.

    What was created, altered or dropped while running stays so, unless the script now says otherwise.
    """
    statements = parse(script, file=file)
    wanted = [s.sql for s in statements]
    if wanted == list(applied):
        return catalog, wanted
    _same_sources(catalog, applied, statements)
    declares = CreateStream | CreateTable | CreateView | CreateQuery | CreateAlert
    after = Catalog(functions=catalog.functions)
    for statement in statements:
        dropped = isinstance(statement, declares) and statement.name.lower() not in catalog.declared
        if not (dropped and statement.sql in applied):
            after = after.apply(statement, kept=statement.sql in applied)
    for name, declared in catalog.declared.items():
        if declared.sql not in applied and name not in after.declared:
            after = after.apply(declared, kept=True)
    changed = [s for s in statements if s.sql not in applied]
    decided = {s.name.lower() for s in changed if isinstance(s, CreateQuery | AlterQuery)}
    kept = {n: c for n, c in catalog.contracts.items() if n in after.contracts and n not in decided}
    return replace(after, contracts={**after.contracts, **kept}), wanted


def changed_live(file: Catalog, kept: Catalog) -> list[str]:
    """What a run goes on with and its file does not say: changes of queries and views while it ran."""
    found = []
    for name in dict.fromkeys([*file.declared, *kept.declared]):
        said, there = file.declared.get(name), kept.declared.get(name)
        contracts = [str(c.contracts[name]) if name in c.contracts else "" for c in (file, kept)]
        if there is None and said is not None:
            found.append(f"{said.name} was dropped")
        elif said is None and there is not None:
            found.append(f"{there.name} was created")
        elif said is not None and there is not None and said.sql != there.sql:
            found.append(f"{there.name} is another one")
        elif there is not None and contracts[0] != contracts[1]:
            found.append(f"{there.name} is WITH {contracts[1]}, not {contracts[0]}")
    return found


def _same_sources(catalog: Catalog, applied: Sequence[str], statements: Sequence[AnyStatement]) -> None:
    """Raise where a stream or table is declared otherwise than the state was made with."""
    wanted = {s.sql for s in statements}
    for sql in applied:
        old = parse_one(sql)
        if (
            isinstance(old, CreateStream | CreateTable)
            and sql not in wanted
            and old.name.lower() in catalog.declared
        ):
            kind = "stream" if isinstance(old, CreateStream) else "table"
            raise StateError(
                f"{kind} {old.name} has changed since this state was written; "
                "start over with --fresh, or keep its declaration as it was"
            )
