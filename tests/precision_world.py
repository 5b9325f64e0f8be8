"""A world of agents, a hub and a coordinator without sockets, Spark or real time, and what is true in it.

Agents are the real ones but for their connection, the hub is the real one but for its sockets
(`precision_hub.py`), and the driver does what `BoundsKeeper.turn` does. All times are of one simulated clock; every agent's own is a little
off. Whatever happens at the sources is noted, so that every answer can be judged in the end.
"""

from __future__ import annotations

import heapq
import json
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp, parse_one

from precision_hub import Hub, Link
from slackwater.edge.agent_state import AgentState
from slackwater.edge.filters import Filters
from slackwater.edge.terms import Terms, TermsOf
from slackwater.edge.widths import Grants, width_at
from slackwater.language.contracts import Precision
from slackwater.language.dialect import SparkText
from slackwater.language.parse import parse
from slackwater.plan.adjusting import adjusting
from slackwater.plan.bounded import bounded_form, value_columns
from slackwater.plan.catalog import Catalog
from slackwater.plan.current import CurrentPlan, CurrentStep
from slackwater.plan.functions import Functions
from slackwater.runtime.bounds.coordinator import Coordinator
from slackwater.runtime.bounds.evaluating import Evaluator
from slackwater.runtime.bounds.mirror import Mirror
from slackwater.runtime.bounds.queries import BoundedQuery
from slackwater.runtime.bounds.summing import Order, Summing
from slackwater.runtime.current.matrix import Matrix

SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND
COLUMNS = ("a", "b")
KEY_TYPES = (pa.string(), pa.string(), pa.int64())
STREAM = """CREATE STREAM net (host STRING, rack STRING, k BIGINT, a DOUBLE, b DOUBLE, ts TIMESTAMP)
  USING agents OPTIONS (hub 'ws://x', allocation '{allocation}', period '{period} seconds', sums '{sums}')
  KEY (host, rack, k) TIMESTAMP BY ts TOLERANCE {tolerance} SECONDS{rate};"""

Key = tuple[str, str, int]
Row = dict[str, Any]
NAN = math.nan


# queries, and what is true of them


def total(rows: list[Row], of: Callable[[Row], float | None]) -> float | None:
    found = [v for v in map(of, rows) if v is not None]
    return math.fsum(found) if found else None


def mean(rows: list[Row], of: Callable[[Row], float | None]) -> float | None:
    found = [v for v in map(of, rows) if v is not None]
    return math.fsum(found) / len(found) if found else None


def most(rows: list[Row], of: Callable[[Row], float | None]) -> float | None:
    return max((v for v in map(of, rows) if v is not None), default=None)


def least(rows: list[Row], of: Callable[[Row], float | None]) -> float | None:
    return min((v for v in map(of, rows) if v is not None), default=None)


def _if(value: float | None, then: Callable[[float], float]) -> float | None:
    return None if value is None else then(value)


def _both(first: float | None, second: float | None, then: Callable[[float, float], float]) -> float | None:
    return None if first is None or second is None else then(first, second)


@dataclass(frozen=True)
class Asked:
    """A query as SQL, and as a function of rows."""

    sql: str
    truth: dict[str, Callable[[list[Row]], float | None]]
    grouped: bool = False
    chosen: Callable[[Row], bool] = lambda row: True


QUERIES: dict[str, Asked] = {
    "plain": Asked("SELECT SUM(a) AS s FROM LATEST(net)", {"s": lambda rows: total(rows, lambda r: r["a"])}),
    "racks": Asked(
        "SELECT rack, AVG(a) * 8 + 1 AS m FROM LATEST(net) GROUP BY rack",
        {"m": lambda rows: _if(mean(rows, lambda r: r["a"]), lambda v: v * 8 + 1)},
        grouped=True,
    ),
    "apart": Asked(
        "SELECT SUM(a) - SUM(b) AS d, COUNT(*) AS n FROM LATEST(net)",
        {
            "d": lambda rows: _both(
                total(rows, lambda r: r["a"]), total(rows, lambda r: r["b"]), lambda x, y: x - y
            ),
            "n": lambda rows: float(len(rows)),
        },
    ),
    "weighed": Asked(
        "SELECT SUM(k * a - 2 * b) AS w FROM LATEST(net) WHERE k <> 2",
        {"w": lambda rows: total(rows, lambda r: _both(r["a"], r["b"], lambda a, b: r["k"] * a - 2 * b))},
        chosen=lambda r: r["k"] != 2,
    ),
    "ends": Asked(
        "SELECT rack, MAX(2 * b) AS hi, MIN(a) AS lo FROM LATEST(net) GROUP BY rack",
        {
            "hi": lambda rows: _if(most(rows, lambda r: r["b"]), lambda v: 2 * v),
            "lo": lambda rows: least(rows, lambda r: r["a"]),
        },
        grouped=True,
    ),
    "turned": Asked(
        "SELECT 3 - 2 * MIN(b) AS t, MAX(k * a) AS u FROM LATEST(net)",
        {
            "t": lambda rows: _if(least(rows, lambda r: r["b"]), lambda v: 3 - 2 * v),
            "u": lambda rows: most(rows, lambda r: _if(r["a"], lambda a: r["k"] * a)),
        },
    ),
    "some": Asked(
        "SELECT MAX(b) FILTER (WHERE k > 0) AS x, AVG(a) FILTER (WHERE k > 0) AS y FROM LATEST(net)",
        {
            "x": lambda rows: most([r for r in rows if r["k"] > 0], lambda r: r["b"]),
            "y": lambda rows: mean([r for r in rows if r["k"] > 0], lambda r: r["a"]),
        },
    ),
    "shared": Asked(
        "SELECT SUM(b) / COUNT(*) AS p FROM LATEST(net)",
        {"p": lambda rows: _if(total(rows, lambda r: r["b"]), lambda v: v / len(rows))},
    ),
    "counted": Asked(
        "SELECT rack, COUNT(a) AS c, COUNT(a + b) AS both, SUM(b) / COUNT(b) AS q FROM LATEST(net) GROUP BY rack",
        {
            "c": lambda rows: float(sum(r["a"] is not None for r in rows)),
            "both": lambda rows: float(sum(r["a"] is not None and r["b"] is not None for r in rows)),
            "q": lambda rows: mean(rows, lambda r: r["b"]),
        },
        grouped=True,
    ),
}


