"""Where in a batch of answers those of one group are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Places = npt.NDArray[np.int64]


def places_of_group(keys: Mapping[str, pa.Array], group: Mapping[str, Any], among: Places) -> Places:
    """Where among some places the answers of one group are, by the values of its keys."""
    index = None
    for name, value in group.items():
        column = keys.get(name)
        if column is None:
            return among[:0]
        if len(among) != len(column):
            index = pa.array(among) if index is None else index
            column = column.take(index)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        among, index = among[np.asarray(pc.fill_null(_same(column, value), False))], None
        if not len(among):
            return among
    return among


def _same(column: pa.Array, value: Any) -> pa.Array:
    """Which entries are a value; none where the column is of another type."""
    if pa.types.is_nested(column.type):
        # arrow does not compare lists and structs
        return pa.array([entry == value for entry in column.to_pylist()], pa.bool_())
    if value is None:
        return pc.is_null(column)
    if isinstance(value, float) and math.isnan(value) and pa.types.is_floating(column.type):
        return pc.is_nan(column)
    try:
        return pc.equal(column, pa.scalar(value, column.type))
    except (pa.ArrowException, OverflowError, ValueError):
        # as after a query was made anew with other keys, or while it is suspended and has none
        return pa.nulls(len(column), pa.bool_())
