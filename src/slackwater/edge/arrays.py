"""Arrays that grow."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEAST = 64


def with_room(array: NDArray[Any], used: int, size: int) -> NDArray[Any]:
    """The array, or a larger one with the same first ``used`` rows, where ``size`` are needed.

    Twice as large at least, so that growing row by row stays cheap. What is beyond ``used`` has no values,
    and takes no memory before it is written to: the system gives pages when they are touched.

    >>> with_room(np.array([5, 6]), 2, 3)[:2], len(with_room(np.array([5, 6]), 2, 3))
    (array([5, 6]), 64)
    """
    if size <= len(array):
        return array
    larger = np.empty((max(size, 2 * len(array), _LEAST), *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger
