"""The bounds of a stream between turns: the log is read on, intervals follow, widths are granted.

What is kept on disk is a snapshot now and then; the hub's log from there on gives the rest again. A run that
goes on repeats what came after its snapshot without delivering it, since that was delivered before.
"""

from __future__ import annotations

import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.edge.messages import Disconnected
from slackwater.edge.widths import Grants, Ints
from slackwater.language.contracts import Precision
from slackwater.language.statements import CreateStream
from slackwater.plan.adjusting import adjusting
from slackwater.plan.bounded import bounded_form, value_columns
from slackwater.plan.catalog import Catalog
from slackwater.plan.current import CurrentPlan, CurrentStep
from slackwater.plan.panes import AFTER_ALL
from slackwater.plan.scope import safe_name
from slackwater.runtime.bounds.coordinator import Coordinator
from slackwater.runtime.bounds.evaluating import Evaluator
from slackwater.runtime.bounds.mirror import Mirror
from slackwater.runtime.bounds.queries import BoundedQuery
from slackwater.runtime.bounds.showing import Rates, Told, described
from slackwater.runtime.bounds.shown import AgentsShown, shown
from slackwater.runtime.bounds.summing import Order, Summing
from slackwater.runtime.current.asking import Asking
from slackwater.runtime.current.matrix import Matrix
from slackwater.runtime.current.places import Places
from slackwater.runtime.journal import Journal, remove, sync
from slackwater.runtime.state import BOUNDS, LogFile, StreamState
from slackwater.runtime.work import Work
from slackwater.spark.agents_source import AgentsSource

SNAPSHOT_EVERY = 32
logger = logging.getLogger(__name__)
SLIDING = "sliding."
"""Before the names of what is kept of items over a sliding time."""


