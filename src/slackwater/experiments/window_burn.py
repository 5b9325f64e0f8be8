"""Delays: tests in SQL that every row passes after burning a set amount of processor time in the JVM.

The paper's delay operator holds a tuple back while it keeps the processor busy. Here a loop of Spark's own
functions does, digesting a kilobyte at each turn: it begins with a column of the row, so that Catalyst can
neither fold it nor tell that it is always true, and no Python worker has a part in it. (A loop of cheap sums
is worse: what it takes is up to how HotSpot compiles it, which changed by a factor of two between queries.)
"""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.experiments.window_runs import Spent
from slackwater.spark.execute import SparkSession

INNER = 200
"""Turns of the inner loop: arrays stay short."""
DIGITS, COPIES = 128, 8
"""Of a digest, in hexadecimal; copies of one that make the kilobyte."""
TRIAL = 50_000
"""Turns that are timed together, over some rows."""
ROUNDS = 5
"""Times: code that has just been compiled is slow, so the least one counts."""


def burning(column: str, turns: int) -> str:
    """A test of a value that is not NULL: true after about so many turns of a loop.

    >>> burning("n", 400)[:60]
    'length(aggregate(sequence(1, 2), CAST(n AS STRING), (a, x) -'
    >>> looped(400), looped(20), looped(450)
    ((2, 200), (1, 20), (3, 150))
    """
    outer, inner = looped(turns)
    within = f"aggregate(sequence(1, {inner}), a, (b, y) -> sha2(repeat(b, {COPIES}), 512))"
    loops = f"aggregate(sequence(1, {outer}), CAST({column} AS STRING), (a, x) -> {within})"
    return f"length({loops}) = {DIGITS}"


def looped(turns: int) -> tuple[int, int]:
    """Turns as those of an outer and of an inner loop."""
    outer = max(1, -(-turns // INNER))
    return outer, max(1, round(turns / outer))


@dataclass(frozen=True)
class Delay:
    """So many turns, and the seconds that they take by the calibration."""

    turns: int
    seconds: float

    def test(self, column: str) -> str:
        """The delay as a condition of a query."""
        return burning(column, self.turns)


def turn_seconds(spark: SparkSession) -> float:
    """Executor seconds for a turn of the loop, by timing Spark."""
    spent, times = Spent(spark), []
    rows = TRIAL // INNER
    for _ in range(ROUNDS):
        frame = spark.range(0, rows, 1, spark.sparkContext.defaultParallelism)
        passed = frame.where(burning("id", INNER)).count()
        assert passed == rows, "a delay is to let every row through"
        times.append(spent.read() / (rows * INNER))
    return min(times)


def delay(seconds: float, turn: float) -> Delay:
    """A delay of about so many seconds, given what a turn takes.

    >>> delay(8.0, 0.5)
    Delay(turns=16, seconds=8.0)
    """
    turns = max(1, round(seconds / turn))
    return Delay(turns, turns * turn)
