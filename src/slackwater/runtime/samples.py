"""What sampled batches left in the log: their partials by batch, and for each slot what arrived and was kept.

Partials of exact batches merge pane by pane; those of sampled ones may not, because a row weighs what its own
batch says. They stay apart, one row for each batch, pane, group and block that was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.plan.panes import BEFORE_ALL, Ints
from slackwater.plan.scope import safe_name
from slackwater.runtime.journal import Journal, remove, sync
from slackwater.runtime.state import LogFile, StreamState
from slackwater.spark.execute import parquet_bounds
from slackwater.statistics.samples import Floats

BATCHES = "batches"
"""Name under which a stream's sampled batches are kept in the log."""
BATCH_SCHEMA = pa.schema(
    [
        ("batch", pa.int64()),
        ("slot", pa.string()),
        ("block", pa.int64()),
        ("arrived", pa.int64()),
        ("kept", pa.int64()),
        ("rate", pa.float64()),
        ("share", pa.float64()),
        ("tau", pa.float64()),
        ("low", pa.int64()),
        ("high", pa.int64()),
        ("seen", pa.int64()),
    ]
)
FILES_AT_MOST = 48


@dataclass(frozen=True)
class Span:
    """Between which times the rows of a batch lie that are not late, in microseconds, both included."""

    low: int
    high: int
    """Rows that were dropped lie no later, but for a chance that is put up with."""
    seen: int
    """Rows are known to lie this far, or taken to."""


