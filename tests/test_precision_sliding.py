"""Items over a sliding time under PRECISION: what they say is what the intervals beside them come to."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from precision_world import BEGIN, QUERIES, SECOND, STREAM, Asked, World
from slackwater.edge.means import step_of
from slackwater.errors import LanguageError
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.model import Move
from slackwater.runtime.bounds.sliding import Sliding

SIZE = 6 * SECOND
SLID = {
    "slid": Asked("SELECT avg_over(SUM(a), '6 seconds') AS s FROM LATEST(net)", {}),
    "slid_racks": Asked(
        "SELECT rack, avg_over(AVG(a) * 8 + 1, '6 seconds') AS m FROM LATEST(net) GROUP BY rack",
        {},
        grouped=True,
    ),
    "slid_ends": Asked(
        "SELECT rack, max_over(MAX(2 * b), '6 seconds') AS hi, min_over(MIN(a), '6 seconds') AS lo "
        "FROM LATEST(net) GROUP BY rack",
        {},
        grouped=True,
    ),
}
PAIRS = {("slid", "s"): "plain", ("slid_racks", "m"): "racks", ("slid_ends", "hi"): "ends"}
PAIRS[("slid_ends", "lo")] = "ends"
DECLARED = STREAM.format(allocation="curves", period=10, tolerance=1, rate="", sums="measured")


@pytest.fixture(autouse=True)
def queries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, asked in SLID.items():
        monkeypatch.setitem(QUERIES, name, asked)


# the oracle: every piece of a window, one by one


def pieces(world: World, query: str, column: str, group: Any, first: int, last: int) -> list[Any]:
    """What a query said while a window lasted: seconds, low and high (None: nobody vouches for it)."""
    said = [s for s in world.said if (s.query, s.column, s.keys) == (query, column, group)]
    times = sorted({first, last, *(s.at for s in said if first < s.at < last)})
    found = []
    # what comes at its very end belongs to it, for no time
    for begin, end in pairwise([*times, last]):
        standing = [s for s in said if s.at <= begin]
        if standing:
            found.append((end - begin, standing[-1].low, standing[-1].high, standing[-1].met))
    return found


def expected(world: World, answer: Any) -> tuple[float, float] | None:
    """The ends of a window by plain sums; None: there are none."""
    base = PAIRS[(answer.query, answer.column)]
    parts = pieces(world, base, answer.column, answer.keys, answer.at - SIZE, answer.at)
    # what has no value says that this is met
    parts = [p for p in parts if p[1] is not None or not p[3]]
    low = [-math.inf if p[1] is None else p[1] for p in parts]
    high = [math.inf if p[2] is None else p[2] for p in parts]
    if not parts:
        return None
    if answer.column in ("hi", "lo"):
        pick = max if answer.column == "hi" else min
        ends = pick(low), pick(high)
    else:
        total = sum(p[0] for p in parts)
        ends = tuple(
            math.fsum(p[0] * e for p, e in zip(parts, side, strict=True)) / total for side in (low, high)
        )
    return ends if all(map(math.isfinite, ends)) else None


def judged(world: World) -> int:
    """How many answers over a window have been found to be what they should be."""
    count = 0
    for said in world.said:
        if said.query not in SLID or said.at < BEGIN + 2 * SIZE:
            continue
        ends = expected(world, said)
        if ends is None:
            assert said.low is None, said
            continue
        assert said.low is not None, (said, ends)
        size = 1e-9 * (1 + max(map(abs, ends)))
        # to hold the truth it may be wider by what sums may be off, and by no more
        assert ends[0] - size <= said.low <= ends[0] + 1e-12 * size
        assert ends[1] - 1e-12 * size <= said.high <= ends[1] + size
        assert not said.met or said.high - said.low <= said.width
        count += 1
    return count


def peopled(seed: int, **how: Any) -> World:
    world = World(seed, **how)
    for site in world.sites:
        for _ in range(3):
            world.add_key(site)
    for name in ("plain", "racks", "ends", *SLID):
        world.ask(name, 25)
    world.start_batches()
    return world


def test_over_a_window_answers_are_what_intervals_come_to() -> None:
    world = peopled(3)
    world.run(40)
    assert judged(world) > 80
    late = [s for s in world.said if s.query in SLID and s.at > BEGIN + 25 * SECOND]
    assert all(s.met for s in late)
    assert all(s.at % step_of(SIZE) == 0 for s in late)


@pytest.mark.parametrize("seed", [4, 9])
def test_they_are_in_trouble_too_and_after_the_driver_has_started_again(seed: int) -> None:
    world = peopled(seed)
    world.run(20)
    for site in world.sites:
        world.cut(site, 2.0)
        world.run(4)
        world.restart_driver()
        world.run(7)
    world.run(13)
    assert judged(world) > 100
    # a restart loses nothing of the windows
    late = [s for s in world.said if s.query in SLID and s.at > BEGIN + 60 * SECOND]
    assert late
    assert all(s.met for s in late)


def test_the_mean_of_the_truth_is_in_every_window() -> None:
    world = peopled(5)
    world.run(35)
    checked = 0
    for said in world.said:
        if said.query != "slid" or not said.met:
            continue
        times = sorted(
            {
                said.at - SIZE,
                said.at,
                *(t for w in world.watched.values() for t in w.times if said.at - SIZE < t < said.at),
                *(
                    t.at
                    for w in world.watched.values()
                    for t in w.told[:1]
                    if said.at - SIZE < t.at < said.at
                ),
            }
        )
        base = next(s for s in world.said if s.query == "plain")
        truths = [(end - begin, world.truth(base, begin)) for begin, end in pairwise(times)]
        mean = math.fsum(s * v for s, v in truths if v is not None) / SIZE
        assert said.low <= mean <= said.high
        checked += 1
    assert checked > 20


# bins against plain sums, at random


@pytest.mark.parametrize("extreme", ["avg", "max", "min"])
def test_steps_add_up_to_windows(extreme: Any) -> None:
    rng = np.random.default_rng(7)
    sliding = Sliding(Move(extreme, "a0", size=5 * SECOND))
    at, history = 10 * SECOND, []
    for _ in range(300):
        at += int(rng.integers(1, SECOND))
        for over in sliding.ends(at - 1):
            low, high = _slowly(history, over.at, extreme)
            np.testing.assert_allclose(over.low[0], low, rtol=1e-9)
            np.testing.assert_allclose(over.high[0], high, rtol=1e-9)
            assert over.whole == (over.at - 5 * SECOND >= history[0][0])
            assert not over.low[0] > low
            assert not over.high[0] < high
        low, width = rng.normal(0, 100), rng.exponential(5)
        ends = (math.nan, math.nan) if rng.random() < 0.1 else (low, low + width)
        sliding.take(at, np.array([0]), np.array([ends[0]]), np.array([ends[1]]))
        history.append((at, *ends))


def _slowly(history: list[Any], at: int, extreme: str) -> tuple[float, float]:
    begin, parts = at - 5 * SECOND, []
    for (start, low, high), after in zip(history, [*history[1:], (at, 0, 0)], strict=True):
        seconds = min(after[0], at) - max(start, begin)
        if seconds >= 0 and start <= at and after[0] > begin and not math.isnan(low):
            parts.append((seconds, low, high))
    if extreme == "avg":
        total = sum(p[0] for p in parts)
        if not total:
            return math.nan, math.nan
        return tuple(math.fsum(p[0] * p[i] for p in parts) / total for i in (1, 2))
    pick = max if extreme == "max" else min
    return tuple(pick((p[i] for p in parts), default=math.nan) for i in (1, 2))


# what the language says


def refused(sql: str) -> str:
    with pytest.raises(LanguageError) as caught:
        Catalog.from_sql(DECLARED + f"CREATE QUERY q AS {sql}", Functions())
    return str(caught.value)


def test_what_cannot_be_over_a_sliding_time_is_refused_with_the_reason() -> None:
    mean = "SELECT avg_over(SUM(a), '1 minute') AS s FROM LATEST(net)"
    assert "only PRECISION" in refused(mean)
    assert "only PRECISION" in refused(f"{mean} WITH DRIFT 5 BELIEF 95%")
    twice = "SELECT 2 * avg_over(SUM(a), '1 minute') AS s FROM LATEST(net) WITH PRECISION 5"
    assert "an item of its own" in refused(twice)
    landmark = "SELECT max_since(SUM(a), TIMESTAMP '2026-01-01') AS s FROM LATEST(net) WITH PRECISION 5"
    assert "take max_over" in refused(landmark)
    product = "SELECT avg_over(SUM(a) * SUM(b), '1 minute') AS s FROM LATEST(net) WITH PRECISION 5"
    assert "not linear" in refused(product)
