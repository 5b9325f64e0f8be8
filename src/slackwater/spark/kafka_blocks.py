"""Parts of a Kafka batch: stretches of offsets, of which some are read and the rest is not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slackwater.spark.source import Offsets

BLOCKS_OF_A_PARTITION = 64
_BITS = 32


@dataclass(frozen=True)
class Stretch:
    """Offsets of one partition that a batch holds: from the first up to, and without, the last."""

    topic: str
    partition: int
    first: int
    last: int
    length: int = 1
    """Offsets of one block."""

    @property
    def rows(self) -> int:
        return self.last - self.first


def stretches(offsets: Offsets, before: Offsets | None) -> list[Stretch] | None:
    """What a batch holds of every partition, by two of Spark's offsets; None where they are not Kafka's.

    A partition that was not there before is read from its beginning, as Spark does. Blocks are of one length
    in all partitions, so that each stands for as many rows: the largest partition has as many as may be.

    >>> found = stretches({"spark": ['{"t":{"1":7,"0":15}}']}, {"spark": ['{"t":{"0":10,"1":7}}']})
    >>> [(s.partition, s.rows) for s in found or ()]
    [(0, 5), (1, 0)]
    """
    if before is None:
        return None
    try:
        (ends,), (begins,) = ([json.loads(t) for t in _listed(o)] for o in (offsets, before))
        found = [
            Stretch(topic, int(p), int(begins.get(topic, {}).get(p, 0)), int(last))
            for topic, partitions in ends.items()
            for p, last in partitions.items()
        ]
    except (ValueError, TypeError, AttributeError):
        return None
    length = max(1, -(-max((s.rows for s in found), default=0) // BLOCKS_OF_A_PARTITION))
    ordered = sorted(found, key=lambda s: (s.topic, s.partition))
    return [replace(s, length=length) for s in ordered] or None


def _listed(offsets: Offsets) -> list[str]:
    found = offsets.get("spark")
    return [str(text) for text in found] if isinstance(found, list) else []


def blocks_of(found: Sequence[Stretch]) -> list[list[tuple[int, int]]]:
    """The blocks of each partition with their rows; a block's number tells its partition and its place.

    >>> blocks_of([Stretch("t", 0, 100, 107, 3), Stretch("t", 1, 0, 2, 3)])
    [[(0, 3), (1, 3), (2, 1)], [(4294967296, 2)]]
    """
    return [
        [
            ((place << _BITS) + block, min(s.length, s.rows - block * s.length))
            for block in range(-(-s.rows // s.length))
        ]
        for place, s in enumerate(found)
    ]


def readings(found: Sequence[Stretch], blocks: Sequence[int]) -> list[Mapping[str, str]]:
    """Options of the reads that together take the chosen blocks: each takes one stretch of a partition.

    Blocks beside each other are read in one go.

    >>> [r["startingOffsets"] for r in readings([Stretch("t", 0, 100, 164)], [3, 4, 9])]
    ['{"t": {"0": 103}}', '{"t": {"0": 109}}']
    """
    runs: dict[int, list[list[int]]] = {}
    for number in sorted(blocks):
        place, block = number >> _BITS, number & ((1 << _BITS) - 1)
        mine = runs.setdefault(place, [])
        if mine and mine[-1][1] == block:
            mine[-1][1] = block + 1
        else:
            mine.append([block, block + 1])
    reads: list[Mapping[str, str]] = []
    for turn in range(max((len(r) for r in runs.values()), default=0)):
        begin: dict[str, dict[str, int]] = {}
        end: dict[str, dict[str, int]] = {}
        for place, mine in runs.items():
            if turn < len(mine):
                s = found[place]
                first = s.first + mine[turn][0] * s.length
                last = min(s.last, s.first + mine[turn][1] * s.length)
                begin.setdefault(s.topic, {})[str(s.partition)] = first
                end.setdefault(s.topic, {})[str(s.partition)] = last
        assigned = {topic: [int(p) for p in partitions] for topic, partitions in begin.items()}
        reads.append(
            {
                "assign": json.dumps(assigned),
                "startingOffsets": json.dumps(begin),
                "endingOffsets": json.dumps(end),
            }
        )
    return reads


def block_sql(found: Sequence[Stretch]) -> str:
    """The number of the block that a row with ``topic``, ``partition`` and ``offset`` lies in."""
    cases = [
        f"WHEN topic = '{s.topic}' AND partition = {s.partition} "
        f"THEN {place << _BITS}L + (offset - {s.first}L) div {s.length}L"
        for place, s in enumerate(found)
    ]
    return f"CASE {' '.join(cases)} END"
