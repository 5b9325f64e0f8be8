"""Spark's xxhash64 of whole numbers in numpy: the number ``u`` of a row, without Spark.

Each column's hash is the seed of the next.
Reference: org.apache.spark.sql.catalyst.expressions.XXH64.hashLong.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

SEED = 42
_P1, _P2, _P3 = (np.uint64(p) for p in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))
_P4, _P5 = (np.uint64(p) for p in (0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5))


def _rotated(words: Words, bits: int) -> Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def hash_long(values: npt.NDArray[np.int64], seed: Words) -> Words:
    """The hash of whole numbers, each with its seed."""
    with np.errstate(over="ignore"):
        h = seed + _P5 + np.uint64(8)
        h = h ^ (_rotated(values.astype(np.uint64) * _P2, 31) * _P1)
        h = _rotated(h, 27) * _P1 + _P4
        h = (h ^ (h >> np.uint64(33))) * _P2
        h = (h ^ (h >> np.uint64(29))) * _P3
        return h ^ (h >> np.uint64(32))


def identity(part: npt.NDArray[np.int64], seq: npt.NDArray[np.int64]) -> Words:
    """What the place of a row hashes to, before the salt."""
    return hash_long(seq, hash_long(part, np.full(len(part), SEED, dtype=np.uint64)))


def numbers(place: Words, salt: int) -> npt.NDArray[np.int64]:
    """``u`` of each row, a whole number below 2⁵³.

    >>> at = np.array([0, 5])
    >>> numbers(identity(at, at), 1).tolist()
    [5585307907531510, 4795515219083829]
    """
    hashed = hash_long(np.full(len(place), salt, dtype=np.int64), place)
    return (hashed >> np.uint64(11)).astype(np.int64)
