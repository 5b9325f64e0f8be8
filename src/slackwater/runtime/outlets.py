"""All sinks of a run together: opened where they were marked, written at each step, marked at each commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.sinks import JsonLinesSink, ParquetSink, Sink

Marks = Mapping[str, Mapping[str, object]]
"""By the name of a sink: where it is to go on from."""


class Outlets:
    """The sinks in their order; what is done to one is done to each."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = {_name(index, sink): sink for index, sink in enumerate(sinks)}

    def check(self, marks: Marks) -> None:
        """Raise where answers could not be written, before anything is begun: a stream may be taken over."""
        for name, sink in self._sinks.items():
            if isinstance(sink, JsonLinesSink | ParquetSink):
                sink.check(marks.get(name))

    def open(self, marks: Marks) -> None:
        """Begin where each was marked."""
        for name, sink in self._sinks.items():
            sink.open(marks.get(name))

    def write(
        self,
        step: int,
        watched: Iterator[AnswerBatch],
        again: Callable[[], Iterable[AnswerBatch]],
        written: Callable[[], None],
    ) -> None:
        """Give a step's answers to each: to the first those that somebody watches, then ``again`` the same.

        They may be many, and are read once for each sink. ``written`` is called after each.
        """
        for index, sink in enumerate(self._sinks.values()):
            sink.write(step, watched if index == 0 else again())
            written()
        for _ in watched:
            """What the first sink had no use for."""

    def marks(self) -> dict[str, dict[str, object]]:
        """Make what was written durable, and say where each is to go on from."""
        return {name: sink.mark() for name, sink in self._sinks.items()}

    def close(self) -> None:
        """Let go of files and readers."""
        for sink in self._sinks.values():
            sink.close()


def _name(index: int, sink: Sink) -> str:
    """What a sink's mark is kept under: another file than before starts from here."""
    return f"{type(sink).__name__} {getattr(sink, 'path', None) or getattr(sink, 'directory', index)}"
