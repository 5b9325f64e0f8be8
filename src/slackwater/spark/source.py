"""What the engine asks of a stream's source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

Offsets = Mapping[str, object]
"""What a decision record keeps of where a batch's rows are: enough to read them again."""


class StreamSource(Protocol):
    """What the engine asks of a stream."""

    def streaming(self) -> DataFrame:
        """The streaming frame whose batches are the clock."""

    def offsets(self, batch: int, before: Offsets | None) -> Offsets:
        """Where the rows of a new batch are, given the batch before."""

    def frame(
        self,
        session: SparkSession,
        batch: DataFrame,
        offsets: Offsets,
        before: Offsets | None = None,
        blocks: Sequence[int] = (),
        times: Sequence[tuple[int, int]] | None = None,
    ) -> DataFrame | None:
        """The rows with ``__t``, ``__part`` and ``__seq``; None where there are none.

        Of chosen blocks only, where some are given, each row then with its ``__block``. Where ``times`` are
        given, no others are asked for: a source that knows where they lie need not read the rest.
        """

    def blocks(self, offsets: Offsets, before: Offsets | None) -> list[list[tuple[int, int]]]:
        """The blocks that a batch can be read by, each with how many rows it has, by partition."""

    def size(self, offsets: Offsets, before: Offsets | None) -> int | None:
        """How many rows a batch has, before it is read; None where the source cannot tell."""

    def ended(self, offsets: Offsets) -> bool:
        """Whether no rows come after this batch."""

    def progress(self, offsets: Offsets) -> float | None:
        """How much of a finite stream has been read."""

    def lag(self, offsets: Offsets) -> float | None:
        """Seconds by which reading is behind what there is, where the source can tell."""

    def release(self, offsets: Offsets) -> None:
        """Called after a batch has been committed."""

    as_fast_as_it_goes: bool
    """Batches follow each other without waiting for the trigger."""
    cheap_to_read: bool
    """Reading its rows again costs less than keeping them: columns of Parquet files on disk."""
    tells_time: bool
    """Its batches say up to when they go, so that silence needs no clock to be understood."""

    knows_size: bool
    """What ``size`` says is exact: no row is missing between two offsets."""

    @property
    def identifies_rows(self) -> bool:
        """Its rows have a partition and a number that are the same whenever they are read."""

    @property
    def skips(self) -> bool:
        """Parts of a batch can be left unread."""
