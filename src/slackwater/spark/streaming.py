"""One streaming query per stream: Spark's part of the loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from slackwater.errors import RunError


class Running:
    """A stream that is being read."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query

    def problem(self) -> str | None:
        """What stopped the stream, None while nothing has."""
        exception = self._query.exception()
        return None if exception is None else _first_words(str(exception))

    def starting(self) -> bool:
        """Whether Spark has yet to look for rows for the first time."""
        return str(self._query.status["message"]).startswith("Initializing")

    def waiting(self) -> bool:
        """Whether Spark has looked for rows and found none: a silent stream, not one that is behind."""
        status = self._query.status
        return not status["isTriggerActive"] and not status["isDataAvailable"]

    def stop(self) -> None:
        self._query.stop()

    def durations(self) -> dict[str, int]:
        """Milliseconds that Spark spent on the parts of the last trigger."""
        progress = self._query.lastProgress
        return dict(progress["durationMs"]) if progress else {}


def start_stream(
    frame: DataFrame,
    name: str,
    checkpoint: Path,
    interval_ms: int,
    on_batch: Callable[[DataFrame, int], None],
) -> Running:
    """Start reading; every micro-batch is handed to ``on_batch`` with its number."""
    writer = (
        # Spark wants the names of running queries to differ; two sessions may well have a stream of one name
        frame.writeStream.queryName(f"{name}-{uuid4().hex[:8]}")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=f"{interval_ms} milliseconds")
        .foreachBatch(on_batch)
    )
    try:
        return Running(writer.start())
    except PySparkException as error:
        raise RunError(f"stream {name} cannot be started: {str(error).splitlines()[0]}") from error


def _first_words(text: str) -> str:
    """What an error says: its first line, and where that only announces a traceback the last of it.

    >>> _first_words("[A] no such file\\n\\tat x")
    '[A] no such file'
    >>> _first_words("Message: Traceback (most recent call last):\\n  File x\\nValueError: no\\n\\nJVM stack")
    'ValueError: no'
    """
    first, _, rest = text.partition("\n")
    if "Traceback (most recent call last)" not in first:
        return first
    told = [line for line in rest.split("\n\n")[0].splitlines() if line.strip()]
    return told[-1] if told else first
