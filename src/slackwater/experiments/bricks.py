"""A stream of any density from little on disk: seconds of traffic are laid from bricks, over and over.

A brick is a file of packets whose times lie in one second. The trace says how many bricks each second has:
its event times are dense or sparse, and it is replayed at a constant speed. A brick that is used again has
other times, and its packets another place in the stream, so that other ones of them are sampled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.benchmarks.workload import SECOND
from slackwater.experiments.workload import Workload
from slackwater.language.statements import CreateStream
from slackwater.spark.execute import DataFrame, SparkSession
from slackwater.spark.source import Offsets
from slackwater.spark.trace import BLOCK
from slackwater.traffic import Traffic

ORIGIN = 1_800_000_000 * SECOND
FIELDS = "src STRING, dst STRING, sport INT, dport INT, proto STRING, size INT"
PLACES = "__at BIGINT, __brick INT, __seq BIGINT"
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Bricks:
    """Files of packets, all of about one size."""

    files: tuple[Path, ...]
    times: tuple[Ints, ...]
    """By brick: when its packets arrive in their second, in order."""

    def __len__(self) -> int:
        return len(self.files)

    @property
    def rows(self) -> float:
        """Of a brick, on average."""
        return float(np.mean([len(t) for t in self.times]))

    def table(self, brick: int) -> pa.Table:
        return pq.read_table(self.files[brick])


def make_bricks(folder: Path, traffic: Traffic, count: int) -> Bricks:
    """One brick from each second of traffic."""
    folder.mkdir(parents=True, exist_ok=True)
    files, times = [], []
    for number in range(count):
        rows = traffic.slice(number, SECOND)
        at = rows["ts"].cast(pa.int64()).to_numpy() % SECOND
        place = np.arange(len(at), dtype=np.int64)
        table = rows.drop_columns(["ts", "seq"])
        for name, values in (
            ("__at", at),
            ("__brick", np.full(len(at), number, dtype=np.int32)),
            ("__seq", (number << 32) + place),
            ("__block", (number << 16) + place // BLOCK),
        ):
            table = table.append_column(name, pa.array(values))
        files.append(folder / f"{number:05d}.parquet")
        pq.write_table(table, files[-1], compression="lz4", write_page_index=True, max_rows_per_page=BLOCK)
        times.append(at)
    return Bricks(tuple(files), tuple(times))


@dataclass(frozen=True)
class Wall:
    """Which bricks each second of the trace is made of, one after the other from all there are."""

    bricks: Bricks
    density: tuple[int, ...]
    """Bricks by second."""

    @property
    def end(self) -> int:
        return ORIGIN + len(self.density) * SECOND

    def of(self, second: int) -> list[int]:
        """The bricks of a second."""
        first = sum(self.density[:second])
        return [(first + i) % len(self.bricks) for i in range(self.density[second])]

    def courses(self, low: int, high: int) -> Iterator[dict[int, int]]:
        """The bricks between two times with their seconds, in parts that hold no brick twice."""
        course: dict[int, int] = {}
        last = min(-(-(high - ORIGIN) // SECOND), len(self.density))
        for second in range(max(0, (low - ORIGIN) // SECOND), last):
            mine = self.of(second)
            if any(brick in course for brick in mine):
                yield course
                course = {}
            course.update(dict.fromkeys(mine, second))
        if course:
            yield course

    def span(self, brick: int, second: int, low: int, high: int) -> tuple[int, int]:
        """From which row of a brick to which its times lie between two times."""
        begin, times = ORIGIN + second * SECOND, self.bricks.times[brick]
        return int(np.searchsorted(times, low - begin)), int(np.searchsorted(times, high - begin))

    def truth(self, workload: Workload) -> dict[str, npt.NDArray[np.float64]]:
        """By query: what each second adds to its windows."""
        values: dict[str, list[float]] = {q.name: [] for q in workload.queries}
        for brick in range(len(self.bricks)):
            rows = self.bricks.table(brick)
            sizes, masks = rows["size"].to_numpy(), workload.masks(rows)
            for query in workload.queries:
                mask = masks[query.name]
                values[query.name].append(float(sizes[mask].sum() if query.sums else mask.sum()))
        each = {name: np.array(found) for name, found in values.items()}
        laid = [self.of(second) for second in range(len(self.density))]
        return {name: np.array([found[b].sum() for b in laid]) for name, found in each.items()}


class BrickSource:
    """A wall of bricks as a stream: in real time, or a second of it after the other."""

    cheap_to_read = True
    tells_time = True
    identifies_rows = True
    knows_size = True
    skips = True

    def __init__(
        self,
        session: SparkSession,
        stream: CreateStream,
        wall: Wall,
        *,
        live: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._wall = wall
        self._clock = clock
        self._began: float | None = None
        self.as_fast_as_it_goes = not live

    def streaming(self) -> DataFrame:
        return self._session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()

    def offsets(self, batch: int, before: Offsets | None) -> Offsets:
        low = int(str(before["to"])) if before is not None else ORIGIN
        return {"from": low, "to": min(self._due(low), self._wall.end)}

    def _due(self, low: int) -> int:
        if self.as_fast_as_it_goes:
            return low + SECOND
        if self._began is None:
            self._began = self._clock()
        return max(low, ORIGIN + int((self._clock() - self._began) * SECOND))

    def blocks(self, offsets: Offsets, before: Offsets | None) -> list[list[tuple[int, int]]]:
        low, high = _bounds(offsets)
        found: list[tuple[tuple[int, int, int], int, int]] = []
        for course in self._wall.courses(low, high):
            for brick, second in course.items():
                first, last = self._wall.span(brick, second, low, high)
                for block in range(first // BLOCK, -(-last // BLOCK)):
                    rows = min(last, (block + 1) * BLOCK) - max(first, block * BLOCK)
                    found.append(((second, block, brick), (second << 40) + (brick << 16) + block, rows))
        return [[(number, rows) for _, number, rows in sorted(found)]]

    def frame(
        self,
        session: SparkSession,
        batch: DataFrame,
        offsets: Offsets,
        before: Offsets | None = None,
        blocks: Sequence[int] = (),
        times: Sequence[tuple[int, int]] | None = None,
    ) -> DataFrame | None:
        low, high = _bounds(offsets)
        whole: DataFrame | None = None
        for course in self._wall.courses(low, high) if high > low else ():
            chosen = [b & (1 << 40) - 1 for b in blocks if course.get((b >> 16) & 0xFFFFFF) == b >> 40]
            if blocks and not chosen:
                continue
            part = self._course(session, course, low, high, chosen)
            whole = part if whole is None else whole.unionAll(part)
        return whole

    def _course(
        self, session: SparkSession, course: dict[int, int], low: int, high: int, blocks: list[int]
    ) -> DataFrame:
        """The rows of a course of bricks between two times, each with its own."""
        bricks = {b >> 16 for b in blocks} if blocks else set(course)
        files = [str(self._wall.bricks.files[b]) for b in sorted(bricks)]
        schema = f"{FIELDS}, {PLACES}" + (", __block BIGINT" if blocks else "")
        rows = session.read.schema(schema).parquet(*files)
        if blocks:
            rows = rows.where(f"__block IN ({', '.join(f'{b}L' for b in blocks)})")
        # as an array behind an index, so that the code that Spark generates stays the same
        seconds = ",".join(str(course.get(b, -1)) for b in range(len(self._wall.bricks)))
        array = f"cast(split('{seconds},{low},{high}', ',') as array<bigint>)"
        index = "coalesce(cast(__at & 0 as int), 0)"
        number = f"get({array}, __brick)"
        names = [field.split(" ")[0] for field in FIELDS.split(", ")]
        timed = rows.selectExpr(
            f"timestamp_micros({ORIGIN}L + {number} * {SECOND} + __at) AS ts",
            *names,
            f"{ORIGIN}L + {number} * {SECOND} + __at AS __t",
            f"{number} AS __part",
            "__seq",
            *([f"({number} << 40) + __block AS __block"] if blocks else []),
            f"get({array}, {index} + {len(self._wall.bricks)}) AS __low",
            f"get({array}, {index} + {len(self._wall.bricks) + 1}) AS __high",
        )
        return timed.where("__t >= __low AND __t < __high").drop("__low", "__high")

    def size(self, offsets: Offsets, before: Offsets | None) -> int | None:
        low, high = _bounds(offsets)
        total = 0
        for course in self._wall.courses(low, high):
            for brick, second in course.items():
                first, last = self._wall.span(brick, second, low, high)
                total += last - first
        return total

    def ended(self, offsets: Offsets) -> bool:
        return _bounds(offsets)[1] >= self._wall.end

    def progress(self, offsets: Offsets) -> float | None:
        return (_bounds(offsets)[1] - ORIGIN) / (self._wall.end - ORIGIN)

    def lag(self, offsets: Offsets) -> float | None:
        return max(0, min(self._due(ORIGIN), self._wall.end) - _bounds(offsets)[1]) / SECOND

    def release(self, offsets: Offsets) -> None:
        """Bricks are used again."""


def _bounds(offsets: Offsets) -> tuple[int, int]:
    return int(str(offsets["from"])), int(str(offsets["to"]))
