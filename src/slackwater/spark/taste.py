"""Some rows of a batch, as Arrow: enough to see what a query that is not there yet would find in them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from slackwater.language.statements import CreateStream


def taste(frame: DataFrame, stream: CreateStream, rows: int, at_most: int) -> pa.Table:
    """About ``at_most`` of so many rows, from all over the batch, in order of their time."""
    every = max(1, rows // max(1, at_most))
    chosen = frame.where(f"pmod(xxhash64(__part, __seq), {every}) = 0") if every > 1 else frame
    columns = dict.fromkeys([*(c.name for c in stream.columns), stream.time])
    picked = chosen.selectExpr(*(f"`{name}`" for name in columns), "__t").limit(2 * at_most).toArrow()
    return picked.sort_by("__t").drop_columns(["__t"])
