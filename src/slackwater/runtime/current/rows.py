"""Whole current rows, and the queries that Spark evaluates on them: all that is no sparse matrix."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import numpy as np
import pyarrow as pa

from slackwater.plan.current import CurrentPlan
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.current.asking import Asking
from slackwater.runtime.current.exact import answers_of
from slackwater.statistics.series import Ints


class RowQueries:
    """The current row of each key, and those of the ticks that are to be evaluated.

    ``bank`` holds rows in the order in which they came; ``place`` says which is the current one of a key.
    """

    def __init__(self, plan: CurrentPlan) -> None:
        self.steps = [step.step for step in plan.steps if step.linear is None]
        self._bank: list[pa.Array] = []
        self._banked = 0
        self._place: Ints = np.empty(0, np.int64)
        self._ticks: list[int] = []
        self._chosen: list[Ints] = []

    @property
    def held(self) -> int:
        return sum(len(chosen) for chosen in self._chosen)

    def take(self, items: pa.Table) -> None:
        """Make rows the current ones of their keys, one for each."""
        key = items["key"].to_numpy()
        if not len(key):
            return
        more = int(key.max()) + 1 - len(self._place)
        if more > 0:
            more = max(more, len(self._place) // 2)
            self._place = np.concatenate([self._place, np.full(more, -1, np.int64)])
        for chunk in items["r"].chunks if isinstance(items["r"], pa.ChunkedArray) else [items["r"]]:
            self._bank.append(chunk)
        self._place[key] = self._banked + np.arange(len(key))
        self._banked += len(key)

    def tick(self, now: int) -> None:
        """Remember the current rows of a tick that is to be evaluated."""
        if self.steps:
            self._ticks.append(now)
            self._chosen.append(self._place[self._place >= 0])

    def table(self) -> tuple[Ints, pa.Array | None]:
        """The keys that have a row, and their current rows."""
        keys = np.flatnonzero(self._place >= 0)
        bank = self._whole()
        return keys, None if bank is None else bank.take(pa.array(self._place[keys]))

    def load(self, keys: Ints, rows: pa.Array | None) -> None:
        """Go on from what was kept."""
        self._place = np.full(int(keys.max()) + 1 if len(keys) else 0, -1, np.int64)
        self._place[keys] = np.arange(len(keys))
        self._bank, self._banked = ([] if rows is None else [rows]), len(keys)

    def answers(self, emitted_at: datetime, ask: Asking) -> Iterator[AnswerBatch]:
        """Evaluate the remembered ticks."""
        bank = self._whole()
        if self._ticks and bank is not None:
            ticks = np.repeat(np.array(self._ticks), [len(c) for c in self._chosen])
            rows = bank.take(pa.array(np.concatenate(self._chosen)))
            columns = dict(zip([f.name for f in rows.type], rows.flatten(), strict=True))
            table = pa.table({"__tick": pa.array(ticks), **columns})
            for step in self.steps:
                result = ask.over_rows(step, table, self._ticks)
                yield from answers_of(step, result, emitted_at)
        self.discard()

    def discard(self) -> None:
        """Let go of the remembered ticks, and of rows that nobody needs any more."""
        self._ticks, self._chosen = [], []
        self._forget()

    def _whole(self) -> pa.Array | None:
        if not self._bank:
            return None
        if len(self._bank) > 1:
            self._bank = [pa.concat_arrays(self._bank)]
        return self._bank[0]

    def _forget(self) -> None:
        """Let go of rows that are no longer current, once they are as many as those that are."""
        keys = np.flatnonzero(self._place >= 0)
        if self._banked > 2 * len(keys) + 1024 and not self._ticks:
            bank = self._whole()
            assert bank is not None
            self._bank = [bank.take(pa.array(self._place[keys]))]
            self._place[keys] = np.arange(len(keys))
            self._banked = len(keys)
