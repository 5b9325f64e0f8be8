"""The pane log of one stream: what each turn added, the driver's cache of it, and what may be forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.plan.algebra import Merge
from slackwater.plan.tables import Plan, Table
from slackwater.runtime.journal import Journal, remove, sync
from slackwater.runtime.samples import BATCHES, sampled_id
from slackwater.runtime.state import BOUNDS, CURRENT, LogFile, StreamState
from slackwater.runtime.store import PaneStore, TooLargeError
from slackwater.spark.execute import parquet_bounds

RESIDENT_ROWS = 1_000_000
"""A table with more partials than this is read by Spark, not held by the driver."""
RESIDENT_CELLS = 20_000_000
"""Panes times groups that the driver holds of a table: its arrays are dense."""
FILES_AT_MOST = 48
"""From so many files on, a table held by the driver is written anew as one."""


class PaneLog:
    """Partials by table, on disk always, in the driver's memory where they are few."""

    def __init__(self, journal: Journal, state: StreamState) -> None:
        self._journal = journal
        self._state = state
        self._stores: dict[str, PaneStore] = {}
        self._doomed: list[Path] = []
        self._plan = Plan()

    def adopt(self, plan: Plan, stream: str) -> None:
        """Go on under another plan: tables that nobody reads any more are forgotten."""
        self._plan = plan
        live = {t for s in plan.steps_of_stream(stream) for t in s.tables}
        # current values are kept by a keeper of their own
        live |= {sampled_id(t) for t in live} | {BATCHES, CURRENT, BOUNDS}
        for table in [t for t in self._state.files if t not in live]:
            self._doomed += [self._journal.root / f.path for f in self._state.files.pop(table)]
            self._stores.pop(table, None)
        for table, store in list(self._stores.items()):
            if {n: m for n, m in store.merges.items() if m != "any"} != _merges(plan, table):
                # new partials joined the table: its panes are read again under the new columns
                del self._stores[table]

    def add_rows(self, table_id: str, step: int, part: int, rows: pa.Table) -> None:
        """Keep partials that came to the driver."""
        # late rows fall into no pane; they have been counted
        rows = rows.filter(pc.is_valid(rows["pane"]))
        if rows.num_rows == 0:
            return
        path = self._path(table_id, f"{step:012d}-{part}.parquet")
        self._keep(table_id, path, rows)
        self._cache(table_id, [rows])

    def folder(self, table_id: str, step: int, part: int) -> Path:
        """Where Spark shall write partials itself."""
        return self._path(table_id, f"{step:012d}-{part}")

    def added_folder(self, table_id: str, path: Path) -> None:
        """Take note of partials that Spark wrote."""
        bounds = parquet_bounds(path)
        if bounds is None:
            remove(path)
            return
        for file in path.glob("*.parquet"):
            sync(file)
        sync(path)
        self._list(table_id, path, bounds)
        if table_id in self._stores:
            self._cache(table_id, (pq.read_table(file) for file in sorted(path.glob("*.parquet"))))

    def _keep(self, table_id: str, path: Path, rows: pa.Table) -> None:
        """Write partials to a file that is there whole or not at all."""
        temporary = path.with_suffix(".tmp")
        pq.write_table(rows, temporary)
        sync(temporary)
        temporary.replace(path)
        bounds = parquet_bounds(path)
        assert bounds is not None
        self._list(table_id, path, bounds)

    def _cache(self, table_id: str, tables: Iterable[pa.Table]) -> None:
        """Add partials to the driver's cache of a table, which is given up where they are too many."""
        store = self._stores.get(table_id)
        try:
            for rows in tables if store is not None else ():
                store.add(rows)  # type: ignore[union-attr]
        except TooLargeError:
            del self._stores[table_id]
            self._state.large.append(table_id)

    def _path(self, table_id: str, name: str) -> Path:
        folder = self._journal.panes / table_id
        folder.mkdir(exist_ok=True)
        return folder / name

    def _list(self, table_id: str, path: Path, bounds: tuple[int, int, int]) -> None:
        rows, low, high = bounds
        sync(path.parent)
        name = str(path.relative_to(self._journal.root))
        self._state.files.setdefault(table_id, []).append(LogFile(name, rows, low, high))

    def files(self, table_id: str) -> list[LogFile]:
        return self._state.files.get(table_id, [])

    def store(self, table_id: str) -> PaneStore | None:
        """The driver's cache of a table, read from the log where need be; None where it is too large."""
        table = self._plan.tables[table_id]
        if table.kind != "partials":
            return None
        listed = self.files(table_id)
        rows = sum(f.rows for f in listed)
        if table_id in self._state.large and rows * _panes(table, listed) <= RESIDENT_CELLS:
            self._state.large.remove(table_id)
        if not table.small and (
            table_id in self._state.large or rows > RESIDENT_ROWS or self._nested(listed)
        ):
            self._stores.pop(table_id, None)
            return None
        if table_id not in self._stores:
            store = PaneStore(
                store_keys(table),
                _merges(self._plan, table_id),
                _triples(self._plan, table_id),
                _nullable(self._plan, table_id),
                None if table.small else RESIDENT_CELLS,
            )
            self._stores[table_id] = store
            self._cache(table_id, (_read(self._journal.root / file.path) for file in listed))
        return self._stores.get(table_id)

    def _nested(self, listed: list[LogFile]) -> bool:
        """Whether keys or values are arrays or structs, which only Spark can compare."""
        if not listed:
            return False
        path = self._journal.root / listed[-1].path
        file = path if path.is_file() else next(iter(sorted(path.glob("*.parquet"))))
        return any(pa.types.is_nested(field.type) for field in pq.read_schema(file))

    def prune(self, table_id: str, before: int) -> None:
        """Forget panes that no window needs any more."""
        kept = []
        for file in self.files(table_id):
            if file.high < before:
                self._doomed.append(self._journal.root / file.path)
            else:
                kept.append(file)
        if table_id in self._state.files:
            self._state.files[table_id] = kept
        if table_id in self._stores:
            self._stores[table_id].prune(before)

    def compact(self, table_id: str, step: int, by_spark: Callable[[list[str], Path], None]) -> None:
        """Write a table of many small files as one; one too large for the driver is left to Spark."""
        store = self._stores.get(table_id)
        listed = self.files(table_id)
        if len(listed) < FILES_AT_MOST:
            return
        if store is None:
            folder = self._path(table_id, f"{step:012d}-all")
            by_spark([str(self._journal.root / f.path) for f in listed], folder)
            self._state.files[table_id] = []
            self._doomed += [self._journal.root / f.path for f in listed]
            self.added_folder(table_id, folder)
            return
        if not store.panes:
            return
        self._state.files[table_id] = []
        self._doomed += [self._journal.root / f.path for f in listed]
        self._keep(table_id, self._path(table_id, f"{step:012d}-all.parquet"), store.table())

    def bury(self) -> None:
        """Delete what the last commit no longer lists."""
        for path in self._doomed:
            remove(path)
        self._doomed.clear()

    def live(self) -> Iterable[str]:
        return (f.path for files in self._state.files.values() for f in files)