# what Spark would say of keys


def of_key(sql: str, row: Row) -> Any:
    """The value of an expression over the columns of a key."""
    return _value(_parsed(sql), row)


@lru_cache(1_000)
def _parsed(sql: str) -> Any:
    return parse_one(sql, dialect=SparkText)


def _value(node: Any, row: Row) -> Any:
    if isinstance(node, exp.Column):
        return row[node.name]
    if isinstance(node, exp.Literal):
        return node.this if node.is_string else float(node.this)
    if isinstance(node, exp.Paren | exp.Cast):
        return _value(node.this, row)
    if isinstance(node, exp.Neg):
        return -_value(node.this, row)
    left, right = _value(node.args["this"], row), _value(node.args["expression"], row)
    how: dict[type, Callable[[Any, Any], Any]] = {
        exp.Add: lambda x, y: x + y,
        exp.Sub: lambda x, y: x - y,
        exp.Mul: lambda x, y: x * y,
        exp.Div: lambda x, y: x / y if y else None,
        exp.GT: lambda x, y: x > y,
        exp.LT: lambda x, y: x < y,
        exp.NEQ: lambda x, y: x != y,
        exp.EQ: lambda x, y: x == y,
        exp.And: lambda x, y: x and y,
    }
    return how[type(node)](left, right)


def entries(step: CurrentStep, names: Sequence[Sequence[Any]], first: int, key: Sequence[str]) -> pa.Table:
    """What `entries_sql` gives for the keys from a number on."""
    found = []
    for number in range(first, len(names)):
        if isinstance(names[number], dict):
            continue
        row = dict(zip(key, names[number], strict=True))
        if not all(of_key(p, row) for p in step.step.path.predicates):
            continue
        entry: Row = {"key": number, **{f"g{i}": of_key(k.sql, row) for i, k in enumerate(step.step.keys)}}
        entry["n"] = 1
        for i, call in enumerate(step.linear.calls):
            weights = [of_key(term.weight, row) for term in call.terms]
            counts = call.condition is None or bool(of_key(call.condition, row))
            entry[f"n{i}"] = int(counts)
            for j, weight in enumerate(weights):
                if call.function in ("min", "max"):
                    entry[f"low{i}"] = entry[f"high{i}"] = weight if counts else None
                else:
                    entry[f"w{i}_{j}"] = weight if counts else None
        found.append(entry)
    return pa.Table.from_pylist(found) if found else pa.table({})


# agents


class NotedState(AgentState):
    """An agent's state whose rows are noted as they leave their bounds."""

    def __init__(self, note: Callable[[Any], None], terms: TermsOf, *, follow: bool, limit: int) -> None:
        self._note, self._follow = note, follow
        super().__init__(outbox_limit=limit, terms=terms)

    def _begin(self) -> None:
        super()._begin()
        if not self._follow:
            self.filters = Filters(self.filters.columns, follow=False)
            self.outbox.curves = self.filters
        put = self.outbox.put

        def noted(rows: Any) -> None:
            self._note(rows)
            put(rows)

        self.outbox.put = noted


@dataclass
class Told:
    """A row that left its bound, and where it is in the log."""

    at: int
    incarnation: str
    position: int | None = None
    of_sum: int | None = None


@dataclass
class Watched:
    """All that happened to a key at its source; times are of the agent's clock."""

    site: Site
    times: list[int] = field(default_factory=list)
    values: list[tuple[float, float]] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    breaks: list[tuple[int, str, str]] = field(default_factory=list)
    """When a process that had it died: the time, the agent, its incarnation."""
    gone: list[tuple[int, bool]] = field(default_factory=list)
    """When it was withdrawn (True), and when it came back."""
    laws: list[tuple[int, str, np.ndarray]] = field(default_factory=list)
    """Since when, in which incarnation, by column: width, start, shrink, period."""

    def value(self, at: int) -> tuple[float, float]:
        return self.values[bisect_right(self.times, at) - 1]

    def known(self, at: int) -> bool:
        return bool(self.told) and min(t.at for t in self.told) <= at

    def here(self, at: int) -> bool:
        """Whether it is there: who came back, from its first row on."""
        since, gone = next(((t, g) for t, g in reversed(self.gone) if t <= at), (0, False))
        return not gone and any(since <= told.at <= at for told in self.told)