class BoundsKeeper:
    """Holds the bounds of one stream that agents send."""

    def __init__(
        self, journal: Journal, state: StreamState, stream: CreateStream, source: AgentsSource, seed: int
    ) -> None:
        self._journal = journal
        self._state = state
        self._stream = stream.name
        self._source = source
        self._adjusting = adjusting(stream)
        self._keys = Places(len(source.key_types))
        self._numbers: Ints = np.empty(0, np.int64)
        """The hub's number of each of these keys."""
        self._width = 0
        """How many keys are numbered, sums included."""
        self._windows: tuple[dict[str, Any], list[list[Any]]] = ({}, [])
        """What was kept of items over a sliding time."""
        self._delivered: int | None = None
        """Up to which time all had been delivered by a run that this one goes on from."""
        self._fresh = state.offsets is None
        """Whether nothing of the log has been read yet."""
        self.mirror = self._loaded(len(value_columns(stream)))
        self._evaluator = Evaluator([], None)
        self._coordinator = Coordinator(self._adjusting, np.random.default_rng(seed))
        self._plan: CurrentPlan | None = None
        self._turns = 0
        self._summing = Summing(self._adjusting, self._coordinator.tuning)
        self._forming: list[Order] = []
        self._granting = Grants.none()
        self._granted = 0
        """The position after the last grant that was made: until that is read, nothing more is granted."""
        self._everything = False
        """Whether some query needs every row, so that nothing may be filtered."""
        self._changed = False
        """Whether what is asked has changed since widths were last decided."""
        self._doomed: list[Path] = []
        self._rates = Rates()

    @property
    def queries(self) -> list[BoundedQuery]:
        return self._evaluator.queries

    def turn(self, work: Work) -> None:
        """Carry out a turn; its answers go to ``work``, its grants wait for the commit."""
        if work.decision.kind != "batch":
            return
        catalog = work.plan.catalog
        ask = self._ask(work)
        changed = self._follow(catalog, ask)
        self._replay()
        offsets = work.decision.offsets
        end, time = int(offsets["end"]), int(offsets["time"])
        for entry in self._source.entries(offsets):
            self.mirror.take(entry)
        if self._fresh:
            # what was before a run began it need not speak of
            for _ in self.mirror.advance(min(time, self._source.connected_at)):
                changed = True
            self._fresh = False
        changed |= self._place_keys(ask)
        answers = self._evaluator.advance(self.mirror, time, self._adjusting, work.now())
        if answers:
            work.answers.append(partial(iter, answers))
        changed |= self._evaluator.reweighed
        self._evaluator.reweighed = False
        everything = any(
            q.stream.lower() == self._stream.lower() and not isinstance(q.contract, Precision)
            for q in catalog.queries.values()
        )
        changed |= everything != self._everything
        self._everything = everything
        self._note_filtered(time)
        # what was granted before must be known before anything else is
        read = end >= max(self._granted, self._source.granted_from)
        if changed or (read and self._summing.due(self.mirror, time, everything=everything)):
            summed, orders = self._summing.decide(
                self.queries, self.mirror, time, everything=everything, changed=changed
            )
            self._forming = orders if read else []
            if summed is not None:
                self._coordinator.ask(self.queries, self.mirror.belief, summed, everything=everything)
        if read and not self.mirror.queue.granting:
            self._granting = self._coordinator.decide(self.mirror, time, changed=changed or self._changed)
            self._changed = False
        else:
            self._changed |= changed
        self._rates.note(time, self.mirror.queue.rows, len(self._granting))
        self._turns += 1
        if changed or self._turns >= SNAPSHOT_EVERY:
            self._write(work.step, end)

    def _note_filtered(self, time: int) -> None:
        """Take note of the time before which queries that need every row have not had them all.

        Once nothing is filtered, keys that are new tell their first value late, which is when they begin; and
        rows of agents that were away come late, which is counted.
        """
        state = self._state
        if not self._everything:
            state.unfiltered = False
        elif not state.unfiltered:
            state.unfiltered = self.mirror.tells_all
            state.filtered_to = self.mirror.queue.released + 1 if state.unfiltered else time + 1

    def described(self, name: str | None = None) -> list[str]:
        """What EXPLAIN shows of a run: of all, of this stream, or of one query that reads it."""
        asked = None if name is None or name.lower() == self._stream.lower() else name.lower()
        queries = [q for q in self.queries if asked is None or q.step.name.lower() == asked]
        if asked is not None and not queries:
            return []
        now = self.mirror.queue.released
        manner = self._coordinator.tuning.described(self._coordinator.constraints)
        return described(self._stream, self.mirror, queries, self._rates, now, manner)

    def shown(self) -> AgentsShown:
        """Agents, messages and widths at this moment, as values; to be called under the engine's lock."""
        return shown(self._stream, self.mirror, self.queries, self._rates)

    @property
    def told(self) -> Told:
        """How much agents have sent."""
        queue = self.mirror.queue
        return Told(queue.rows, self._rates.up, None if self._everything else queue.late)

    def committed(self) -> None:
        """Make the grants of a turn that is committed, and let the hub forget what is kept here."""
        grants, self._granting = self._granting, Grants.none()
        orders, self._forming = self._forming, []
        link = self._source.link
        try:
            for order in orders:
                link.form(order.agent, order.members, order.scope, order.window, order.dropped)
                self._granted = link.end().position
            if len(grants):
                self._granted = int(link.grant(grants).position[-1]) + 1
        except Disconnected:
            # whether it was carried out shows when the log is read on
            self._granted = max(self._granted, link.connect().position)
        if self._files:
            # but for the last entry that was read: by that a log is known again
            self._source.link.forget(int(self._files[-1].rows) - 1)
        for path in self._doomed:
            remove(path)
        self._doomed.clear()

    def _ask(self, work: Work) -> Asking:
        plan = self._plan_of(work.plan.catalog)
        work.executor.prepare(work.session, work.plan.catalog, {})
        folder = self._journal.root / "shards" / safe_name(self._stream.lower())
        return Asking(plan, work.plan.catalog, work.executor, work.session, work.now(), folder)

    def _plan_of(self, catalog: Catalog) -> CurrentPlan:
        declared = catalog.streams[self._stream.lower()]
        steps = [
            s
            for s in catalog.queries.values()
            if s.stream.lower() == self._stream.lower() and isinstance(s.contract, Precision)
        ]
        return CurrentPlan(declared, tuple(CurrentStep(s, bounded_form(s, declared).linear) for s in steps))

    def _follow(self, catalog: Catalog, ask: Asking) -> bool:
        """Have the queries of a catalog; whether they are others than before."""
        plan = ask.plan
        if plan == self._plan:
            return False
        self._plan = plan
        columns = value_columns(plan.stream)
        queries = []
        for step in plan.steps:
            query = BoundedQuery(bounded_form(step.step, plan.stream), Matrix(step, plan.signals), columns)
            query.matrix.extend(self._numbered(ask.entries(step, self._keys, 0)), self._width)
            query.name_groups(ask.group_items)
            queries.append(query)
        self._evaluator = Evaluator(queries, self._evaluator)
        self._evaluator.weigh(self.mirror.belief)
        return True

    def _replay(self) -> None:
        """Catch up with what had been delivered, once the queries are known whose windows it is part of."""
        if self._delivered is None:
            return
        self._evaluator.windows.load(*self._windows)
        self._evaluator.replay(self.mirror, self._delivered, self._adjusting)
        self._delivered = None

    def _place_keys(self, ask: Asking) -> bool:
        """Ask how queries weigh the keys that are new."""
        if len(self.mirror.names) == self._width:
            return False
        known = self._keys.size
        self._name_keys(self.mirror.names)
        for query in self.queries:
            fresh = self._numbered(ask.entries(query.matrix.step, self._keys, known))
            query.matrix.extend(fresh, self._width)
            query.name_groups(ask.group_items)
        self._evaluator.weigh(self.mirror.belief)
        return True

    def _name_keys(self, names: list[Any]) -> None:
        """Give places to keys that are new; sums are keys without a name, which no query weighs by itself."""
        fresh = [n for n in range(self._width, len(names)) if self._source.has_name(names[n])]
        strange = [names[n] for n in range(self._width, len(names)) if n not in set(fresh)]
        strange = [name for name in strange if not isinstance(name, dict)]
        if strange:
            logger.warning(
                "stream %s: %d keys are not of the types that it declares and are left out, such as %r",
                *(self._stream, len(strange), strange[0]),
            )
        if fresh:
            types = self._source.key_types
            columns = [pa.array([names[n][i] for n in fresh], t) for i, t in enumerate(types)]
            self._keys.find(columns, add=True)
        self._numbers = np.concatenate([self._numbers, np.array(fresh, np.int64)])
        self._width = len(names)

    def _numbered(self, entries: pa.Table) -> pa.Table:
        """Entries with the hub's numbers of keys instead of their places."""
        if not entries.num_rows:
            return entries
        numbers = self._numbers[entries["key"].to_numpy()]
        return entries.set_column(entries.column_names.index("key"), "key", pa.array(numbers))

    # on disk

    @property
    def _files(self) -> list[LogFile]:
        return self._state.files.setdefault(BOUNDS, [])

    def _loaded(self, columns: int) -> Mirror:
        manner = self._adjusting
        widening = None if manner.rates is None else manner.period
        mirror = Mirror(columns, manner.tolerance, rates=manner.rates, widening=widening)
        offsets = self._state.offsets
        if not self._files or offsets is None:
            return mirror
        with np.load(self._journal.root / self._files[-1].path) as kept:
            noted: dict[str, Any] = json.loads(str(kept["kept"]))
            mirror.load({n: kept[n] for n in kept.files if n != "kept"}, noted)
            own = {n: kept[n] for n in kept.files if n.startswith(SLIDING)}
            self._windows = ({n.removeprefix(SLIDING): a for n, a in own.items()}, noted.get("sliding", []))
        for entry in self._source.entries(offsets, int(self._files[-1].rows)):
            mirror.take(entry)
        self._delivered = int(offsets["time"])
        self._source.know(list(mirror.names))
        self._name_keys(mirror.names)
        return mirror

    def _write(self, step: int, end: int) -> None:
        """Keep a snapshot of the log up to a position."""
        self._turns = 0
        arrays, noted = self.mirror.to_parts()
        windows, noted["sliding"] = self._evaluator.windows.to_parts()
        arrays |= {SLIDING + name: array for name, array in windows.items()}
        folder = self._journal.panes / f"{BOUNDS}_{safe_name(self._stream.lower())}"
        folder.mkdir(exist_ok=True)
        path = folder / f"{step:012d}.npz"
        temporary = path.with_suffix(".tmp")
        with open(temporary, "wb") as file:
            np.savez(file, allow_pickle=False, kept=np.array(json.dumps(noted)), **arrays)
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
        self._doomed += [self._journal.root / f.path for f in self._files]
        self._files.clear()
        self._files.append(LogFile(str(path.relative_to(self._journal.root)), end, AFTER_ALL, AFTER_ALL))
