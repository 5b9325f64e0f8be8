"""The sink behind a Python iterator of answers: bounded, and safe between threads."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import Answer
from slackwater.runtime.packed import Packed

# how soon a blocked writer notices that the reader it waits for was garbage collected
_NOTICE_SECONDS = 0.2


class Subscription(Iterator[Answer]):
    """An iterator over answers as they come; it ends when the sink is closed and all are read."""

    def __init__(self, changed: threading.Condition, query: str | None) -> None:
        self._changed = changed
        self._query = query
        self._waiting: deque[AnswerBatch | Packed] = deque()
        self._current: Iterator[Answer] = iter(())
        self._ended = False
        self.size = 0

    def __next__(self) -> Answer:
        while True:
            answer = next(self._current, None)
            if answer is not None:
                return answer
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting:
                    raise StopIteration
                batch = self._waiting.popleft()
                self.size -= len(batch)
                self._changed.notify_all()
            self._current = (a for a in batch.answers() if self._query in (None, a.query))

    def close(self) -> None:
        """Stop listening: what is unread is dropped, and the writer no longer waits for this reader."""
        with self._changed:
            self._waiting.clear()
            self._current = iter(())
            self.size = 0
            self.end()

    def end(self) -> None:
        """Let the iterator end after what is already in it."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wants(self, batch: AnswerBatch | Packed) -> bool:
        """Whether answers of this batch belong in the subscription."""
        return not self._ended and (self._query is None or self._query in batch.queries)

    def put(self, batch: AnswerBatch | Packed) -> None:
        """Add answers; the caller holds the lock and has seen to the bound."""
        self._waiting.append(batch)
        self.size += len(batch)


class IteratorSink:
    """Hands answers to Python iterators, one queue for each.

    A subscriber first gets the latest answers that are kept (at most `capacity`), then all that follow.
    `write` blocks while a subscriber has `capacity` answers unread; with no subscriber it never blocks.
    At-least-once: answers after a restart may repeat some from before it.
    """

    kind = "iterator"

    def __init__(self, *, capacity: int = 10_000) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self._capacity = capacity
        self._changed = threading.Condition(threading.RLock())
        # weak: a reader that leaves its loop and forgets the iterator must not block the run for ever
        self._readers: weakref.WeakSet[Subscription] = weakref.WeakSet()
        self._latest: deque[Packed] = deque()
        self._kept = 0
        self._closed = False

    def open(self, resume: Mapping[str, object] | None) -> None:
        """Nothing to go on from: iterators do not outlive the process."""

    def write(self, step: int, batches: Iterable[AnswerBatch]) -> None:
        """Hand the answers over, in pieces that a queue can hold."""
        for batch in batches:
            for start in range(0, len(batch), self._capacity):
                self._put(batch.slice(start, start + self._capacity))

    def answers(self, query: str | None = None) -> Subscription:
        """Subscribe to the answers of one query, or of all."""
        subscription = Subscription(self._changed, query)
        with self._changed:
            for batch in self._latest:
                if subscription.wants(batch):
                    subscription.put(batch)
            self._readers.add(subscription)
            if self._closed:
                subscription.end()
        return subscription

    def mark(self) -> dict[str, object]:
        """Nothing to journal."""
        return {"sink": self.kind}

    def close(self) -> None:
        """End all subscriptions after what they hold, and release a blocked writer."""
        with self._changed:
            self._closed = True
            for reader in list(self._readers):
                reader.end()
            self._changed.notify_all()

    def _put(self, batch: AnswerBatch) -> None:
        with self._changed:
            while not self._closed and self._is_full(batch):
                self._changed.wait(_NOTICE_SECONDS)
            for reader in list(self._readers):
                if reader.wants(batch):
                    reader.put(batch)
            self._latest.append(Packed.of(batch))
            self._kept += len(batch)
            while (excess := self._kept - self._capacity) > 0:
                oldest = self._latest.popleft()
                if len(oldest) > excess:
                    self._latest.appendleft(oldest.slice(excess))
                self._kept -= min(excess, len(oldest))
            self._changed.notify_all()

    def _is_full(self, batch: AnswerBatch) -> bool:
        return any(
            reader.size and reader.size + len(batch) > self._capacity
            for reader in list(self._readers)
            if reader.wants(batch)
        )
