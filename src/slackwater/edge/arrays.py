"""Arrays that grow."""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEAST = 64
LARGE = 1 << 18
"""Bytes from which an array has a mapping of its own."""


def blank(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array without values, which takes no memory before it is written to.

    A large one has a mapping of its own, and all of it is given back with the array: what the C library
    allocates stays with the process wherever something is behind it, and arrays that grow leave much behind.

    >>> blank((2, 3), np.float32).shape
    (2, 3)
    """
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if size < LARGE or not hasattr(mmap, "MAP_PRIVATE"):
        return np.empty(shape, kind)
    # private: a process that is forked off has its own
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, kind).reshape(shape)


def with_room(array: NDArray[Any], used: int, size: int) -> NDArray[Any]:
    """The array, or a larger one with the same first ``used`` rows, where ``size`` are needed.

    Twice as large at least, so that growing row by row stays cheap. What is beyond ``used`` has no values,
    and takes no memory before it is written to: the system gives pages when they are touched.

    >>> with_room(np.array([5, 6]), 2, 3)[:2], len(with_room(np.array([5, 6]), 2, 3))
    (array([5, 6]), 64)
    """
    if size <= len(array):
        return array
    larger = blank((max(size, 2 * len(array), _LEAST), *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger
