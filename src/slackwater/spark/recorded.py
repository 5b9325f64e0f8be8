"""The rows of a recorded run: written as they arrived, and read again batch by batch."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from slackwater.errors import SourceError
from slackwater.language.statements import CreateStream
from slackwater.spark.execute import spark_errors
from slackwater.spark.source import Offsets


def write_rows(frame: DataFrame, folder: Path) -> None:
    """Rows as Parquet files in a folder that is there whole or not at all; one that is there is replaced."""
    temporary = folder.with_name(f"{folder.name}.tmp")
    with spark_errors():
        frame.write.mode("overwrite").parquet(str(temporary))
    shutil.rmtree(folder, ignore_errors=True)
    temporary.replace(folder)


class RecordedSource:
    """The recorded batches of one stream, each with its old number, offsets and watermark."""

    as_fast_as_it_goes = True
    cheap_to_read = True
    # its batches are handed over by hand, and so are the ticks that there were
    tells_time = True
    identifies_rows = True
    knows_size = True
    skips = False

    def __init__(
        self,
        session: SparkSession,
        stream: CreateStream,
        batches: Mapping[int, Offsets],
        folders: Mapping[int, Path],
        last: int | None,
    ) -> None:
        """``batches`` are offsets by number, ``folders`` where the rows of those are that have some.

        ``last`` is the batch after which the stream ended, None where it had not ended.
        """
        self._session = session
        self._stream = stream
        self._batches = batches
        self._folders = folders
        self._last = last

    def streaming(self) -> DataFrame:
        raise SourceError(f"stream {self._stream.name}: a recording is replayed turn by turn")

    def offsets(self, batch: int, before: Offsets | None) -> Offsets:
        return {**self._batches[batch], "batch": batch}

    def blocks(self, offsets: Offsets, before: Offsets | None) -> list[list[tuple[int, int]]]:
        return []

    def frame(
        self,
        session: SparkSession,
        batch: DataFrame,
        offsets: Offsets,
        before: Offsets | None = None,
        blocks: Sequence[int] = (),
        times: Sequence[tuple[int, int]] | None = None,
    ) -> DataFrame | None:
        number = _number(offsets)
        if number not in self._folders:
            return None
        folder = self._folders[number]
        if not folder.is_dir():
            raise SourceError(f"the recording has lost rows of {self._stream.name}: there is no {folder}")
        return session.read.parquet(str(folder))

    def size(self, offsets: Offsets, before: Offsets | None) -> int | None:
        return None

    def ended(self, offsets: Offsets) -> bool:
        return _number(offsets) == self._last

    def progress(self, offsets: Offsets) -> float | None:
        done = sum(number <= _number(offsets) for number in self._batches)
        return done / max(1, len(self._batches))

    def lag(self, offsets: Offsets) -> float | None:
        return None

    def release(self, offsets: Offsets) -> None:
        pass


def _number(offsets: Offsets) -> int:
    number: Any = offsets["batch"]
    return int(number)