class Site:
    """A source: its keys and their values, and a process beside it that may die."""

    def __init__(self, world: World, name: str, skew: int, *, follow: bool) -> None:
        self.world, self.name, self.skew, self.follow = world, name, skew, follow
        self.state: NotedState | None = None
        self.link: Link | None = None
        self.cost = 1.0
        self.keys: dict[Key, list[float]] = {}
        self._numbers: list[Key] = []
        self._lives = 0
        self._reviewing: int | None = None
        self.start()

    @property
    def clock(self) -> int:
        return self.world.now + self.skew

    # the process

    def start(self) -> None:
        """A new incarnation, which reads all values first."""
        self._lives += 1
        self.state = NotedState(self._noted, self.world.terms.get, follow=self.follow, limit=100_000)
        self.state.incarnation = f"{self.name}-{self._lives}"
        for key in self.keys:
            self._offer(key)
        self.connect()

    def die(self) -> None:
        assert self.state is not None
        self.world.deaths.append((self.clock, self.state.incarnation))
        for key in self.keys:
            self.world.watched[key].breaks.append((self.clock, self.name, self.state.incarnation))
        for noted in self.world.sums.values():
            if noted.site is self:
                noted.breaks.append((self.clock, self.name, self.state.incarnation))
        self.state = None
        self.cut()

    def connect(self) -> None:
        if self.state is None or (self.link is not None and self.link.up and not self.link.ended):
            return
        link = self.link = Link(self.world, self, self.state.hello())
        self.world.at(self.world.now + self.world.delay(), lambda: self._reach(link))

    def _reach(self, link: Link) -> None:
        if link.up and self.world.hub.up:
            link.join()
        elif link.up:
            # nobody is there: it is tried again
            link.up = False
            self.world.at(self.world.now + SECOND, self.connect)

    def cut(self) -> None:
        """The connection breaks; the hub notices some time later."""
        link = self.link
        if link is not None and link.up:
            link.up = False
            if link.connection is not None and not link.ended:
                self.world.at(self.world.now + self.world.noticing(), link.lose)

    # values

    def change(self, key: Key, values: Sequence[float]) -> None:
        self.keys[key] = list(values)
        noted = self.world.watched.setdefault(key, Watched(self))
        noted.site = self
        noted.times.append(self.clock)
        noted.values.append((values[0], values[1]))
        if self.state is not None:
            self._offer(key)
            self._acted()

    def withdraw(self, key: Key) -> None:
        """A key is there no more; the process, if there is one, is told."""
        del self.keys[key]
        self.world.watched[key].gone.append((self.clock, True))
        if self.state is not None:
            self.state.withdraw(key, self.clock)
            self._acted()

    def bring_back(self, key: Key, values: Sequence[float]) -> None:
        self.world.watched[key].gone.append((self.clock, False))
        self.change(key, values)

    def _offer(self, key: Key) -> None:
        values = [None if math.isnan(v) else v for v in self.keys[key]]
        self.state.offer(key, dict(zip(COLUMNS, values, strict=True)), self.clock)

    # the hub's messages

    def heard(self, message: Row) -> None:
        """What `Uplink` does with a message."""
        state = self.state
        if message["type"] == "welcome":
            self.link.welcomed = True
            assert state.welcome(message, self.clock)
        elif message["type"] == "grants":
            state.grants(message, self.clock)
        elif message["type"] == "sums":
            state.make_sums(message, self.clock)
        else:
            assert message["type"] == "received"
            state.outbox.acknowledge(message["number"])
        self._acted()

    def _acted(self) -> None:
        state, link = self.state, self.link
        self._note_laws()
        if link is not None and link.up and link.welcomed:
            while (message := state.next_message(self.clock)) is not None:
                link.to_hub(message)
        due = state.next_review()
        if due is not None and due != self._reviewing:
            self._reviewing = due
            self.world.at(due - self.skew + self.world.rng.integers(0, 50_000), self._review)

    def _review(self) -> None:
        self._reviewing = None
        if self.state is not None:
            self.state.review(self.clock)
            self._acted()

    # what is noted

    def _named(self) -> list[Key | int]:
        """Keys, and sums by their numbers."""
        count = len(self.state._keys)
        found = self.state._keys.message(0)["keys"] if count else []
        return [k["sum"] if isinstance(k, dict) else tuple(k) for k in found]

    def _noted(self, rows: Any) -> None:
        names = self._named()
        for number, at in zip(rows.key.tolist(), rows.at.tolist(), strict=True):
            told = Told(at, self.state.incarnation)
            name = names[number]
            if isinstance(name, int):
                # what a sum tells, its members have told; where it has ended, nobody has
                told.of_sum = name
                members = self.state._sums._members.get(number, ())
                for member in members:
                    self.world.watched[names[member]].told.append(told)
            else:
                self.world.watched[name].told.append(told)
            self.world.under_way.setdefault((self.state.incarnation, number, at), []).append(told)

    def _note_laws(self) -> None:
        filters = self.state.filters
        columns = len(COLUMNS)
        laws = np.stack([filters.width, filters.start, filters.shrink, filters.period], axis=1)
        for number, key in enumerate(self._named()[: filters.size]):
            law = laws[number * columns : (number + 1) * columns]
            watched = self.world.noted(key, self)
            noted = watched.laws
            if watched.site is not self:
                continue
            if not noted or noted[-1][1] != self.state.incarnation or (noted[-1][2] != law).any():
                noted.append((self.clock, self.state.incarnation, law.copy()))


# the driver


