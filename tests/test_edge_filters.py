"""The filters of an agent, against a mirror in plain Python that knows only what a coordinator gets to see."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import slackwater.edge.following as following
from slackwater.edge.agent_state import AgentState
from slackwater.edge.filters import Filters
from slackwater.edge.messages import Declared
from slackwater.edge.widths import Grants, one_width_at, width_at

SECOND = 1_000_000
NOW = 1_000 * SECOND + 123_456


@dataclass(frozen=True)
class Grant:
    position: int
    width: float
    start: int
    shrink: float
    period: int

    def at(self, time: int) -> float:
        """The law, which both sides share; what it says is tested by itself."""
        return one_width_at(self.width, self.start, self.shrink, self.period, time)


@dataclass
class Mirror:
    """What a coordinator believes, from grants, acknowledgements and rows."""

    columns: int
    grants: dict[int, list[Grant]] = field(default_factory=dict)
    """By object: the last grant that was acknowledged, and those after it."""
    acknowledged: set[int] = field(default_factory=set)
    bounds: dict[int, tuple[float | None, float, int]] = field(default_factory=dict)
    """By object: the centre (None: no value), the slope in a step, and since when."""

    def granted(self, thing: int, grant: Grant) -> None:
        self.grants.setdefault(thing, [Grant(0, math.inf, 0, 0.0, 1)]).append(grant)

    def narrowed(self, position: int) -> None:
        self.acknowledged.add(position)
        for thing, grants in self.grants.items():
            if any(grant.position == position for grant in grants):
                self.grants[thing] = [grant for grant in grants if grant.position >= position]

    def row(self, key: int, values: list[float | None], rides: dict[str, Any] | None, at: int) -> None:
        rides = rides or {}
        centres = rides.get("c", values)
        slopes = rides.get("s", [0.0] * self.columns)
        for column in range(self.columns):
            self.bounds[key * self.columns + column] = (centres[column], slopes[column], at)

    def width(self, thing: int, time: int) -> float:
        """The widest that its agent may be using."""
        known = self.grants.get(thing, [])
        used = [g.at(time) for g in known if g.start <= time or g.position in self.acknowledged]
        return max(used, default=math.inf)

    def holds(self, thing: int, value: float, width: float, time: int) -> bool:
        """Whether a value is in the bound, were it this wide."""
        centre, slope, since = self.bounds.get(thing, (None, 0.0, 0))
        if centre is None or math.isnan(value):
            return centre is None and math.isnan(value)
        steps = time // following.TREND_STEP - since // following.TREND_STEP
        return abs(value - (centre + slope * steps)) <= width / 2


class Workload:
    """Random offers, grants and reviews, with the mirror beside them."""

    def __init__(self, seed: int, *, follow: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.columns = int(self.rng.integers(1, 4))
        self.keys = int(self.rng.integers(1, 6))
        self.filters = Filters(self.columns, period=2.0, follow=follow)
        for _ in range(self.keys):
            self.filters.add(1)
        self.mirror = Mirror(self.columns)
        self.now = NOW
        self.truth = np.full((self.keys, self.columns), np.nan)
        self.drift = self.rng.choice([0.0, 0.0, 0.3, -2.0], (self.keys, self.columns))
        self.position = self.last_start = 0
        self.rows = self.checks = 0
        self.offered: set[int] = set()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.go_on(int(self.rng.choice([0, 1, 77_777, 400_000, SECOND, 3_700_000])))
            action = self.rng.random()
            if action < 0.65:
                self.offer()
            elif action < 0.9:
                self.grant()
            else:
                self.scramble()
            self.check()

    def go_on(self, micros: int) -> None:
        """Let time pass: filters are reviewed exactly when they say so."""
        end = self.now + micros
        while (due := self.filters.next_review(self.now)) is not None and due <= end:
            self.now = due - 1
            self.check()
            self.now = due
            reasons = self.reasons(list(range(self.keys)))
            found = self.filters.review(self.now).tolist()
            assert set(found) == reasons
            self.tell(found)
            self.check()
        self.now = end
        self.check()

    def offer(self) -> None:
        some = np.flatnonzero(self.rng.random(self.keys) < 0.7)
        moves = self.rng.normal(0, 1, (len(some), self.columns)) * self.rng.choice([0.0, 0.1, 1.0, 50.0])
        new = np.where(np.isnan(self.truth[some]), 0.0, self.truth[some]) * 0.98 + moves + self.drift[some]
        new[self.rng.random(new.shape) < 0.05] = np.nan
        for key, row in zip(some.tolist(), new, strict=True):
            self.truth[key] = row
        self.offered |= set(some.tolist())
        reasons = self.reasons(some.tolist())
        if self.rng.random() < 0.5:
            found = some[self.filters.offer(some, new, self.now)].tolist()
        else:
            pairs = zip(some.tolist(), new.tolist(), strict=True)
            found = [key for key, row in pairs if self.filters.offer_one(key, row, self.now)]
        assert set(found) == reasons
        self.tell(found)

    def reasons(self, keys: list[int]) -> set[int]:
        """The keys that are not in their bounds, at the widths that the agent uses, or were never told."""
        widths = self.filters.widths(slice(None), self.now)
        return {
            key
            for key in keys
            for thing, value in enumerate(self.truth[key].tolist(), key * self.columns)
            if math.isfinite(widths[thing])
            and (
                not self.mirror.holds(thing, value, widths[thing], self.now)
                or (key in self.offered and thing not in self.mirror.bounds)
            )
        }

    def tell(self, keys: list[int]) -> None:
        assert len(set(keys)) == len(keys)
        told = json.loads(json.dumps(self.filters.response(np.array(keys, np.int64)), allow_nan=False))
        for key, rides in zip(keys, told, strict=True):
            values = [None if math.isnan(v) else v for v in self.truth[key].tolist()]
            self.mirror.row(key, values, rides, self.now)
            self.rows += 1

    def grant(self) -> None:
        things = np.flatnonzero(self.rng.random(self.keys * self.columns) < 0.5)
        if self.rng.random() < 0.1 and len(things):
            things = np.append(things, things[0])
        count = len(things)
        width = self.rng.choice([0.0, 0.5, 2.0, 3.0, 10.0, 200.0, math.inf], count)
        # the hub's time does not go back, whatever the difference to the agent's
        start = max(self.last_start, self.now + int(self.rng.integers(-5, 5)) * 900_000)
        self.last_start = start
        starts = np.full(count, start)
        shrink = self.rng.choice([0.0, 0.0, 0.03, 0.5], count)
        period = self.rng.choice([SECOND, 700_001, 3 * SECOND], count)
        key, column = things // self.columns, things % self.columns
        narrowed = self.filters.grant(Grants(key, column, width, starts, shrink, period), self.now)
        positions = range(self.position + 1, self.position + 1 + count)
        self.position += count
        laws = zip(positions, width.tolist(), starts.tolist(), shrink.tolist(), period.tolist(), strict=True)
        for thing, law in zip(things.tolist(), laws, strict=True):
            self.mirror.granted(thing, Grant(*law))
        for position, acknowledged in zip(positions, narrowed.tolist(), strict=True):
            if acknowledged:
                self.mirror.narrowed(position)
        before = self.reasons(list(range(self.keys)))
        found = self.filters.review(self.now, np.unique(key) if self.rng.random() < 0.5 else None)
        assert set(found.tolist()) == before
        self.tell(found.tolist())

    def scramble(self) -> None:
        """Whatever the trials have come to, the guarantee stands."""
        tracks = self.filters._tracks
        if tracks is not None and tracks._used:
            ways = self.rng.integers(0, 3, tracks._used).astype(np.int8)
            tracks._following.way[: tracks._used] = ways

    def check(self) -> None:
        for key in range(self.keys):
            for thing, value in enumerate(self.truth[key].tolist(), key * self.columns):
                width = self.mirror.width(thing, self.now)
                used = float(self.filters.widths(np.array([thing]), self.now)[0])
                assert used <= width
                if math.isfinite(width):
                    self.checks += 1
                    assert self.mirror.holds(thing, value, width, self.now)


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_values_are_in_the_bounds_that_a_coordinator_believes(seed: int, follow: bool) -> None:
    load = Workload(seed, follow=follow)
    load.run(150)
    assert load.rows > 10
    assert load.checks > 100


# --- an agent's log, carried out in the order of its times


HOSTS = Declared(("host",), ("load", "free"))


class Told:
    """A state with all that it sends, and all that was true, by time."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.state = AgentState(outbox_limit=10_000)
        hub = {"received": 0, "keys": 0, "log": "log", "declared": HOSTS.message(), "time": NOW}
        assert self.state.welcome(hub, NOW)
        self.now = NOW
        self.truth: list[tuple[int, int, list[float]]] = []
        self.events: list[tuple[int, int, Any]] = []
        self.position = 0
        self.last_start = 0
        self.last_row = 0

    def run(self, steps: int) -> None:
        keys = [f"k{n}" for n in range(4)]
        values = np.zeros((4, 2))
        self.state.offer_many(keys, values, NOW)
        self.truth += [(NOW, key, [0.0, 0.0]) for key in range(4)]
        for _ in range(steps):
            # the clock goes on, stands, leaps over many reviews, and is set back
            self.now += int(self.rng.choice([0, 1, 250_000, 2 * SECOND, 9 * SECOND, -3 * SECOND]))
            at = self.now - int(self.rng.choice([0, 0, 0, 700_000, 4 * SECOND]))
            action = self.rng.random()
            if action < 0.7:
                key = int(self.rng.integers(4))
                values[key] += self.rng.normal([0.4, 0.0], 1, 2)
                self.state.offer_many([keys[key]], values[[key]], at)
                # it counts as of then, or of what was last
                assert self.state._time >= at
                self.truth.append((self.state._time, key, values[key].tolist()))
            elif action < 0.85:
                self.grant()
            else:
                self.state.review(self.now)
            self.drain()

    def grant(self) -> None:
        count = 4
        self.last_start = max(self.last_start, self.now + int(self.rng.integers(-3, 3)) * 400_000)
        message: dict[str, Any] = {"key": list(range(count)), "column": [int(self.rng.integers(2))] * count}
        message["width"] = self.rng.choice([1.0, 4.0, 12.0], count).tolist()
        message["position"] = [self.position + 1 + n for n in range(count)]
        message["start"] = [self.last_start] * count
        message["shrink"] = self.rng.choice([0.0, 0.1], count).tolist()
        message["period"] = [2 * SECOND] * count
        self.position += count
        for n in range(count):
            thing = message["key"][n] * 2 + message["column"][n]
            law = [message[name][n] for name in ("position", "width", "start", "shrink", "period")]
            self.log(0, ("grant", thing, Grant(*law)))
        self.state.grants(message, self.now)

    def log(self, at: int, what: Any) -> None:
        self.events.append((at, len(self.events), what))

    def drain(self) -> None:
        while (message := self.state.next_message(self.now)) is not None:
            if message["type"] != "batch":
                continue
            self.state.outbox.acknowledge(message["number"])
            message = json.loads(json.dumps(message, allow_nan=False))
            rows = message["rows"]
            rides = rows.get("curve") or [None] * len(rows["key"])
            assert rows["at"] == sorted(rows["at"])
            for at, *row in zip(rows["at"], rows["key"], rows["values"], rides, strict=True):
                assert at >= self.last_row, "rows are carried out in the order of their times"
                self.last_row = at
                self.log(at, ("row", row))
            narrowed = message.get("narrowed", {"position": [], "at": []})
            for position, at in zip(narrowed["position"], narrowed["at"], strict=True):
                self.log(at, ("narrowed", position))

    def check(self) -> int:
        """At every time at which anything happened or could have, values are in believed bounds."""
        mirror = Mirror(2)
        values: dict[int, list[float]] = {}
        checks = 0
        times = {at for at, _, _ in self.events if at} | {at for at, _, _ in self.truth}
        last = max(times)
        times |= set(range(NOW // SECOND * SECOND, last, SECOND)) | {t - 1 for t in times}
        events, truth = sorted(self.events, key=lambda e: e[:2]), list(self.truth)
        for time in sorted(times):
            while truth and truth[0][0] <= time:
                _, key, row = truth.pop(0)
                values[key] = row
            while events and events[0][0] <= time:
                _, _, (kind, *what) = events.pop(0)
                if kind == "grant":
                    mirror.granted(*what)
                elif kind == "narrowed":
                    mirror.narrowed(*what)
                else:
                    mirror.row(*what[0], time)
            for key, row in values.items():
                for thing, value in enumerate(row, 2 * key):
                    width = mirror.width(thing, time)
                    if math.isfinite(width):
                        checks += 1
                        assert mirror.holds(thing, value, width, time), (thing, time)
        return checks


@pytest.mark.parametrize("seed", range(20))
def test_an_agents_log_holds_the_promise_at_every_time(seed: int) -> None:
    told = Told(seed)
    told.run(250)
    assert told.check() > 500


# --- the law of widths


def test_widths_are_those_of_exact_arithmetic_and_the_same_one_by_one() -> None:
    rng = np.random.default_rng(5)
    width, shrink = rng.lognormal(0, 5, 500), rng.choice([0.0, 0.01, 0.37, 0.999], 500)
    start, period = rng.integers(0, 10**9, 500), rng.integers(1, 10**6, 500)
    width[:20] = np.inf
    for now in (0, 10**8, 10**9, 10**12):
        found = width_at(width, start, shrink, period, now)
        for n in range(500):
            law = width[n].item(), start[n].item(), shrink[n].item(), period[n].item()
            assert one_width_at(*law, now) == found[n]
            epochs = max(0, now // law[3] - law[1] // law[3])
            if math.isfinite(law[0]) and epochs < 500:
                exact = Fraction(law[0]) * (1 - Fraction(law[2])) ** epochs
                assert found[n] == pytest.approx(float(exact), rel=1e-12)
    assert (width_at(width, start, shrink, period, 10**15)[:20] == np.inf).all(), "not even after an age"
    each = rng.integers(0, 10**9, 500)
    one_by_one = [width_at(width, start, shrink, period, t)[n] for n, t in enumerate(each.tolist())]
    np.testing.assert_array_equal(width_at(width, start, shrink, period, each), one_by_one)


# --- what is watched


def granted(filters: Filters, width: Any, now: int, **more: Any) -> None:
    count = filters.size * filters.columns
    every, zero = np.arange(count), np.zeros(count, np.int64)
    widths = np.broadcast_to(np.asarray(width, float), count).copy()
    shrink = np.full(count, more.get("shrink", 0.0))
    key, column = every // filters.columns, every % filters.columns
    filters.grant(Grants(key, column, widths, zero + now, shrink, zero + more.get("period", SECOND)), now)


def fed(values: Any, width: Any, *, one_by_one: bool = False, **options: Any) -> tuple[Filters, list[Any]]:
    """Filters that have seen values by second and key, and what was sent: the second, key and rider."""
    filters = Filters(1, **options)
    filters.add(values.shape[1])
    granted(filters, width, 0)
    every = np.arange(values.shape[1])
    sent: list[Any] = []
    for second, row in enumerate(values):
        now = second * SECOND
        keys = filters.review(now)
        sent += [(second, *pair) for pair in zip(keys.tolist(), filters.response(keys), strict=True)]
        if one_by_one:
            keys = np.array([k for k in every.tolist() if filters.offer_one(k, [row[k].item()], now)], int)
        else:
            keys = filters.offer(every, row[:, None], now)
        sent += [(second, *pair) for pair in zip(keys.tolist(), filters.response(keys), strict=True)]
    return filters, sent


def brute_force(values: list[float], width: float) -> int:
    """What a filter of the paper sends after its first value."""
    centre, count = values[0], 0
    for value in values:
        if abs(value - centre) > width / 2:
            centre, count = value, count + 1
    return count


@pytest.mark.parametrize("one_by_one", [False, True])
def test_ladders_count_what_filters_of_their_widths_would_send(
    one_by_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "AHEAD", 1e9)
    rng = np.random.default_rng(1)
    steps = rng.integers(-8, 9, (400, 12)).astype(float)
    # some stand, some leap far, and some are far from 0: all of it whole, so that nothing is rounded
    steps[:, 3] = 0
    steps[:, 4] *= rng.random(400) < 0.05
    steps[:, 5:7] *= 100_000
    # and some climb, so that bases follow while wide rungs stay where they are
    steps[:, 8:10] += 8
    values = np.cumsum(steps, axis=0)
    values[:, 7:] += 2.0**40
    widths = rng.choice([4.0, 10.0, 16.0, 64.0], 12)
    widths[8:10] = 4.0
    # what was counted is not to fade: the period is an age
    filters, _ = fed(values, widths, one_by_one=one_by_one, period=1e12)
    filters.since[:] = 10**18
    for key, curves in enumerate(filters.curves(np.arange(12))):
        if key == 3:
            assert curves == [[curves[0][0], 399.0, *[0.0] * 11]]
            continue
        [[lowest, seconds, *rates]] = curves
        assert seconds == 399.0
        ladder = [0.0, *(2.0 ** (lowest + rung) for rung in range(10))]
        assert ladder[5] <= widths[key] < ladder[6], "four rungs are below the width in use"
        counts = [brute_force(values[:, key].tolist(), width) for width in ladder]
        assert [round(rate * seconds) for rate in rates] == counts


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("width", [8.0, 32.0])
def test_ladders_that_follow_a_width_keep_what_they_have_counted(
    width: float, one_by_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "AHEAD", 1e9)
    values = np.cumsum(np.random.default_rng(9).integers(-8, 9, 400).astype(float))
    filters = Filters(1, period=1e12)
    filters.add(1)
    granted(filters, 16.0, 0)
    for second, value in enumerate(values.tolist()):
        if second == 200:
            granted(filters, width, second * SECOND)
            filters.review(second * SECOND)
        if one_by_one:
            filters.offer_one(0, [value], second * SECOND)
        else:
            filters.offer(np.array([0]), np.array([[value]]), second * SECOND)
    filters.since[:] = 10**18
    [[[lowest, seconds, *rates]]] = filters.curves(np.array([0]))  # type: ignore[misc]
    assert lowest == math.log2(width) - 4
    ladder = [0.0, *(2.0 ** (lowest + rung) for rung in range(10))]
    counts = [brute_force(values.tolist(), w) for w in ladder]
    new = 1 if width < 16 else 10
    found = [round(rate * seconds) for rate in rates]
    assert [c for n, c in enumerate(found) if n != new] == [c for n, c in enumerate(counts) if n != new]


@pytest.mark.parametrize("seed", range(4))
def test_one_by_one_is_as_all_at_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shocks = rng.normal(0, 1, (600, 9)) * [1, 1, 1, 30, 1e-3, 1, 1, 1, 1e3]
    values = np.cumsum(shocks, axis=0)
    values[:, 1] = shocks[:, 1]
    values[:, 2] += 0.8 * np.arange(600)
    values[100:200, 6] = np.nan
    widths = [3, 3, 3, 3, 3, 0, 3, np.inf, 3]
    _, sent = fed(values, widths, period=20.0)
    _, sent_alone = fed(values, widths, one_by_one=True, period=20.0)
    assert [s[:2] for s in sent] == [s[:2] for s in sent_alone]
    for (*_, one), (*_, other) in zip(sent, sent_alone, strict=True):
        assert (one or {}).keys() == (other or {}).keys()
        for name in one or {}:
            np.testing.assert_allclose(one[name], other[name], rtol=2e-3, atol=1e-6)
    assert {name for *_, rider in sent for name in rider or {}} == {"c", "s", "r"}


def walks(seed: int, count: int = 40, steps: int = 3_000) -> Any:
    return np.cumsum(np.random.default_rng(seed).normal(0, 1, (steps, count)), axis=0)


def test_the_way_to_follow_is_the_one_that_sends_least() -> None:
    shocks = np.random.default_rng(2).normal(0, 1, (3_000, 40))
    level = shocks.copy()
    for second in range(1, len(level)):
        level[second] += 0.5 * level[second - 1]
    ramp = 0.7 * np.arange(3_000)[:, None] + shocks
    for values, width, expected in (
        (walks(3), 10.0, following.VALUE),
        (level, 3.0, following.LEVEL),
        (ramp, 8.0, following.TREND),
    ):
        filters, sent = fed(values, width)
        assert filters._tracks is not None
        ways = filters._tracks._following.way[: values.shape[1]]
        assert (ways == expected).mean() > 0.85
        late = [rider or {} for second, _, rider in sent if second > 1_000]
        plain, _ = fed(values, width, follow=False)
        if expected == following.LEVEL:
            assert np.mean(["c" in rider for rider in late]) > 0.9
        elif expected == following.TREND:
            slopes = [rider["s"][0] for rider in late if "s" in rider]
            assert np.median(slopes) == pytest.approx(0.7, abs=0.15)
        paper = sum(brute_force(column.tolist(), width) for column in values.T)
        # what is tried is paid for, by a little where the paper's way is the best
        assert len(sent) <= paper * (1.05 if expected == following.VALUE else 0.9)
        assert plain.curves(np.arange(2)) == [None, None]


def test_what_climbs_between_two_steps_of_a_trend_is_not_followed_by_one() -> None:
    filters = Filters(1)
    filters.add(1)
    granted(filters, 0.5, 0)
    for value in range(500):
        assert filters.offer_one(0, [float(value)], 10 * value)
    assert filters.slope[0] == 0, "its bound would stand still while it climbs, and leap when it has stopped"
    assert not len(filters.review(SECOND))


def test_curves_are_told_once_a_period_and_can_be_written() -> None:
    _, sent = fed(walks(4, 3, 500), 2.0, period=10.0)
    for key in range(3):
        told = [second for second, k, rider in sent if k == key and "r" in (rider or {})]
        assert len(told) > 20
        assert min(np.diff(told)) >= 10
    riders = [rider for *_, rider in sent]
    assert json.loads(json.dumps(riders, allow_nan=False)) == riders
    [[lowest, seconds, *rates]] = [rider["r"] for rider in riders if rider and "r" in rider][-1]
    assert type(lowest) is int
    assert len(rates) == 11
    assert all(len(f"{rate!r}") <= 8 for rate in rates), "four digits are enough"
    assert seconds > 10


def test_bounds_hold_for_numbers_as_large_as_they_come() -> None:
    rng = np.random.default_rng(6)
    filters = Filters(1)
    filters.add(4)
    granted(filters, [1e308, 1e-300, 1.0, 0.0], 0)
    values = np.array([0.0, 0.0, 1e300, -5e-324])
    sizes = [1.7e308, 1e-290, 1.6e308, 1e-320]
    for second in range(300):
        now = second * SECOND
        values = rng.uniform(-1, 1, 4) * sizes if rng.random() < 0.7 else values
        filters.review(now)
        if second % 2:
            filters.offer(np.arange(4), values[:, None], now)
        else:
            for key in range(4):
                filters.offer_one(key, [values[key].item()], now)
        json.dumps(filters.response(np.arange(4)), allow_nan=False)
        steps = now // following.TREND_STEP - filters.since // following.TREND_STEP
        with np.errstate(over="ignore"):
            assert (np.abs(values - (filters.centre + filters.slope * steps)) <= filters.width / 2).all()


def test_keys_that_come_one_by_one_are_as_those_that_come_together() -> None:
    one, many = Filters(2), Filters(2)
    for _ in range(100):
        one.add(1)
    many.add(100)
    for filters in (one, many):
        assert filters.size == 100
        assert len(filters.value) == 200
        assert np.isinf(filters.width).all()
        assert np.isnan(filters.centre).all()
        granted(filters, 1.0, NOW)
        assert len(filters.offer(np.arange(100), np.ones((100, 2)), NOW)) == 100
        assert not len(filters.review(NOW + 1))


def test_what_is_narrower_in_another_ones_eyes_is_acknowledged() -> None:
    """What is granted may be narrower than what an agent has not begun to use, or no longer has."""
    filters = Filters(1)
    filters.add(1)
    zero, none = np.zeros(1, np.int64), np.zeros(1)

    def grant(width: float, start: int, now: int, shrink: float = 0.0) -> bool:
        law = (np.array([width]), np.array([start]), none + shrink, zero + 10 * SECOND)
        return bool(filters.grant(Grants(zero, zero, *law), now)[0])

    assert grant(3.0, 0, 0)
    assert not grant(10.0, 5 * SECOND, 0), "it waits for its start"
    assert grant(4.0, 6 * SECOND, 1), "and is replaced by what is narrower"
    assert filters.widths(zero, 6 * SECOND - 1)[0] == 3.0
    filters.review(6 * SECOND)
    assert filters.widths(zero, 6 * SECOND)[0] == 4.0
    assert not grant(8.0, 8 * SECOND, 8 * SECOND, shrink=0.5)
    assert grant(6.0, 9 * SECOND, 11 * SECOND), "of 8 there are 4 left when it is heard of"
    assert filters.widths(zero, 11 * SECOND)[0] == 6.0


def test_of_an_object_that_is_named_twice_the_last_grant_counts() -> None:
    filters = Filters(1)
    filters.add(1)
    zero = np.zeros(2, np.int64)
    law = (np.array([50.0, 4.0]), np.array([9, 0]) + NOW, np.zeros(2), zero + SECOND)
    granted(filters, 5.0, NOW)
    assert filters.grant(Grants(zero, zero, *law), NOW).tolist() == [False, True]
    filters.review(NOW + 20)
    assert filters.widths(np.array([0]), NOW + 20)[0] == 4.0
