"""The latest of everything, for those who watch: last answers, short histories, stream counters."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from slackwater.language.contracts import Contract
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.status import QueryStatus, Status, StreamStatus

HISTORY = 60


@dataclass
class _Query:
    contract: str
    answers: int = 0
    last: QueryStatus | None = None
    history: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))


class Board:
    """Collects as turns are committed; ``status`` may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[str, StreamStatus] = {}
        self._queries: dict[str, _Query] = {}

    def queries(self, contracts: dict[str, Contract]) -> None:
        """The queries there are now, by name, with their contracts."""
        with self._lock:
            self._queries = {
                name: self._queries.get(name, _Query(str(contract))) for name, contract in contracts.items()
            }
            for name, contract in contracts.items():
                self._queries[name].contract = str(contract)

    def stream(self, status: StreamStatus) -> None:
        with self._lock:
            self._streams[status.name] = status

    def delivered(self, batches: Iterable[AnswerBatch]) -> dict[str, int]:
        """Take note of the answers of a turn; how many there were by query."""
        counts: dict[str, int] = {}
        for batch in batches:
            counts[batch.query] = counts.get(batch.query, 0) + len(batch)
            with self._lock:
                known = self._queries.get(batch.query)
                if known is None or not len(batch):
                    continue
                known.answers += len(batch)
                for answer in batch.slice(max(0, len(batch) - HISTORY)).answers():
                    if isinstance(answer.value, int | float) and math.isfinite(answer.value):
                        known.history.append(float(answer.value))
                known.last = QueryStatus(
                    name=batch.query,
                    contract=known.contract,
                    last_value=answer.value,
                    last_window_end=answer.window_end or answer.at,
                    last_keys=answer.keys,
                    how=answer.how,
                    met=answer.met,
                )
        return counts

    def status(self, at: datetime, message: str = "") -> Status:
        with self._lock:
            queries = []
            for name, known in self._queries.items():
                last = known.last
                queries.append(
                    QueryStatus(
                        name=name,
                        contract=known.contract,
                        answers=known.answers,
                        history=tuple(known.history),
                        last_value=last.last_value if last else None,
                        last_window_end=last.last_window_end if last else None,
                        last_keys=last.last_keys if last else (),
                        how=last.how if last else None,
                        met=last.met if last else None,
                    )
                )
            return Status(
                at=at, streams=tuple(self._streams.values()), queries=tuple(queries), message=message
            )
