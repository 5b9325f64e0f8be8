"""Networks of aggregates and streams for them, at random, that the tests of the window drop share.

A network is plain data (names of columns, functions and steps, and numbers), so that it can be written down as
queries as well as run by the reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from slackwater.planners.window_coins import Run, coin, decide
from slackwater.planners.window_rules import DropNode, DropPoint, drop_points
from slackwater.reference.ordered import FUNCTIONS, VALUE, Condition, Item
from slackwater.reference.window_drop import Coins, Drop, Network, Step

Rows = list[tuple[int, dict[str, int]]]
"""Each with its time."""

STREAM = "s"
KEYS = {"k": 3, "h": 2}
"""The columns to group by, and how many values each has."""
STEPS_AT_MOST = 10
DEPTH = 4

# slides with small common multiples are often dropped together, others seldom are
SLIDES = ((1,), (2,), (3,), (1, 2), (2, 4), (2, 3), (1, 2, 4), (1, 2, 3, 4))


def random_network(random: Random) -> Network:
    """Pipelines, fan-outs and both in one; every end is a query, and some steps on the way are too."""
    slides = random.choice(SLIDES)
    widest = random.choice((1, 2, 4))
    names = (f"q{number}" for number in range(STEPS_AT_MOST))
    room = STEPS_AT_MOST

    def steps(depth: int, columns: tuple[str, ...], fewest: int) -> tuple[Step, ...]:
        nonlocal room
        count = min(room, random.randint(fewest, widest)) if depth <= DEPTH else 0
        room -= count
        return tuple(step(depth, columns) for _ in range(count))

    def step(depth: int, columns: tuple[str, ...]) -> Step:
        # below the stream, mostly the keys of what is read: a drop does not move past others
        same = depth > 1 and random.random() < 0.8
        keys = columns if same else tuple(key for key in columns if random.random() < 0.4)
        slide = random.choice(slides)
        readers = steps(depth + 1, keys, 0)
        return Step(
            next(names),
            slide + random.choice((0, 0, 1, 2, 3, 5)),
            slide,
            keys,
            random.choice(tuple(FUNCTIONS)),
            _condition(random, columns) if random.random() < 0.35 else None,
            random.randint(1, 5) if not readers or random.random() < 0.3 else None,
            readers,
        )

    return Network(STREAM, steps(1, tuple(KEYS), 1))


def random_rows_step(random: Random, name: str) -> Step:
    """A query over windows of rows."""
    slide = random.randint(1, 6)
    keys = tuple(key for key in KEYS if random.random() < 0.4)
    condition = _condition(random, tuple(KEYS)) if random.random() < 0.5 else None
    size, gap = slide + random.choice((0, 0, 1, 3, 8)), random.randint(1, 5)
    return Step(name, size, slide, keys, random.choice(tuple(FUNCTIONS)), condition, gap)


def _condition(random: Random, columns: Sequence[str]) -> Condition:
    modulus = random.randint(2, 3)
    return Condition(random.choice((*columns, VALUE, VALUE)), modulus, random.randrange(modulus))


def random_stream(random: Random) -> list[Item]:
    """Items with several at one time, or far apart, or both; from 0 on, or from later."""
    steps = random.choice(((0, 1), (1,), (0, 0, 1, 1, 2), (0, 1, 1, 5), (1, 1, 1, 1, 17)))
    time = random.choice((0, 0, random.randint(0, 30)))
    items = []
    for _ in range(random.randint(30, 80)):
        columns = {key: random.randrange(values) for key, values in KEYS.items()}
        items.append(Item(time, {**columns, VALUE: random.randrange(10)}))
        time += random.choice(steps)
    return items


def drop_nodes(network: Network) -> DropNode:
    """The network as the planner sees it."""

    def node(step: Step) -> DropNode:
        below = tuple(node(reader) for reader in step.readers)
        return DropNode(step.name, step.size, step.slide, "time", step.keys, step.gap, None, below)

    return DropNode(network.stream, readers=tuple(node(step) for step in network.readers))


@dataclass(frozen=True)
class Case:
    """A network with a stream, and what decides on its windows."""

    network: Network
    items: tuple[Item, ...]
    points: tuple[DropPoint, ...]
    share: float
    salt: int
    low: int
    """Windows that start before it are kept."""

    def first_unit(self, point: DropPoint) -> int:
        return -(-self.low // point.drop.slide)

    def coin(self, point: DropPoint, batch: int) -> float:
        return coin(self.salt, "/".join(point.members), batch)

    def coins(self, point: DropPoint) -> Coins:
        return lambda batch: self.coin(point, batch) < self.share

    def units_out(self, point: DropPoint) -> set[int]:
        """What the planner's rule leaves out."""
        to = self.items[-1].time // point.drop.slide + 1
        run = Run(self.first_unit(point))
        return set(decide(run, point.drop.gap, self.share, to, lambda batch: self.coin(point, batch))[0])

    def drops(self) -> list[Drop]:
        """The drops of the plan, in the values that the reference takes."""
        return [
            Drop(
                point.source,
                point.members,
                point.drop.size,
                point.drop.slide,
                point.drop.gap,
                self.coins(point),
                self.first_unit(point),
            )
            for point in self.points
        ]


def random_case(number: int) -> Case:
    """The same whenever it is asked for."""
    random = Random(number)
    network = random_network(random)
    items = tuple(random_stream(random))
    share = random.choice((0.3, 0.5, 0.8, 1.0))
    low = items[0].time + random.choice((-40, 0, random.randint(-15, 25)))
    return Case(network, items, drop_points(drop_nodes(network)), share, number, low)


def plain_answers(network: Network, items: Sequence[Item]) -> dict[str, Rows]:
    """What all queries give without drops, from whole lists of rows."""
    found: dict[str, Rows] = {}

    def visit(step: Step, rows: Rows) -> None:
        held: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        for time, row in rows:
            where = step.where
            if where is None or row[where.column] % where.modulus == where.remainder:
                for start in range(time - step.size + 1, time + 1):
                    if start % step.slide == 0:
                        held.setdefault((start, tuple(row[key] for key in step.keys)), []).append(row[VALUE])
        over = {"count": len, "sum": sum, "max": max, "spread": lambda values: max(values) - min(values)}
        given = [
            (
                start,
                {**dict(zip(step.keys, keys, strict=True)), VALUE: over[step.function](held[start, keys])},
            )
            for start, keys in sorted(held)
        ]
        if step.gap is not None:
            found[step.name] = given
        for reader in step.readers:
            visit(reader, given)

    for step in network.readers:
        visit(step, [(item.time, dict(item.values)) for item in items if item.values is not None])
    return found


def longest_run(starts: Iterable[int], slide: int) -> int:
    """How many are adjacent at most."""
    longest = length = 0
    last = None
    for start in sorted(starts):
        length = length + 1 if last is not None and start == last + slide else 1
        longest, last = max(longest, length), start
    return longest


def depth(readers: Sequence[Step]) -> int:
    return 1 + max(depth(step.readers) for step in readers) if readers else 0