def store_keys(table: Table) -> list[str]:
    """The group columns of a table's partials."""
    return (["q"] if table.signature is not None else []) + [f"k{i}" for i in range(len(table.keys))]


def _merges(plan: Plan, table_id: str) -> dict[str, Merge]:
    return {c.id: c.merge for c in plan.columns[table_id]} if table_id in plan.columns else {}


def _nullable(plan: Plan, table_id: str) -> frozenset[str]:
    """Partials that are NULL where no value was seen: all but counts, and means that have a count."""
    columns = plan.columns[table_id]
    return frozenset(
        c.id for c in columns if c.merge in ("sum", "min", "max") and not c.template.startswith("count(")
    )


def _triples(plan: Plan, table_id: str) -> dict[str, tuple[str, str]]:
    found = {}
    for step in plan.steps.values():
        for call in step.calls:
            if call.table == table_id and "m2" in call.columns:
                found[call.columns["mean"]] = (call.columns["n"], call.columns["m2"])
    return found


def _panes(table: Table, listed: list[LogFile]) -> int:
    """How many panes the files of a table can hold at most."""
    if not listed:
        return 0
    return (max(f.high for f in listed) - min(f.low for f in listed)) // table.width + 1


def _read(path: Path) -> pa.Table:
    if path.is_file():
        return pq.read_table(path)
    return pa.concat_tables([pq.read_table(f) for f in sorted(path.glob("*.parquet"))])
