"""What can be changed in a run that goes on, and what a change would do before it is made."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from slackwater.errors import SlackwaterError
from slackwater.language.contracts import Drift, Error, Precision
from slackwater.language.parse import parse
from slackwater.language.statements import AlterQuery, CreateStream, Drop, Explain
from slackwater.plan.catalog import Catalog
from slackwater.plan.explain import explain
from slackwater.plan.layout import extend
from slackwater.plan.tables import Plan
from slackwater.planners.forecast import Forecast, QueryForecast
from slackwater.planners.preview import as_it_is, previewed
from slackwater.runtime.insight import Glimpse
from slackwater.runtime.session import Session
from slackwater.runtime.trial import registering, tried
from slackwater.service.models import Knobs, KnobsWanted, Predicted, Preview
from slackwater.service.watched import Dials
from slackwater.spark.check import check_with_spark
from slackwater.statistics.snapshot import StreamStatistics

TASTING_S = 4.0
"""How long rows are waited for that a new query is tried on."""
GUESSED = "values are taken to scatter as much as their mean."
HARMED = 20
"""Other queries that are told what would become of them."""
Tried = dict[str, tuple[StreamStatistics, Plan]]


@dataclass
class LiveControl:
    """Changes of a session that runs."""

    session: Session
    look: Callable[[], Glimpse | None] = lambda: None
    """What is known of the load at this moment."""
    dials: Dials | None = None

    @property
    def version(self) -> int:
        """Of the query set."""
        return self.session.engine.versions.latest

    def apply(self, sql: str) -> list[str]:
        """Statements, all or none."""
        return self.session.sql(sql)

    def turn(self, wanted: KnobsWanted) -> Knobs | None:
        """Move the sliders of the demo."""
        return self.dials.turn(wanted) if self.dials is not None else None

    def preview(self, sql: str, *, trusted: bool = True) -> Preview:
        """What statements would do; nothing is changed. ``trusted``: Spark may have them."""
        before = self.session.catalog
        after, altered, dropped = _applied(before, sql)
        plan = extend(self.session.plan, after)
        if trusted:
            self._check(after)
        created = [s.name for n, s in after.queries.items() if n not in before.queries]
        notes: list[str] = []
        untried = ""
        if created and not trusted:
            untried = "Without the token of the run nothing was tried on rows, and Spark checked no type: "
            untried += GUESSED
        elif after.tables.keys() - before.tables.keys():
            untried = "New tables are not read before they are there, so that nothing was tried on rows."
        found = self._forecasts(plan, created, self.look(), notes, untried)
        now, then = found if found is not None else (None, None)
        # one may be altered and dropped by the same statements
        fresh = {name.lower() for name in (*created, *altered)} & after.queries.keys()
        return Preview(
            creates=[d.name for n, d in after.declared.items() if n not in before.declared],
            alters=altered,
            drops=dropped,
            plan=explain(plan),
            plan_svg=explain(plan, "svg"),
            queries=_predicted(after, fresh, now, then, notes),
            load=_finite(then.load) if then is not None else None,
            load_before=_finite(now.load) if now is not None else None,
            capacity=_finite(then.capacity) if then is not None else None,
            level=_finite(then.level) if then is not None else None,
            level_before=_finite(now.level) if now is not None else None,
            notes=notes,
        )

    def _check(self, catalog: Catalog) -> None:
        """Let Spark analyse all queries; tables are taken as declared, since a look must read no file."""
        session = self.session
        assert session.spark is not None
        checking = session.new_executor()
        known = session.engine.executor
        checking.checked |= known.checked
        checking.numberless |= known.numberless
        for table in catalog.tables.values():
            checking.pretend_table(table)
        check_with_spark(checking, extend(Plan(), catalog))

    def _forecasts(
        self,
        plan: Plan,
        created: list[str],
        glimpse: Glimpse | None,
        notes: list[str],
        untried: str,
    ) -> tuple[Forecast, Forecast] | None:
        """As things are, and as they would be; None where nothing has been measured.

        ``untried``: why new queries are not tried on rows; empty where they are.
        """
        status = self.session.status()
        loads = [
            x
            for x in (glimpse.with_windows() if glimpse is not None else ())
            if x.statistics.batches and x.statistics.stream.lower() not in status.ended
        ]
        if glimpse is None or not loads:
            notes.append("Nothing has been measured yet, so that no error can be predicted.")
            return None
        notes += [
            f"{s.name} is idle: it is counted as it was when it last had rows."
            for s in status.streams
            if s.state == "idle"
        ]
        found: Tried = {}
        if untried:
            notes.append(untried)
        else:
            found = self._tried(plan, created, {x.statistics.stream.lower() for x in loads}, notes)
        capacity = glimpse.pace.capacity
        now = as_it_is(loads, glimpse.machine, capacity)
        return now, previewed(loads, plan, found, glimpse.machine, capacity)

    def _tried(self, plan: Plan, created: list[str], measured: set[str], notes: list[str]) -> Tried:
        """What a trial of new queries finds, by stream."""
        by_stream: dict[str, list[str]] = {}
        for name in created:
            step = plan.catalog.queries[name.lower()]
            if not step.current and step.stream.lower() in measured:
                by_stream.setdefault(step.stream.lower(), []).append(name)
        found: Tried = {}
        session = self.session
        assert session.spark is not None
        for stream, names in by_stream.items():
            alone = plan.catalog.only(names)
            rows = session.engine.tasting.ask(stream, TASTING_S)
            if rows is None:
                notes.append(
                    f"No rows of {plan.catalog.streams[stream].name} came within {TASTING_S:g} seconds to "
                    f"try it on: {GUESSED}"
                )
                continue
            prepare = registering(session.scalars, plan.catalog.functions.aggregates)
            try:
                known = tried(session.spark, alone, stream, rows, prepare)
            except SlackwaterError as error:
                notes.append(f"It could not be tried on rows of the stream: {error}")
                continue
            if known is not None:
                found[stream] = (known, extend(Plan(), alone))
                notes.append(f"Tried on {rows.num_rows:,} rows that have just come.")
        return found


def _applied(catalog: Catalog, sql: str) -> tuple[Catalog, list[str], list[str]]:
    """The catalog after statements, and the names of what they alter and drop."""
    altered, dropped = [], []
    for statement in parse(sql):
        if isinstance(statement, CreateStream) or (
            isinstance(statement, Drop) and statement.kind == "stream"
        ):
            raise statement.source.error(
                "streams are declared and dropped before the run starts",
                hint="stop, change the file, and run again",
            )
        catalog = catalog.apply(statement)
        if isinstance(statement, AlterQuery):
            altered.append(statement.name)
        elif isinstance(statement, Drop):
            dropped.append(statement.name)
        elif isinstance(statement, Explain):
            continue
    return catalog, altered, dropped


def _predicted(
    catalog: Catalog, fresh: set[str], now: Forecast | None, then: Forecast | None, notes: list[str]
) -> list[Predicted]:
    """The queries of a change first, then those that it would harm most."""
    before = {q.query.lower(): q for q in now.queries} if now is not None else {}
    after = {q.query.lower(): q for q in then.queries} if then is not None else {}
    own = [_one(catalog, name, before.get(name), after.get(name), True, notes) for name in sorted(fresh)]
    harmed = [
        (after[name].error - before[name].error, name)
        for name in after
        if name not in fresh and name in before and after[name].error > before[name].error
    ]
    others = [
        _one(catalog, name, before[name], after[name], False, notes)
        for _, name in sorted(harmed, reverse=True)[:HARMED]
    ]
    return own + others


def _one(
    catalog: Catalog,
    name: str,
    before: QueryForecast | None,
    after: QueryForecast | None,
    fresh: bool,
    notes: list[str],
) -> Predicted:
    contract = catalog.contracts[name]
    step = catalog.queries[name]
    error = _finite(after.error) if after is not None else None
    if isinstance(contract, Precision):
        notes.append(f"{step.name}: intervals are at most {contract.width:g} wide, whatever the load.")
    elif isinstance(contract, Drift):
        notes.append(f"{step.name}: answers stand until they have probably drifted; nothing of it is shed.")
    elif after is None and isinstance(contract, Error) and step.current:
        notes.append(f"{step.name}: current values are not sampled.")
    return Predicted(
        query=step.name,
        contract=str(contract),
        fresh=fresh,
        rate=after.rate if after is not None else None,
        error=error,
        error_before=_finite(before.error) if before is not None else None,
        met=after.met if after is not None else None,
        suspended=after.suspended if after is not None else False,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
