"""The current values of a stream between turns: in memory, and on disk as a snapshot and the turns since.

What a turn took in is written under its step before its answers are released, like the panes of windows. A
run that goes on takes the last snapshot and repeats the turns after it: the same rows and the same ticks give
the same state.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.plan.catalog import Catalog
from slackwater.plan.current import CurrentPlan, current_plan
from slackwater.plan.panes import AFTER_ALL, BEFORE_ALL
from slackwater.plan.scope import safe_name
from slackwater.plan.tables import Plan
from slackwater.planners.deferring import Rules, UnitCosts
from slackwater.planners.manner import Manner
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.current.asking import Asking
from slackwater.runtime.current.pulse import Pace
from slackwater.runtime.current.scheduling import items_for_every
from slackwater.runtime.current.took import Took
from slackwater.runtime.current.values import CurrentValues, Turned
from slackwater.runtime.journal import Journal, remove, sync
from slackwater.runtime.state import CURRENT, LogFile, StreamState
from slackwater.runtime.work import Work
from slackwater.spark.execute import Executor, SparkSession

SNAPSHOT_EVERY = 32
"""Turns after which all is written anew, so that a restart repeats few."""
NOTE = b"slackwater"


@dataclass(frozen=True)
class Keeping:
    """How current values are kept and evaluated."""

    pace: Pace = field(default_factory=Pace)
    entries_at_most: int = 50_000_000
    """Of a query's matrix on the driver."""
    manner: Manner = field(default_factory=Manner)


