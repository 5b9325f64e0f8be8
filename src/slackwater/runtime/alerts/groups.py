"""Groups of answers as texts: one for each answer, and which of some groups it belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.runtime.json_values import text_column

Ints = npt.NDArray[np.int64]


def group_texts(keys: Mapping[str, pa.Array], places: Ints) -> pa.Array:
    """The groups of the answers at some places.

    Each key has its length before it, so that no two groups have the same text, and NULL is none of them.

    >>> group_texts({"a": pa.array(["x", None]), "b": pa.array([1, 22])}, np.arange(2)).to_pylist()
    ['1:x1:1', '-2:22']
    """
    chosen = pa.array(places)
    parts = []
    for column in keys.values():
        text = text_column(column.take(chosen)).cast(pa.string())
        size = pc.binary_length(text).cast(pa.string())
        parts.append(pc.binary_join_element_wise(size, text, ":").fill_null("-"))
    if not parts:
        return pa.repeat("", len(places))
    return pc.binary_join_element_wise(*parts, "")


def first_key(group: str) -> str | None:
    """The text of the first key of a group.

    >>> first_key("1:x1:1"), first_key("-2:22")
    ('x', None)
    """
    if not group or group[0] == "-":
        return None
    size, _, rest = group.partition(":")
    return rest.encode()[: int(size)].decode()


class Groups:
    """Some groups, numbered as they were given."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = list(texts)
        self._all = pa.array(self.texts, pa.string())
        self._first = pa.array(sorted({k for k in map(first_key, texts) if k is not None}), pa.string())
        self._null = any(first_key(text) is None for text in texts)

    def __len__(self) -> int:
        return len(self.texts)

    def find(self, keys: Mapping[str, pa.Array], size: int) -> tuple[Ints, Ints]:
        """Where the answers of these groups are, and of which group each is."""
        places = np.arange(size)
        if keys:
            # of a million answers few are of these groups: most are told by their first key
            first = text_column(next(iter(keys.values()))).cast(pa.string())
            may = pc.is_in(first, value_set=self._first)
            places = np.flatnonzero(np.asarray(pc.or_(may, first.is_null()) if self._null else may))
        numbers = pc.index_in(group_texts(keys, places), value_set=self._all)
        found = np.asarray(pc.fill_null(numbers, -1), dtype=np.int64)
        return places[found >= 0], found[found >= 0]
