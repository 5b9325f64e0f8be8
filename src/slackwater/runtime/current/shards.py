"""A matrix that is too large for the driver: its rows in shards, evaluated by Spark's tasks.

The driver keeps how long each row is and which group it stands for. A shard is a folder of arrays that tasks
map into memory, so that what they read is shared and stays there from tick to tick.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.runtime.current.evaluating import evaluate, plan
from slackwater.runtime.current.extremes import said
from slackwater.runtime.current.matrix import Called, Matrix, Values
from slackwater.runtime.current.tick import Asked, Evaluated
from slackwater.spark.execute import SparkSession
from slackwater.spark.shards import map_shards
from slackwater.statistics.diffusion import Floats
from slackwater.statistics.series import Bools, Ints

ROWS_AT_LEAST = 1_000
"""Of a shard: fewer are not worth a task."""

Work = Callable[[Matrix, Any], Any]


def on_shard(shared: Any, folder: str, own: bytes) -> bytes:
    """Do some work on the chosen rows of a shard."""
    work, step, signals, argument = shared
    rows, more = pickle.loads(own)
    matrix = Matrix.read(Path(folder), step, signals)
    part = matrix if rows is None else matrix.chosen(rows)
    return pickle.dumps(work(part, argument if more is None else (argument, more)))


class ShardedMatrix(Matrix):
    """The same as a matrix, with its entries in folders."""

    def __init__(self, whole: Matrix, folder: Path, session: SparkSession, shards: int) -> None:
        super().__init__(whole.step, whole.signal_names)
        self._folder = folder
        self._session = session
        self._shards = shards
        self._take(whole)

    def _take(self, whole: Matrix) -> None:
        """Cut a matrix into shards of about as many entries each."""
        self.groups, self.width = whole.groups, whole.width
        self._lengths = whole.lengths()
        self._edges = self._cut(whole)
        shutil.rmtree(self._folder, ignore_errors=True)
        for place, (first, stop) in enumerate(zip(self._edges[:-1], self._edges[1:], strict=True)):
            whole.chosen(np.arange(first, stop)).write(self._place(place))

    def _cut(self, whole: Matrix) -> Ints:
        shards = max(1, min(self._shards, whole.size // ROWS_AT_LEAST))
        wanted = np.linspace(0, whole.entries, shards + 1)[1:-1]
        inner = np.searchsorted(np.cumsum(self._lengths), wanted)
        return np.unique(np.concatenate([[0], inner, [whole.size]]))

    def _place(self, shard: int) -> Path:
        return self._folder / f"{shard:05d}"

    def whole(self) -> Matrix:
        """All of it on the driver again."""
        parts = [
            Matrix.read(self._place(i), self.step, self.signal_names) for i in range(len(self._edges) - 1)
        ]
        return Matrix.joined(parts, self.groups, self.width)

    def extend(self, found: pa.Table, width: int) -> Ints:
        whole = self.whole()
        touched = whole.extend(found, width)
        self._take(whole)
        return touched

    @property
    def size(self) -> int:
        return self.groups.size if self.grouped else 1

    @property
    def entries(self) -> int:
        return int(self._lengths.sum())

    def lengths(self) -> Ints:
        return self._lengths

    def _map(self, work: Work, argument: Any, rows: Ints | None = None, own: Sequence[Any] = ()) -> list[Any]:
        """Do some work on all shards, or on those with chosen rows, which are in order."""
        tasks, count = [], len(self._edges) - 1
        edges = np.searchsorted(rows, self._edges) if rows is not None else self._edges
        for shard in range(count):
            low, high = int(edges[shard]), int(edges[shard + 1])
            if low == high:
                continue
            mine = None if rows is None else rows[low:high] - self._edges[shard]
            more = own[0][low:high] if own else None
            tasks.append((str(self._place(shard)), pickle.dumps((mine, more))))
        shared = (work, self.step, self.signal_names, argument)
        return [pickle.loads(made) for made in map_shards(self._session, on_shard, shared, tasks)]

    def evaluated(self, asked: Asked) -> tuple[Evaluated, Bools]:
        # the past goes to the tasks only where an extreme is taken of it
        found = self._ask(_evaluated, asked if asked.move is not None else _without_past(asked))
        parts = [part for part, _ in found]
        names = Evaluated.__dataclass_fields__
        joined = Evaluated(*(np.concatenate([getattr(p, n) for p in parts]) for n in names))
        return joined, np.concatenate([there for _, there in found])

    def planned(self, asked: Asked) -> tuple[Floats, Floats]:
        found = self._ask(_planned, _without_past(asked))
        return np.concatenate([wait for wait, _ in found]), np.concatenate([most for _, most in found])

    def _ask(self, work: Work, asked: Asked) -> list[Any]:
        """Ask each shard about its own rows."""
        nothing = np.empty(0)
        own = np.stack([asked.cached, asked.factor, asked.rows], axis=1)
        shared = replace(asked, cached=nothing, factor=nothing, rows=asked.rows[:0])
        return self._map(work, shared, asked.rows, [own])

    def all_calls(self, values: Values) -> tuple[list[Called], Bools, Ints]:
        found = self._map(_calls, values)
        calls = [
            Called(*(np.concatenate([getattr(part[0][i], n) for part in found]) for n in ("value", "there")))
            for i in range(len(self.form.calls))
        ]
        return calls, np.concatenate([p[1] for p in found]), np.concatenate([p[2] for p in found])

    def digest(self) -> Ints:
        return np.concatenate(self._map(_digest, None))

    def said(self, asked: Asked) -> tuple[Floats, Floats]:
        asked = asked if asked.move is not None else _without_past(asked)
        found = self._ask(_said, asked)
        return np.concatenate([value for value, _ in found]), np.concatenate([known for _, known in found])

    def rows_with(self, keys: Bools) -> Bools:
        return np.concatenate(self._map(_rows_with, keys))


def _without_past(asked: Asked) -> Asked:
    return replace(asked, tick=replace(asked.tick, history=None))


def _own(given: tuple[Asked, Floats]) -> Asked:
    asked, own = given
    return replace(asked, cached=own[:, 0], factor=own[:, 1], rows=own[:, 2].astype(np.int64))


def _evaluated(matrix: Matrix, given: tuple[Asked, Floats]) -> tuple[Evaluated, Bools]:
    asked = _own(given)
    return evaluate(asked, matrix), matrix.present(asked.tick.values)


def _planned(matrix: Matrix, given: tuple[Asked, Floats]) -> tuple[Floats, Floats]:
    return plan(_own(given), matrix)


def _calls(matrix: Matrix, values: Values) -> tuple[list[Called], Bools, Ints]:
    return matrix.all_calls(values)


def _said(matrix: Matrix, given: tuple[Asked, Floats]) -> tuple[Floats, Floats]:
    found = said(_own(given), matrix)
    return found.value, found.known


def _digest(matrix: Matrix, _: None) -> Ints:
    return matrix.digest()


def _rows_with(matrix: Matrix, keys: Bools) -> Bools:
    return matrix.rows_with(keys)