class Keeper:
    """Holds the current values of one stream; without queries that read them it holds nothing."""

    def __init__(
        self,
        journal: Journal,
        state: StreamState,
        stream: str,
        plan_of: Callable[[int], Plan],
        keeping: Keeping,
        clock: Callable[[], float],
    ) -> None:
        self._journal = journal
        self._state = state
        self._stream = stream
        self._plan_of = plan_of
        self._keeping = keeping
        self._clock = clock
        self._values: CurrentValues | None = None
        self._doomed: list[Path] = []
        self._took = Took()
        self._rules = Rules()

    def rules(self, seconds: float | None, *, fed: bool = True) -> dict[str, Any]:
        """How the next batch is to be evaluated that may take so many seconds; None: as long as it takes.

        Without a limit nothing depends on the clock. ``fed``: rows come with it; else all stays as it was.
        """
        values = self._values
        if values is None and self._files:
            # a run that goes on: as the last turn was, until it is known better
            found = self._last_rules()
            return found if fed else {**found, "budget": None} if found else {}
        if values is None or not values.deferred:
            return {}
        if not fed:
            return replace(self._rules, budget=None).to_json()
        costs = self._took.costs if seconds is not None else UnitCosts()
        before = replace(self._rules, costs=costs)
        gap = values.pulse.gap / 1e6
        every = items_for_every(list(values.deferred.values()), gap, before)
        self._rules = Rules(self._took.budget(seconds), costs, every)
        return self._rules.to_json()

    def learn(self, seconds: float, delivering: float, answers: int) -> None:
        """Take note of how long a turn took in all, and its answers to be delivered."""
        self._took.turn(seconds, delivering, answers)

    @property
    def missed(self) -> dict[str, tuple[int, int]]:
        """By query under DRIFT: evaluations that could not be had in time, and all that were run."""
        deferred = self._values.deferred.values() if self._values is not None else ()
        return {
            q.step.name: (sum(i.missed for i in q.items), sum(i.evaluated for i in q.items)) for q in deferred
        }

    def turn(self, work: Work, items: pa.Table | None) -> None:
        """Carry out a turn of the stream; its answers go to ``work``."""
        plan = current_plan(work.plan.catalog, self._stream)
        if plan is None:
            self._forget()
            return
        ask = self._ask(plan, work.plan.catalog, work.executor, work.session, work.now())
        read = work.decision.watermark
        lateness = work.plan.catalog.streams[self._stream.lower()].lateness
        changed = self._go_on(plan, ask, read + lateness if read > BEFORE_ALL else read)
        values = self._values
        assert values is not None
        watermark = self._state.watermark(self._stream)
        before = work.decision.watermark if work.decision.kind == "batch" else watermark
        turned = Turned(items, before, watermark, Rules.from_json(work.decision.deferral))
        self._took.begin(values.effort, begins=changed)
        values.turn(turned, ask)
        ask.flush(values.answers)
        self._took.end(values.effort, turned.rules, sum(map(len, ask.taken)))
        if changed or len(self._files) >= SNAPSHOT_EVERY:
            self._write_snapshot(work.step, work.decision.version)
        else:
            self._write_turn(work.step, turned)
        if ask.taken:
            taken = [_but(batch, self._state.filtered_to) for batch in ask.taken]
            work.answers.append(partial(iter, taken))

    def _ask(
        self, plan: CurrentPlan, catalog: Catalog, executor: Executor, session: SparkSession, at: datetime
    ) -> Asking:
        folder = self._journal.root / "shards" / safe_name(self._stream.lower())
        return Asking(plan, catalog, executor, session, at, folder, self._keeping.entries_at_most)

    def wakes(self, watermark: int) -> bool:
        """Whether something would be evaluated if the watermark moved, though nothing comes."""
        if self._values is None:
            # a run that goes on: what was kept is not read yet, and may wait for this
            return bool(self._files)
        return self._values.wakes(watermark)

    @property
    def _files(self) -> list[LogFile]:
        return self._state.files.setdefault(CURRENT, [])

    def _go_on(self, plan: CurrentPlan, ask: Asking, begun: int) -> bool:
        """Have values for a plan: from disk, from another plan, or new; whether all is to be kept anew.

        ``begun`` is the time up to which the stream was read before.
        """
        if self._values is None and self._files:
            self._load(ask)
        if self._values is None:
            self._values = CurrentValues(plan, self._keeping.pace, self._keeping.manner, self._clock)
            self._values.prepare(ask)
            self._values.known_from(begun)
            return True
        if self._values.plan != plan:
            self._values = self._values.carried(plan, ask)
            return True
        return False

    def _load(self, ask: Asking) -> None:
        first, *turns = self._files
        arrays, tables = _read_parts(self._journal.root / first.path)
        version = int(arrays.pop("version"))
        arrays.pop("rules")
        plan = current_plan(self._plan_of(version).catalog, self._stream)
        assert plan is not None
        values = CurrentValues(plan, self._keeping.pace, self._keeping.manner, self._clock)
        values.load(arrays, tables)
        catalog = self._plan_of(version).catalog
        asked = self._ask(plan, catalog, ask.executor, ask.session, ask.emitted_at)
        values.prepare(asked)
        for query in values.deferred.values():
            query.compare()
        for file in turns:
            kept = pq.read_table(self._journal.root / file.path)
            note = json.loads(kept.schema.metadata[NOTE])
            items = kept.replace_schema_metadata(None) if note["items"] else None
            rules = Rules.from_json(note["rules"])
            values.turn(Turned(items, note["before"], note["watermark"], rules), asked)
            values.discard()
        self._values = values

    def _write_turn(self, step: int, turned: Turned) -> None:
        items = turned.items
        some = items is not None and items.num_rows > 0
        note = {"before": turned.before, "watermark": turned.watermark, "items": some}
        note |= {"rules": turned.rules.to_json()}
        table = items if some else pa.table({"none": pa.array([], pa.int64())})
        assert table is not None
        table = table.replace_schema_metadata({NOTE: json.dumps(note).encode()})
        path = self._path(f"{step:012d}.parquet")
        temporary = path.with_suffix(".tmp")
        pq.write_table(table, temporary)
        self._list(temporary, path, table.num_rows)

    def _last_rules(self) -> dict[str, Any]:
        path = self._journal.root / self._files[-1].path
        if path.suffix == ".npz":
            with np.load(path) as kept:
                found: dict[str, Any] = json.loads(str(kept["rules"]))
        else:
            found = json.loads(pq.read_schema(path).metadata[NOTE])["rules"]
        self._rules = Rules.from_json(found)
        return found

    def _write_snapshot(self, step: int, version: int) -> None:
        assert self._values is not None
        arrays, tables = self._values.to_parts()
        arrays["version"], arrays["rules"] = np.array(version), np.array(json.dumps(self._rules.to_json()))
        self._doomed += [self._journal.root / f.path for f in self._files]
        self._files.clear()
        path = self._path(f"{step:012d}.npz")
        temporary = path.with_suffix(".tmp")
        with open(temporary, "wb") as file:
            tabled = {f"table/{n}": np.frombuffer(_bytes(t), np.uint8) for n, t in tables.items()}
            np.savez(file, allow_pickle=False, **arrays, **tabled)
        self._list(temporary, path, 0)

    def _path(self, name: str) -> Path:
        folder = self._journal.panes / f"{CURRENT}_{safe_name(self._stream.lower())}"
        folder.mkdir(exist_ok=True)
        return folder / name

    def _list(self, temporary: Path, path: Path, rows: int) -> None:
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
        # no panes: times that are no bound for anything
        name = str(path.relative_to(self._journal.root))
        self._files.append(LogFile(name, rows, AFTER_ALL, AFTER_ALL))

    def _forget(self) -> None:
        """Let go of everything, as no query reads current values any more."""
        self._values = None
        listed = self._state.files.pop(CURRENT, [])
        self._doomed += [self._journal.root / file.path for file in listed]

    def bury(self) -> None:
        """Delete what the last commit no longer lists."""
        for path in self._doomed:
            remove(path)
        self._doomed.clear()


def _but(batch: AnswerBatch, filtered_to: int) -> AnswerBatch:
    """Answers, of which those before a time do not keep their contract: agents had not told all by then."""
    if batch.at is None or not (before := np.asarray(batch.at) < filtered_to).any():
        return batch
    return replace(batch, met=np.asarray(batch.met) & ~before)


def _bytes(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _read_parts(path: Path) -> tuple[dict[str, np.ndarray], dict[str, pa.Table]]:
    arrays: dict[str, np.ndarray] = {}
    tables: dict[str, pa.Table] = {}
    with np.load(path) as kept:
        for name in kept.files:
            if name.startswith("table/"):
                tables[name.removeprefix("table/")] = pa.ipc.open_stream(kept[name].tobytes()).read_all()
            else:
                arrays[name] = kept[name]
    return arrays, tables
