"""Answers that are kept for a while: a few as text, since columns take kilobytes whatever they hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import Answer

AS_TEXT = 64
"""Up to so many answers are kept as text: some 350 bytes for each, where columns take 5 kB in all."""


_COLUMNS, _AROUND = 5_000, 300
"""Bytes that columns take beside what they hold, and text."""


@dataclass(frozen=True, eq=False, slots=True)
class Packed:
    """A batch of answers in little room, which shares no memory with it: it may be cut out of a turn."""

    _query: str | frozenset[str]
    held: bytes | AnswerBatch
    """JSON, a line for each answer, or columns."""
    _size: int

    @classmethod
    def of(cls, batch: AnswerBatch) -> Packed:
        query = batch.query if isinstance(batch.query, str) else batch.queries
        text = len(batch) <= AS_TEXT and not _nested(batch)
        return cls(query, batch.json_lines() if text else batch.take(range(len(batch))), len(batch))

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """About how many bytes it takes."""
        if isinstance(self.held, bytes):
            return len(self.held) + _AROUND
        return self.held.nbytes + _COLUMNS

    @property
    def queries(self) -> frozenset[str]:
        """The names of the queries that the answers are of."""
        return frozenset((self._query,)) if isinstance(self._query, str) else self._query

    def answers(self) -> Iterator[Answer]:
        """The answers one by one."""
        if isinstance(self.held, AnswerBatch):
            return self.held.answers()
        return (Answer.from_json(line) for line in self.held.splitlines())

    def slice(self, start: int) -> Packed:
        """The answers from start on."""
        if isinstance(self.held, AnswerBatch):
            return Packed(self._query, self.held.slice(start), self._size - start)
        lines = self.held.splitlines(keepends=True)[start:]
        return Packed(self._query, b"".join(lines), self._size - start)

    def lines(self, places: Sequence[int] | None = None) -> list[bytes]:
        """The JSON of the answers at some places, or of all."""
        if isinstance(self.held, AnswerBatch):
            batch = self.held if places is None else self.held.take(places)
            return batch.json_lines().splitlines()
        found = self.held.splitlines()
        return found if places is None else [found[place] for place in places]


def _nested(batch: AnswerBatch) -> bool:
    """Whether there are lists or structs, of which text does not tell what they hold."""
    columns = (batch.value, batch.low, batch.high, *batch.keys.values())
    return any(column is not None and pa.types.is_nested(column.type) for column in columns)