@dataclass(frozen=True)
class SlotBatches:
    """The sampled batches of one slot, by batch number; of one that was read in blocks, a row for each."""

    batch: Ints
    block: Ints
    arrived: Ints
    kept: Ints
    rate: Floats
    share: Floats
    tau: Floats
    """Above 0 where rows were kept in proportion to their size."""
    low: Ints
    high: Ints
    """Event times of the batch's rows lie between these, of those that were dropped too."""

    def __len__(self) -> int:
        return len(self.batch)

    def suspended(self, start: Ints, end: Ints) -> npt.NDArray[np.bool_]:
        """Which windows meet a batch that the slot got nothing of."""
        lost = np.zeros(len(start), dtype=bool)
        window, row = self.overlapping(start, end)
        lost[window[self.rate[row] <= 0]] = True
        return lost

    def overlapping(self, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Pairs of windows and rows of this table whose times meet."""
        meets = (self.low[None, :] < end[:, None]) & (self.high[None, :] >= start[:, None])
        window, row = np.nonzero(meets)
        return window, row


def sampled_id(table_id: str) -> str:
    """What the partials of sampled batches of a table are kept under."""
    return f"{table_id}_sampled"


class SampleLog:
    """Sampled partials by table and sampled batches by slot, on disk and on the driver."""

    def __init__(self, journal: Journal, state: StreamState, stream: str) -> None:
        self._journal = journal
        self._state = state
        self._stream = safe_name(stream.lower())
        self._held: dict[str, pa.Table] = {}
        self._slots: dict[str, SlotBatches] | None = None
        self._ended = False
        self.doomed: list[Path] = []

    @property
    def empty(self) -> bool:
        """Whether no batch in the log was sampled: the whole way of an exact run."""
        return not self._state.files.get(BATCHES)

    def add_batches(self, step: int, rows: pa.Table) -> None:
        """Take note of what a batch kept, for every slot that was sampled."""
        if not rows.num_rows:
            return
        self._add(BATCHES, step, 0, rows, int(pc.min(rows["low"]).as_py()), int(pc.max(rows["high"]).as_py()))
        self._slots = None

    def add_partials(self, table_id: str, step: int, part: int, rows: pa.Table) -> None:
        """Keep the partials of a sampled batch that came to the driver."""
        if rows.num_rows:
            low, high = pc.min_max(rows["pane"]).as_py().values()
            self._add(sampled_id(table_id), step, part, rows, low, high)

    def add_folder(self, table_id: str, path: Path) -> int:
        """Take note of the partials of a sampled batch that Spark wrote; how many rows they are."""
        bounds = parquet_bounds(path)
        if bounds is None:
            remove(path)
            return 0
        for file in path.glob("*.parquet"):
            sync(file)
        sync(path)
        self._held.pop(sampled_id(table_id), None)
        self._list(sampled_id(table_id), path, *bounds)
        return bounds[0]

    def _add(self, key: str, step: int, part: int, rows: pa.Table, low: int, high: int) -> None:
        before = self.table(key) if key in self._held else None
        self._write(key, f"{step:012d}-{part}.parquet", rows, low, high)
        if before is not None:
            # in one piece: every window that closes reads all of it
            self._held[key] = pa.concat_tables([before, rows], promote_options="permissive").combine_chunks()

    def _write(self, key: str, name: str, rows: pa.Table, low: int, high: int) -> None:
        folder = self._folder(key)
        path = folder / name
        temporary = path.with_suffix(".tmp")
        pq.write_table(rows, temporary)
        sync(temporary)
        temporary.replace(path)
        self._list(key, path, rows.num_rows, low, high)

    def _folder(self, key: str) -> Path:
        # tables have names of their own; every stream has batches
        folder = self._journal.panes / (f"{key}_{self._stream}" if key == BATCHES else key)
        folder.mkdir(exist_ok=True)
        return folder

    def _list(self, key: str, path: Path, rows: int, low: int, high: int) -> None:
        sync(path.parent)
        name = str(path.relative_to(self._journal.root))
        self._state.files.setdefault(key, []).append(LogFile(name, rows, low, high))

    def files(self, table_id: str) -> list[LogFile]:
        return self._state.files.get(sampled_id(table_id), [])

    def table(self, key: str) -> pa.Table | None:
        """All rows kept under a name; None where there are none."""
        listed = self._state.files.get(key, [])
        if not listed:
            self._held.pop(key, None)
            return None
        if key not in self._held:
            paths = [self._journal.root / f.path for f in listed]
            self._held[key] = pa.concat_tables([_read(p) for p in paths], promote_options="permissive")
        return self._held[key]

    def partials(self, table_id: str) -> pa.Table | None:
        """The partials of sampled batches of a table."""
        return self.table(sampled_id(table_id))

    def slot(self, slot_id: str) -> SlotBatches | None:
        """The sampled batches of a slot; None where it has had none."""
        if self._slots is None:
            latest = BEFORE_ALL if self._state.latest is None else self._state.latest
            self._slots = _by_slot(self.table(BATCHES), latest if self._ended else None)
        return self._slots.get(slot_id)

    def end(self) -> None:
        """Take it that no batch reaches beyond the last row known: the stream has ended.

        While it goes on, time that a batch may reach into is followed by rows that tell how far it went.
        After its end all such windows would close, and all but a few of them never had a row.
        """
        self._ended = True
        self._slots = None

    def prune(self, key: str, before: int) -> None:
        """Forget files all of whose rows are before a time."""
        listed = self._state.files.get(key)
        if not listed:
            return
        kept = [f for f in listed if f.high >= before]
        if len(kept) < len(listed):
            self.doomed += [self._journal.root / f.path for f in listed if f.high < before]
            self._state.files[key] = kept
            held = self._held.pop(key, None)
            if held is not None and kept:
                column = "high" if key == BATCHES else "pane"
                self._held[key] = held.filter(pc.greater_equal(held[column], pa.scalar(before)))
            self._slots = None if key == BATCHES else self._slots
        if not kept:
            del self._state.files[key]

    def compact(self, key: str, step: int) -> None:
        """Write what lies in many small files as one."""
        listed = self._state.files.get(key, [])
        if len(listed) < FILES_AT_MOST or any((self._journal.root / f.path).is_dir() for f in listed):
            return
        rows = self.table(key)
        assert rows is not None
        self.doomed += [self._journal.root / f.path for f in listed]
        self._state.files[key] = []
        low, high = ("low", "high") if key == BATCHES else ("pane", "pane")
        bounds = int(pc.min(rows[low]).as_py()), int(pc.max(rows[high]).as_py())
        self._write(key, f"{step:012d}-all.parquet", rows, *bounds)

    def forget(self, keys: Iterable[str]) -> None:
        """Drop everything of tables that nobody reads any more."""
        for key in keys:
            self.doomed += [self._journal.root / f.path for f in self._state.files.pop(key, [])]
            self._held.pop(key, None)

    def bury(self) -> None:
        for path in self.doomed:
            remove(path)
        self.doomed.clear()


def _by_slot(rows: pa.Table | None, latest: int | None = None) -> dict[str, SlotBatches]:
    """The batches of each slot; if a latest time is given, cut off there or where they are known to reach."""
    if rows is None or rows.num_rows == 0:
        return {}
    encoded = rows["slot"].combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy()
    order = np.lexsort((rows["block"].to_numpy(), rows["batch"].to_numpy(), codes))
    columns = {n: rows[n].to_numpy()[order] for n in BATCH_SCHEMA.names if n not in ("slot", "seen")}
    if latest is not None and "seen" in rows.column_names:
        # in a log of older batches nothing lies beyond what was seen
        seen = pc.coalesce(rows["seen"], rows["high"]).to_numpy()[order]
        columns["high"] = np.minimum(columns["high"], np.maximum(seen, latest))
    codes = codes[order]
    found: dict[str, SlotBatches] = {}
    bounds: Sequence[int] = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    for first, last in pairwise(bounds):
        name = encoded.dictionary[int(codes[first])].as_py()
        found[name] = SlotBatches(**{n: c[first:last] for n, c in columns.items()})
    return found


def _read(path: Path) -> pa.Table:
    if path.is_file():
        return pq.read_table(path)
    return pa.concat_tables([pq.read_table(f) for f in sorted(path.glob("*.parquet"))])