class CheckedMirror(Mirror):
    """A mirror that is compared with the agents at every time of a change."""

    check: Callable[[int], None] | None = None

    def advance(self, time: int) -> Iterator[tuple[int, Any]]:
        for at, touched in super().advance(time):
            if self.check is not None:
                self.check(at)
            yield at, touched


@dataclass(frozen=True)
class Said:
    """An answer, and up to where the log had been read."""

    query: str
    column: str
    at: int
    keys: tuple[Any, ...]
    low: float | None
    high: float | None
    met: bool
    rows: int
    end: int
    width: float


class Driver:
    """What a driver does turn by turn, as `BoundsKeeper` has it."""

    def __init__(self, world: World, catalog: Catalog, kept: tuple[Any, Any, int, int, int] | None) -> None:
        self.world, self.catalog = world, catalog
        self.stream = catalog.streams["net"]
        self.manner = adjusting(self.stream)
        self.mirror = CheckedMirror(
            len(value_columns(self.stream)),
            self.manner.tolerance,
            rates=self.manner.rates,
            widening=None if self.manner.rates is None else self.manner.period,
        )
        self.width = 0
        self.first, self.time = 1, 0
        if kept is not None:
            arrays, noted, snapshot, self.first, self.time = kept
            self.mirror.load(arrays, json.loads(json.dumps(noted)))
            for entry in world.hub.read(snapshot, self.first):
                self.mirror.take(entry)
            self.width = len(self.mirror.names)
        self.turns = 0
        self.evaluator = Evaluator([], None)
        self.coordinator = Coordinator(self.manner, np.random.default_rng(world.seed))
        self.plan: CurrentPlan | None = None
        self.planned: Catalog | None = None
        self.others = False
        """Whether a query needs every row."""
        self.granted = world.hub.end
        self.cut_off = False
        """Whether a request may have failed, since the hub stopped."""
        self.grants = Grants.none()
        self.summing = Summing(self.manner, self.coordinator.tuning)
        self.orders: list[Order] = []
        self.changed = False
        self.asks = kept is not None and self._follow()
        """Whether the queries that there are have not been asked for yet."""
        if kept is not None:
            self.evaluator.windows.load(kept[0]["windows"], kept[1]["windows"])
            self.evaluator.replay(self.mirror, self.time, self.manner)
        self.mirror.check = world.check_rule
        self.kept = self._parts()

    def _parts(self) -> tuple[Any, Any, int, int, int]:
        arrays, noted = self.mirror.to_parts()
        held = {name: array.copy() for name, array in arrays.items()}, json.loads(json.dumps(noted))
        windows, times = self.evaluator.windows.to_parts()
        held[0]["windows"] = {name: array.copy() for name, array in windows.items()}
        held[1]["windows"] = times
        return (*held, self.first, self.first, self.time)

    def again(self) -> Driver:
        """A driver that starts anew from what this one has kept."""
        arrays, noted, snapshot, _, _ = self.kept
        return Driver(self.world, self.catalog, (arrays, noted, snapshot, self.first, self.time))

    def _follow(self) -> bool:
        if self.catalog is self.planned:
            return False
        self.planned = self.catalog
        steps = [s for s in self.catalog.queries.values() if isinstance(s.contract, Precision)]
        plan = CurrentPlan(
            self.stream, tuple(CurrentStep(s, bounded_form(s, self.stream).linear) for s in steps)
        )
        if plan == self.plan:
            return False
        self.plan = plan
        queries = []
        for step in plan.steps:
            form = bounded_form(step.step, self.stream)
            query = BoundedQuery(form, Matrix(step, plan.signals), COLUMNS)
            names = self.mirror.names[: self.width]
            query.matrix.extend(entries(step, names, 0, self.stream.key), self.width)
            query.name_groups(lambda *_: pa.table({}))
            queries.append(query)
        self.evaluator = Evaluator(queries, self.evaluator)
        self.evaluator.weigh(self.mirror.belief)
        return True

    def _place(self) -> bool:
        known = self.width
        if len(self.mirror.names) == known:
            return False
        self.width = len(self.mirror.names)
        for query in self.evaluator.queries:
            found = entries(query.matrix.step, self.mirror.names, known, self.stream.key)
            query.matrix.extend(found, self.width)
            query.name_groups(lambda *_: pa.table({}))
        self.evaluator.weigh(self.mirror.belief)
        return True

    def turn(self, end: int, time: int) -> None:
        """A batch of the log up to an end, which was that at a time."""
        world = self.world
        if self.cut_off:
            # whether what was asked for was carried out shows when the log is read on
            self.granted = max(min(self.granted, end), world.hub.end)
            self.cut_off = False
        world.reading = end
        changed = self._follow() or self.asks
        self.asks = False
        for entry in world.hub.read(self.first, end):
            self.mirror.take(entry)
        self.first, self.time = end, time
        changed |= self._place()
        batches = self.evaluator.advance(self.mirror, time, self.manner, datetime.now(UTC))
        changed |= self.evaluator.reweighed
        self.evaluator.reweighed = False
        others = any(not isinstance(s.contract, Precision) for s in self.catalog.queries.values())
        changed |= others != self.others
        self.others = others
        read = end >= self.granted
        if changed or (read and self.summing.due(self.mirror, time, everything=others)):
            summed, orders = self.summing.decide(
                self.evaluator.queries, self.mirror, time, everything=others, changed=changed
            )
            self.orders = orders if read else []
            if summed is not None:
                self.coordinator.ask(self.evaluator.queries, self.mirror.belief, summed, everything=others)
        if read and not self.mirror.queue.granting:
            # whatever was granted is believed by now
            for entry in world.hub.log:
                if entry["kind"] == "grants":
                    assert entry["position"] < end
                    assert max(entry["start"]) <= self.mirror.queue.released
            self.grants = self.coordinator.decide(self.mirror, time, changed=changed or self.changed)
            self.changed = False
        else:
            self.changed |= changed
        self.turns += 1
        if changed or self.turns % 8 == 0:
            self.kept = self._parts()
        widths = {s.name: s.contract.width for s in self.catalog.queries.values() if _precise(s)}
        world.turns.append((self.mirror.queue.released, end, frozenset(widths)))
        for batch in batches:
            self._deliver(batch, end, widths[batch.query])

    def _deliver(self, batch: Any, end: int, width: float) -> None:
        keys = [c.to_pylist() for c in batch.keys.values()]
        low, high, met = (
            batch.low.to_pylist(),
            batch.high.to_pylist(),
            np.broadcast_to(batch.met, len(batch.at)),
        )
        for i, at in enumerate(batch.at.tolist()):
            group = tuple(c[i] for c in keys[:1])
            self.world.said.append(
                Said(
                    batch.query,
                    batch.column,
                    at,
                    group,
                    low[i],
                    high[i],
                    bool(met[i]),
                    int(batch.rows[i]),
                    end,
                    width,
                )
            )

    def commit(self) -> None:
        grants, self.grants = self.grants, Grants.none()
        orders, self.orders = self.orders, []
        if not self.world.hub.up:
            self.cut_off = True
            return
        for order in orders:
            self.granted = self.world.hub.form(order)
        if len(grants):
            self.granted = self.world.hub.grant(grants)
            self.world.granted.append((self.world.now, grants))


