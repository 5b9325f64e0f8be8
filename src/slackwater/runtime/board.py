"""The latest of everything, for those who watch: last answers, short histories, stream counters."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import pyarrow as pa

from slackwater.language.contracts import Contract
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.batch_times import BatchTimes
from slackwater.runtime.groups import places_of_group
from slackwater.runtime.status import QueryStatus, Status, StreamStatus

HISTORY = 60
STALE = 20
"""Turns in which a group has no answer, after which another one is shown instead."""


@dataclass
class _Query:
    contract: str
    answers: int = 0
    missed: int = 0
    evaluated: int = 0
    last: QueryStatus | None = None
    history: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    group: tuple[tuple[str, object], ...] = ()
    """The one that is shown: of several groups a history would be none of any."""
    absent: int = 0
    """Turns in a row in which others had answers, and it had none."""
    noted: int = 0
    """The last turn that counted as one of these."""


class Board:
    """Collects as turns are committed; ``status`` may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[str, StreamStatus] = {}
        self._times: dict[str, BatchTimes] = {}
        self._queries: dict[str, _Query] = {}
        self._turn = 0
        self._begun: dict[str, datetime] = {}
        """By stream: since when a batch of it has been running."""
        self.listeners: list[Callable[[AnswerBatch], None]] = []
        """Called with all answers of a turn while it delivers them, in the thread of the turn."""

    def queries(self, contracts: dict[str, Contract], others: Collection[str] = ()) -> None:
        """The queries there are now, by name, with their contracts.

        ``others``: those that are other queries than before; they begin anew under the old name.
        """
        with self._lock:
            before = {name: known for name, known in self._queries.items() if name not in others}
            self._queries = {
                name: before.get(name, _Query(str(contract))) for name, contract in contracts.items()
            }
            for name, contract in contracts.items():
                self._queries[name].contract = str(contract)

    def resumed(self, answers: Mapping[str, int]) -> None:
        """What an earlier part of the run has delivered counts too."""
        with self._lock:
            for name, number in answers.items():
                if name in self._queries:
                    self._queries[name].answers += number

    def stopped(self) -> None:
        """No stream goes on: those that have not ended are stopped."""
        with self._lock:
            for name, status in self._streams.items():
                if status.state != "ended":
                    self._streams[name] = replace(status, state="stopped")

    def missed(self, counts: Mapping[str, tuple[int, int]]) -> None:
        """By query under DRIFT: evaluations that were not had in time, and those that were run."""
        with self._lock:
            for name, (missed, evaluated) in counts.items():
                known = self._queries.get(name)
                if known is not None:
                    known.missed, known.evaluated = missed, evaluated

    def stream(self, status: StreamStatus) -> None:
        with self._lock:
            self._streams[status.name] = status

    def took(self, stream: str, seconds: float) -> None:
        """A batch of a stream is done."""
        with self._lock:
            self._times[stream] = self._times.get(stream, BatchTimes()).with_batch(seconds)

    def batch_times(self) -> dict[str, BatchTimes]:
        """By stream: how long its batches took since the run was started."""
        with self._lock:
            return dict(self._times)

    def ended(self, stream: str) -> None:
        """Nothing more comes of a stream; what it was like is kept as it was stored.

        Not as ``status`` tells it: the batch in which a stream ends is running still.
        """
        with self._lock:
            for name, status in self._streams.items():
                if name.lower() == stream.lower() and status.state != "ended":
                    self._streams[name] = replace(
                        status, state="ended", progress=1.0, rate=0.0, last_rate=status.rate
                    )

    def idle(self, stream: str) -> bool:
        """No batch of a stream comes: nothing waits for it, and nothing is shed. Whether it was running."""
        with self._lock:
            status = self._streams.get(stream)
            if status is None or status.state != "running" or stream in self._begun:
                return False
            self._streams[stream] = replace(
                status,
                state="idle",
                rate=0.0,
                last_rate=status.rate,
                update_rate=0.0,
                lag_s=0.0,
                kept=1.0,
                level=0.0,
            )
            return True

    @contextmanager
    def running(self, stream: str, since: datetime) -> Iterator[None]:
        """While a batch of a stream runs: until it is done, which may take long, no more is told of it."""
        with self._lock:
            self._begun[stream] = since
            status = self._streams.get(stream, StreamStatus(name=stream))
            self._streams[stream] = replace(status, state="running") if status.state == "idle" else status
        try:
            yield
        finally:
            with self._lock:
                self._begun.pop(stream, None)

    def watching(
        self,
        batches: Iterable[AnswerBatch],
        counts: dict[str, int],
        others: Callable[[], Collection[str]] = tuple,
    ) -> Iterator[AnswerBatch]:
        """The answers of a turn as they pass to a sink; ``counts`` gets how many there were by query.

        ``others``: queries that are others by now than those of the turn, which may end late. Their answers
        are not those of the ones that are shown.
        """
        leading: dict[str, str] = {}
        self._turn += 1
        for batch in batches:
            yield batch
            for listen in self.listeners:
                listen(batch)
            anew = others()
            for name, places in places_by_query(batch):
                counts[name] = counts.get(name, 0) + len(places)
                with self._lock:
                    known = self._queries.get(name)
                    if known is None or not len(places) or name in anew:
                        continue
                    known.answers += len(places)
                    # a history of several columns would be none of any
                    if leading.setdefault(name, batch.column) == batch.column:
                        self._note(known, name, batch, places)

    def _note(self, known: _Query, name: str, batch: AnswerBatch, places: Sequence[int]) -> None:
        # who is suspended has no groups, and rows that are delivered as they are have a key each
        if batch.keys and batch.column != "*" and batch.how != "suspended":
            places = self._of_shown_group(known, batch, places)
        if not len(places):
            return
        ends = batch.window_end if batch.window_end is not None else batch.at
        if ends is not None:
            # what is written together is in no order
            places = sorted(places, key=lambda place: int(ends[place]))
        if pa.types.is_integer(batch.value.type) or pa.types.is_floating(batch.value.type):
            recent = batch.value.take(pa.array(places[-HISTORY:], pa.int64())).to_pylist()
            known.history += [float(v) for v in recent if v is not None and math.isfinite(v)]
        answer = next(batch.slice(int(places[-1]), int(places[-1]) + 1).answers())
        of = answer.window_end or answer.at
        if of is not None and known.last is not None and (known.last.last_window_end or of) > of:
            return
        known.last = QueryStatus(
            name=name,
            contract=known.contract,
            last_value=answer.value,
            last_window_end=of,
            last_keys=answer.keys,
            how=answer.how,
            met=answer.met,
        )

    def _of_shown_group(self, known: _Query, batch: AnswerBatch, places: Sequence[int]) -> Sequence[int]:
        """Where the answers of the shown group are; another one is shown where it has had none for long."""
        among = np.asarray(places, dtype=np.int64)
        found = places_of_group(batch.keys, dict(known.group), among) if known.group else among[:0]
        if not len(found):
            # several batches are one turn
            known.absent += known.noted != self._turn
            known.noted = self._turn
            if known.group and known.absent < STALE:
                return ()
            known.history.clear()
            known.group = next(batch.slice(int(places[-1]), int(places[-1]) + 1).answers()).keys
            found = places_of_group(batch.keys, dict(known.group), among)
        known.absent, known.noted = 0, self._turn
        kept: list[int] = found.tolist()
        return kept

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
                        missed=known.missed,
                        evaluated=known.evaluated,
                    )
                )
            streams = tuple(self._at(at, stream) for stream in self._streams.values())
            return Status(at=at, streams=streams, queries=tuple(queries), message=message)

    def _at(self, at: datetime, stream: StreamStatus) -> StreamStatus:
        """A stream as it is now: while a batch runs its source goes on, and the lag is no less than that."""
        since = self._begun.get(stream.name)
        if since is None or stream.state == "ended":
            return stream
        running = max(0.0, (at - since).total_seconds())
        lag = None if stream.lag_s is None else max(stream.lag_s, running)
        return replace(stream, running_s=running, lag_s=lag)


def places_by_query(batch: AnswerBatch) -> Iterator[tuple[str, Sequence[int]]]:
    """Where in a batch the answers of each of its queries are."""
    if isinstance(batch.query, str):
        yield batch.query, range(len(batch))
        return
    names = batch.query.dictionary.to_pylist()
    owner = batch.query.indices.to_numpy()
    order = np.argsort(owner, kind="stable")
    found, first = np.unique(owner[order], return_index=True)
    for index, places in zip(found, np.split(order, first[1:]), strict=True):
        yield names[index], places.tolist()