def _precise(step: Any) -> bool:
    return isinstance(step.contract, Precision)


# the world


class World:
    """Everything, and the clock."""

    def __init__(
        self,
        seed: int,
        *,
        allocation: str = "curves",
        period: int = 4,
        tolerance: int = 1,
        rate: float | None = None,
        sites: int = 3,
        per_message: int = 5,
        skew: int = 60_000,
        follow: bool | None = None,
        start: str = "",
        sums: str = "measured",
        tuned: bool = False,
        slow_disk: bool = False,
    ) -> None:
        self.seed = seed
        self.slow_disk = slow_disk
        self._disk = np.random.default_rng((seed, 7))
        self.rng = np.random.default_rng(seed)
        self.now = BEGIN
        self.per_message = per_message
        self.tolerance = tolerance * SECOND
        self.rate = rate
        # what padding takes must leave something
        self.widths = (1.0, 5.0, 20.0, 80.0) if rate is None else (200 * rate, 400 * rate)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self.rough = False
        self.terms: dict[Key, Terms] = {}
        """What agents say of single keys when they tell of them."""
        self.said: list[Said] = []
        self.granted: list[tuple[int, Grants]] = []
        self.watched: dict[Key, Watched] = {}
        self.sums: dict[int, Watched] = {}
        """What happened to sums, by their numbers."""
        self.under_way: dict[tuple[str, int, int], list[Told]] = {}
        self.reading = 0
        self.sites: list[Site] = []
        self.deaths: list[tuple[int, str]] = []
        """When processes died, by their agent's clock, and their incarnations."""
        self.turns: list[tuple[int, int, frozenset[str]]] = []
        """Of every turn: up to which time all was released, the end of the log, and the queries."""
        self._placed: list[tuple[int, tuple[str, int, int], Told]] = []
        """Where rows are in the log."""
        self.hub = Hub(self)
        self.hub.append("declared", key=["host", "rack", "k"], columns=list(COLUMNS))
        clause = "" if rate is None else f" MAX RATE {rate:g} PER SECOND"
        sql = STREAM.format(allocation=allocation, period=period, tolerance=tolerance, rate=clause, sums=sums)
        sql += start
        if tuned:
            sql = sql.replace(f"period '{period} seconds'", "period 'tuned'")
        self.catalog = Catalog.from_sql(sql, Functions())
        self.sites = [
            Site(
                self,
                f"site{i}",
                int(self.rng.integers(-skew, skew + 1)),
                follow=bool(i % 2) if follow is None else follow,
            )
            for i in range(sites)
        ]
        self.driver = Driver(self, self.catalog, None)
        self._walks: dict[Key, tuple[Any, ...]] = {}
        self._kinds: dict[Key, str] = {}
        self.flickering = True
        """Whether values of some keys come and go."""
        self._hosts = 0

    # time

    def at(self, time: int, what: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (max(int(time), self.now), self._number, what))

    def delay(self) -> int:
        """How long a message is under way: nearly always below the tolerance."""
        if self.rough and self.rng.random() < 0.01:
            return int(self.rng.integers(0, 3 * self.tolerance))
        return int(self.rng.integers(1_000, self.tolerance // 4))

    def dallying(self) -> int:
        """How long grants wait at the hub before they are sent."""
        if self.rough and self.rng.random() < 0.1:
            return int(self.rng.integers(0, 8 * SECOND))
        return int(self.rng.integers(0, 200_000))

    def writing(self) -> int:
        """How long the disk takes."""
        return int(self._disk.integers(0, 120_000)) if self.slow_disk else 0

    def soon(self, wait: int, what: Callable[[], None]) -> None:
        if wait:
            self.at(self.now + wait, what)
        else:
            what()

    def noticing(self) -> int:
        return int(self.rng.integers(10_000, 6 * SECOND))

    def run(self, seconds: float) -> None:
        until = self.now + int(seconds * SECOND)
        while self._events and self._events[0][0] <= until:
            self.now, _, what = heapq.heappop(self._events)
            what()
        self.now = until

    # what goes on

    def sql(self, text: str) -> None:
        self.catalog = self.catalog.apply_all(parse(text))
        self.driver.catalog = self.catalog

    def ask(self, name: str, width: float) -> None:
        self.sql(f"CREATE QUERY {name} AS {QUERIES[name].sql} WITH PRECISION {width:g}")

    def add_key(self, site: Site, kind: str = "") -> Key:
        """A key whose values change as its kind says; without one they walk, some of them with a trend."""
        self._hosts += 1
        rng = self.rng
        rack, k = f"r{rng.integers(0, 2)}", int(rng.choice([-2, -1, 1, 2, 3]))
        key = (f"h{self._hosts}", rack, k)
        scale = tuple(float(s) for s in 10 ** rng.uniform(-1, 1, len(COLUMNS)))
        trend = tuple(float(t) for t in rng.choice([0.0, 0.0, 1.0, -1.0], len(COLUMNS)))
        levels = tuple(float(v) for v in rng.normal(0, 50, len(COLUMNS)))
        self._walks[key] = (scale, trend, levels)
        self._kinds[key] = kind
        site.change(key, list(levels))
        self._step_later(key)
        return key

    def rate_of(self, key: Key, column: int) -> float:
        """The most that a value changes in a second."""
        assert self.rate is not None
        own = self.terms[key].max_rate if key in self.terms else None
        own = own.get(COLUMNS[column]) if isinstance(own, Mapping) else own
        return self.rate if own is None else own

    def _step_later(self, key: Key) -> None:
        self.at(self.now + int(self.rng.exponential(0.5) * SECOND) + 1, lambda: self._step(key))

    def _step(self, key: Key) -> None:
        site = self.watched[key].site
        if key not in site.keys:
            return
        scale, trend, levels = self._walks[key]
        seconds = max(self.now + site.skew - self.watched[key].times[-1], 0) / SECOND
        values = list(site.keys[key])
        for column, value in enumerate(values):
            if self.rough and self.rate is None and self.rng.random() < 0.01:
                values[column] = NAN if not math.isnan(value) else levels[column]
            elif self._kinds[key]:
                values[column] = self._moved(key, column, value, seconds)
            elif not math.isnan(value):
                if self.rate is not None:
                    goal = value + self.rng.uniform(-1, 1) * self.rate_of(key, column) * seconds
                    step = self._slow(key, column, goal) - value
                elif trend[column]:
                    step = trend[column] * scale[column] * seconds + self.rng.normal(0, 0.05) * scale[column]
                else:
                    back = 0.1 * (levels[column] - value)
                    step = back + self.rng.normal(0, 1) * scale[column]
                values[column] = value + step
        site.change(key, values)
        self._step_later(key)

    def _moved(self, key: Key, column: int, value: float, seconds: float) -> float:
        """The next value of a key of a kind."""
        kind, (scale, level) = self._kinds[key], (self._walks[key][i][column] for i in (0, 2))
        chance = self.rng.random()
        if kind == "flickers" and self.flickering and self.rate is None and chance < 0.2:
            return level if math.isnan(value) else NAN
        if math.isnan(value):
            return value
        steps = {
            "stays": 0.0,
            "jumps": 20 * scale * self.rng.normal() if chance < 0.1 else 0.0,
            "swings": (level + scale if value <= level else level - scale) - value,
            "drifts": scale * seconds,
            "walks": scale * self.rng.normal(),
            "flickers": scale * self.rng.normal(),
        }
        moved = value + steps[kind]
        return moved if self.rate is None else self._slow(key, column, moved)

    def _slow(self, key: Key, column: int, value: float) -> float:
        """As near to a value as the rate allows now: what stood at any time is no further from what stands
        later than the rate lets it go in between, or in the tolerance, if that is longer."""
        noted, rate = self.watched[key], 0.999 * self.rate_of(key, column)
        now = noted.site.clock
        # the value of each time stood until the next one came
        until = np.array([*noted.times[1:], now])
        stood = np.array([values[column] for values in noted.values])
        reach = rate * np.maximum(now - until, self.tolerance) / SECOND
        return float(np.clip(value, np.nanmax(stood - reach), np.nanmin(stood + reach)))

    def start_batches(self) -> None:
        def batch() -> None:
            self.hub.request(answered, lambda: self.at(self.now + SECOND // 4, batch))

        def answered(end: int, time: int) -> None:
            driver = self.driver
            driver.turn(end, time)
            # grants go out after the commit, if the driver still lives then
            self.at(self.now + int(self.rng.integers(1_000, 150_000)), lambda: self._commit(driver))
            self.at(self.now + 150_001 + int(self.rng.exponential(0.6) * SECOND), batch)

        self.at(self.now + SECOND // 2, batch)

    def _commit(self, driver: Driver) -> None:
        if driver is self.driver:
            driver.commit()

    def restart_driver(self) -> None:
        self.driver = self.driver.again()

    def restart_hub(self, seconds: float, *, clean: bool = False, torn: float = 0.0) -> None:
        """The hub stops, and starts again later; of what it was writing a share is on disk."""
        if self.hub.up:
            self.hub.stop(clean, torn)
            self.driver.cut_off = True
            self.at(self.now + int(seconds * SECOND), self.hub.start)

    def cut(self, site: Site, seconds: float) -> None:
        site.cut()
        self.at(self.now + int(seconds * SECOND), site.connect)

    def kill(self, site: Site, seconds: float) -> None:
        if site.state is None:
            return
        site.die()
        self.at(self.now + int(seconds * SECOND), site.start)

    def forget(self, site: Site) -> None:
        """What `OperatorConnection` does when it is told to withdraw what nobody answers for."""
        known = self.hub.up and site.name in self.hub.registry.agents
        if known and (numbers := self.hub.registry.unclaimed(site.name)):
            self.hub.append("withdrawn", agent=site.name, numbers=numbers)

    def take_over(self, key: Key, other: Site) -> bool:
        """A key goes to another agent, whose own must be lost; whether it could."""
        site = self.watched[key].site
        if site.state is not None or site is other or other.state is None or site.name in self.hub.links:
            return False
        if key not in site.keys:
            return False
        record = self.hub.registry.agents.get(site.name)
        if record is None or record.joined or other.clock <= self.watched[key].times[-1]:
            return False
        values = site.keys.pop(key)
        other.change(key, values)
        return True

    # what is noted

    def noted(self, name: Key | int, site: Site) -> Watched:
        if isinstance(name, int):
            return self.sums.setdefault(name, Watched(site))
        return self.watched[name]

    def logged(self, site: Site, incarnation: str, message: Row, position: int) -> None:
        rows = message["rows"]
        for number, at in zip(rows["key"], rows["at"], strict=True):
            for told in self.under_way.pop((incarnation, number, at), ()):
                told.position = position
                self._placed.append((position, (incarnation, number, at), told))
                ended = [e for e in self.hub.log if told.of_sum in e.get("dropped", ())]
                if told.of_sum is not None and ended and ended[0]["received"] <= at:
                    # it had ended before this was so
                    for noted in self.watched.values():
                        noted.told = [t for t in noted.told if t is not told]

    def lost_from(self, end: int) -> None:
        """The log has lost all from a position on: rows are on their way again."""
        for position, name, told in self._placed:
            if position >= end:
                told.position = None
                self.under_way.setdefault(name, []).append(told)
        self._placed = [placed for placed in self._placed if placed[0] < end]

    # what must hold

    def check_rule(self, at: int) -> None:
        """At every time the believed width of an object is at least the agent's."""
        mirror = self.driver.mirror
        belief = mirror.belief
        joined = {i for position, i in self.hub.joined if position < self.reading}
        for number, name in enumerate(mirror.names):
            if isinstance(name, dict) and name["sum"] not in self.sums:
                continue
            noted = self.sums[name["sum"]] if isinstance(name, dict) else self.watched[tuple(name)]
            if not belief.known[number] or belief.unsure[number] > 0:
                continue
            since, incarnation, law = next(
                (law for law in reversed(noted.laws) if law[0] <= at), (0, "", np.empty(0))
            )
            if incarnation not in joined or any(since <= b[0] <= at for b in noted.breaks):
                continue
            objects = np.arange(number * len(COLUMNS), (number + 1) * len(COLUMNS))
            believed = belief.widths(objects, at)
            used = width_at(law[:, 0], law[:, 1].astype(np.int64), law[:, 2], law[:, 3].astype(np.int64), at)
            assert (believed >= used * (1 - 1e-12)).all(), (at - BEGIN, name, believed, used)

    def truth(self, said: Said, at: int) -> float | None:
        asked = QUERIES[said.query]
        rows = [row for key in self.watched if (row := self._row(key, asked, said.keys, at)) is not None]
        return asked.truth[said.column](rows)

    def _concerns(self, key: Key, asked: Asked, group: tuple[Any, ...], at: int) -> bool:
        """Whether a key has been in a group."""
        row: Row = dict(zip(("host", "rack", "k"), key, strict=True))
        apart = asked.grouped and key[1] != group[0]
        return asked.chosen(row) and not apart and self.watched[key].known(at)

    def _row(self, key: Key, asked: Asked, group: tuple[Any, ...], at: int) -> Row | None:
        noted = self.watched[key]
        if not self._concerns(key, asked, group, at) or not noted.here(at):
            return None
        row: Row = dict(zip(("host", "rack", "k"), key, strict=True))
        values = noted.value(at)
        return row | {c: None if math.isnan(v) else v for c, v in zip(COLUMNS, values, strict=True)}

    def excused(self, said: Said) -> bool:
        """Whether an answer rests on a key of which something was not in the log that should have been.

        That is: the newest row that its agent had told by then, or that its process had died. Where bounds
        are padded, rows of the last time need not be there, but for a key's first.
        """
        asked = QUERIES[said.query]
        lag = 0 if self.rate is None else self.tolerance
        for key, noted in self.watched.items():
            if not self._concerns(key, asked, said.keys, said.at):
                continue
            if not noted.here(said.at) and self._forgotten(key, said.end):
                continue
            told = [t for t in noted.told if t.at <= said.at - lag]
            if not told:
                return True
            there = told[-1].position is not None and told[-1].position < said.end
            died = [
                b
                for b in noted.breaks
                if told[-1].at <= b[0] <= said.at - lag and b[2] == told[-1].incarnation
            ]
            if (not there or died) and not self._covered(noted, told[-1], said):
                return True
        return False

    def _forgotten(self, key: Key, end: int) -> bool:
        """Whether somebody at the hub has withdrawn a key."""
        number = self.hub.registry.numbers.get(key)
        withdrawn = [e for e in self.hub.log if e["kind"] == "withdrawn" and e["position"] < end]
        return any(number in entry["numbers"] for entry in withdrawn)

    def wrong(self, said: Said) -> bool:
        """Whether an answer does not hold the truth, or says of itself what is not so."""
        truth = self.truth(said, said.at)
        if said.low is None or said.high is None:
            # nobody vouches for it, or there is nothing
            return said.met and truth is not None
        if truth is None:
            return True
        if not said.low <= truth <= said.high:
            return True
        # who is announced and has told nothing yet is awaited
        narrow = said.high - said.low <= said.width
        return said.met if not narrow else not said.met and not self.awaits(said)

    def awaits(self, said: Said) -> bool:
        """Whether a key of a group had told nothing yet."""
        asked = QUERIES[said.query]
        for key, noted in self.watched.items():
            row: Row = dict(zip(("host", "rack", "k"), key, strict=True))
            inside = asked.chosen(row) and not (asked.grouped and key[1] != said.keys[0])
            if inside and not noted.known(said.at):
                return True
        return False

    def _covered(self, noted: Watched, told: Told, said: Said) -> bool:
        """Whether the log said that the agent was lost."""
        lives = {told.incarnation} | {b[2] for b in noted.breaks if b[0] <= said.at}
        for entry in self.hub.log:
            if entry["position"] >= said.end:
                break
            if entry["kind"] == "lost" and entry["incarnation"] in lives:
                after = [
                    e
                    for e in self.hub.log
                    if entry["position"] < e["position"] < said.end
                    and e["kind"] == "batch"
                    and e["agent"] == entry["agent"]
                    and e.get("caught_up")
                ]
                if entry["since"] - self.tolerance <= said.at and not after:
                    return True
        return False

    # trouble

    def trouble(self, seconds: float) -> None:
        """A rough time: connections and processes are lost, keys come, queries and the driver change."""
        self.rough = True
        until = self.now + int(seconds * SECOND)
        while self.now < until:
            self.run(min(float(self.rng.exponential(2.0)) + 0.01, (until - self.now) / SECOND + 0.001))
            self._mishap()
        self.rough = False
        self.quiet()

    def quiet(self) -> None:
        """Everybody is back and everything is asked for at once, from now on; no value comes or goes."""
        self.flickering = False
        for name, step in self.catalog.queries.items():
            # what would get there in time by shrinking alone is there at once
            if _precise(step):
                self.sql(f"ALTER QUERY {name} WITH PRECISION {step.contract.width:g} IMMEDIATE")
        for site in self.sites:
            # who is away comes back, and what was under way has arrived by then
            self.at(self.now + 10 * SECOND, site.connect)
        self.run(12)
        for site in self.sites:
            # what went with a process and was never told; who is away still comes back with his keys
            if site.name in self.hub.links:
                self.forget(site)
        for key, noted in self.watched.items():
            if key not in noted.site.keys:
                continue
            levels = self._walks[key][2]
            values = noted.site.keys[key]
            noted.site.change(key, [lv if math.isnan(v) else v for v, lv in zip(values, levels, strict=True)])

    def _mishap(self) -> None:
        rng = self.rng
        site = self.sites[int(rng.integers(0, len(self.sites)))]
        kind = rng.choice(["cut", "kill", "key", "take", "query", "precision", "driver", "gone"])
        if kind == "cut":
            self.cut(site, float(rng.exponential(3.0)))
        elif kind == "kill":
            self.kill(site, float(rng.exponential(4.0)))
        elif kind == "key":
            if len(self.watched) < 16:
                self.add_key(site)
        elif kind == "take":
            for key in list(self.watched):
                if self.take_over(key, site):
                    break
        elif kind == "query":
            name = str(rng.choice(list(QUERIES)))
            if name not in self.catalog.queries:
                self.ask(name, float(rng.choice(self.widths)))
            elif len(self.catalog.queries) > 2:
                self.sql(f"DROP QUERY {name}")
        elif kind == "precision" and self.catalog.queries:
            name = str(rng.choice(list(self.catalog.queries)))
            at_once = " IMMEDIATE" if rng.random() < 0.5 else ""
            self.sql(f"ALTER QUERY {name} WITH PRECISION {float(rng.choice(self.widths)):g}{at_once}")
        elif kind == "driver":
            self.restart_driver()
        elif kind == "gone" and self.rate is None:
            # what comes and goes is bounded by no rate
            self.come_and_go(list(self.watched)[int(self.rng.integers(0, len(self.watched)))])

    def come_and_go(self, key: Key) -> None:
        """A key is withdrawn, or one that was comes back."""
        noted = self.watched[key]
        last = max([noted.times[-1], *(t for t, _ in noted.gone)])
        if noted.site.clock <= last:
            return
        if key in noted.site.keys:
            noted.site.withdraw(key)
        elif noted.site.state is not None:
            noted.site.bring_back(key, list(self._walks[key][2]))
            self._step_later(key)
