"""Scenarios for the world: what is asked, what happens, and what must hold of every answer then.

A scenario is small and printed whole when something is wrong, so that it can be played again:
`play(Scenario(...))`.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from precision_world import QUERIES, SECOND, Asked, Key, Row, Said, World, _both, _if, mean, total

WINDOW = 6 * SECOND
SLID = {
    "mean": Asked(
        "SELECT avg_over(SUM(a) * 2, '6 seconds') AS s FROM LATEST(net)",
        {"s": lambda rows: _if(total(rows, lambda r: r["a"]), lambda v: v * 2)},
    ),
    "mean_racks": Asked(
        "SELECT rack, avg_over(AVG(b), '6 seconds') AS m FROM LATEST(net) GROUP BY rack",
        {"m": lambda rows: mean(rows, lambda r: r["b"])},
        grouped=True,
    ),
    "mean_apart": Asked(
        "SELECT avg_over(SUM(a) - 3 * SUM(b), '6 seconds') AS d FROM LATEST(net)",
        {
            "d": lambda rows: _both(
                total(rows, lambda r: r["a"]), total(rows, lambda r: r["b"]), lambda x, y: x - 3 * y
            )
        },
    ),
}
"""Means over a sliding time: what is true at each moment of it."""
NAMES = (*QUERIES, *SLID)
KINDS = ("walks", "drifts", "jumps", "swings", "stays", "flickers")
ACTS = ("cut", "kill", "hub", "driver", "key", "take", "query", "alter", "gone", "forget")
WIDTHS = (0.5, 5.0, 20.0, 100.0)


@dataclass(frozen=True)
class Act:
    """Something that happens, so many seconds after what came before."""

    after: float
    kind: str
    which: int = 0
    """Which site, key or query it happens to."""
    size: float = 1.0
    """For how many seconds, or how wide."""
    flag: bool = False
    """Of a query: whether at once; of a hub: whether in good order."""


@dataclass(frozen=True)
class Scenario:
    """A world, and what happens in it."""

    seed: int
    allocation: str = "curves"
    sums: str = "measured"
    rate: float | None = None
    slow_disk: bool = False
    rough: bool = False
    keys: tuple[str, ...] = ("walks", "walks")
    """The kinds of keys, at the two sites in turn."""
    queries: tuple[str, ...] = ("plain",)
    width: float = 20.0
    acts: tuple[Act, ...] = ()


@dataclass(frozen=True)
class Wrong:
    """An answer that does not hold."""

    why: str
    at: float
    said: Said
    truth: float | None


def play(scenario: Scenario) -> World:
    """The world after all that happens in a scenario, and a quiet time."""
    how = {"allocation": scenario.allocation, "sums": scenario.sums, "rate": scenario.rate}
    world = World(scenario.seed, sites=2, slow_disk=scenario.slow_disk, **how)
    for place, kind in enumerate(scenario.keys):
        world.add_key(world.sites[place % 2], kind)
    for name in scenario.queries:
        world.ask(name, _width(scenario, scenario.width))
    world.start_batches()
    world.run(6)
    world.rough = scenario.rough
    for act in scenario.acts:
        world.run(act.after)
        happen(world, scenario, act)
    world.rough = False
    world.quiet()
    world.run(16)
    return world


def _width(scenario: Scenario, width: float) -> float:
    """With a largest rate, what padding takes must leave something."""
    return width if scenario.rate is None else 200 * scenario.rate + width


def happen(world: World, scenario: Scenario, act: Act) -> None:
    """Carry out an act, if it makes sense where it comes."""
    site = world.sites[act.which % len(world.sites)]
    keys = list(world.watched)
    key = keys[act.which % len(keys)]
    name = NAMES[act.which % len(NAMES)]
    asked = list(world.catalog.queries)
    width = _width(scenario, WIDTHS[int(act.size * 10) % len(WIDTHS)])
    if act.kind == "cut":
        world.cut(site, act.size)
    elif act.kind == "kill":
        world.kill(site, act.size)
    elif act.kind == "hub":
        world.restart_hub(act.size, clean=act.flag, torn=act.size % 1)
    elif act.kind == "driver":
        world.restart_driver()
    elif act.kind == "key" and len(keys) < 10:
        world.add_key(site, KINDS[act.which % len(KINDS)])
    elif act.kind == "take":
        world.take_over(key, world.sites[int(act.size) % len(world.sites)])
    elif act.kind == "query" and name not in asked:
        world.ask(name, width)
    elif act.kind == "query" and len(asked) > 1:
        world.sql(f"DROP QUERY {name}")
    elif act.kind == "alter":
        at_once = " IMMEDIATE" if act.flag else ""
        world.sql(f"ALTER QUERY {asked[act.which % len(asked)]} WITH PRECISION {width:g}{at_once}")
    elif act.kind == "gone" and scenario.rate is None:
        world.come_and_go(key)
    elif act.kind == "forget" and site.name in world.hub.links:
        # of keys that are there, and only their process is not, it would be untrue
        world.forget(site)


# what must hold


class Past:
    """What happened to one key, to be asked for often."""

    def __init__(self, world: World, key: Key) -> None:
        noted = self.noted = world.watched[key]
        self.key: Row = dict(zip(("host", "rack", "k"), key, strict=True))
        self.told = sorted(t.at for t in noted.told)
        self.changes = sorted({*noted.times, *(t for t, _ in noted.gone), *self.told})

    def row(self, at: int) -> Row | None:
        if not self.told or self.told[0] > at:
            return None
        since, gone = next(((t, g) for t, g in reversed(self.noted.gone) if t <= at), (0, False))
        first = bisect_left(self.told, since)
        if gone or first == len(self.told) or self.told[first] > at:
            return None
        values = (None if math.isnan(v) else v for v in self.noted.value(at))
        return self.key | dict(zip("ab", values, strict=True))


class Judge:
    """All answers of a world that has ended, and what was true."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.past = {key: Past(world, key) for key in world.watched}
        self._released = [released for released, _, _ in world.turns]

    def wrong(self) -> list[Wrong]:
        """Answers that did not hold when they were given or while they stood, without excuse."""
        answers: dict[tuple[Any, ...], list[Said]] = {}
        for said in self.world.said:
            answers.setdefault((said.query, said.column, said.keys), []).append(said)
        return [wrong for some in answers.values() for wrong in self._judge(some)]

    def _judge(self, answers: list[Said]) -> Iterator[Wrong]:
        asked = QUERIES[answers[0].query]
        group = answers[0].keys[0] if asked.grouped else None
        past = [p for p in self.past.values() if asked.chosen(p.key) and group in (None, p.key["rack"])]
        slid = answers[0].query in SLID
        changes = sorted({t for p in past for t in p.changes})
        for said, following in zip(answers, [*answers[1:], None], strict=True):
            truth = self._mean(said, past, changes) if slid else self._true(said, past, said.at)
            if slid and not said.met and self._part(said):
                # it says of itself that it is of less than the window
                continue
            if why := self._fault(said, truth, slid=slid):
                span = [t for t in changes if said.at - WINDOW <= t < said.at] if slid else []
                # what came late counts from when it came, so that all of a window must have been in time
                moments = [said, *(replace(said, at=t, end=self._end(t)) for t in span)]
                if not any(map(self.world.excused, moments)) and not (slid and self._unnoticed(said)):
                    yield Wrong(why, said.at, said, truth)
            if not slid and self.world.rate is None:
                yield from self._standing(said, following, past, changes)

    def _fault(self, said: Said, truth: float | None, *, slid: bool) -> str:
        if said.low is None or said.high is None:
            return "met, with a value that is not told" if said.met and truth is not None else ""
        if truth is None:
            return "a value where there is none"
        # what a mean was made of here was added up in another order
        if said.low > said.high:
            return "upside down"
        slack = 1e-9 * (1 + abs(truth)) if slid else 0.0
        if not said.low - slack <= truth <= said.high + slack:
            return "not within"
        narrow = said.high - said.low <= said.width
        if said.met:
            return "" if narrow else "met, and too wide"
        return "not met, and narrow" if narrow and not slid and not self.world.awaits(said) else ""

    def _true(self, said: Said, past: list[Past], at: int) -> float | None:
        rows = [row for p in past if (row := p.row(at)) is not None]
        return QUERIES[said.query].truth[said.column](rows)

    def _mean(self, said: Said, past: list[Past], changes: list[int]) -> float | None:
        """Of what was true at each moment of a window, where something was."""
        first = bisect_right(changes, said.at - WINDOW)
        last = bisect_left(changes, said.at)
        times = [said.at - WINDOW, *changes[first:last], said.at]
        parts = [(end - begin, self._true(said, past, begin)) for begin, end in pairwise(times)]
        there = [(length, value) for length, value in parts if value is not None]
        whole = sum(length for length, _ in there)
        return math.fsum(length * value for length, value in there) / whole if whole else None

    def _end(self, at: int) -> int:
        """The end of the log when a time was released."""
        return self.world.turns[bisect_left(self._released, at)][1]

    def _unnoticed(self, said: Said) -> bool:
        """Whether an agent died within a window and this was not in the log: it owed means, of gone keys too."""
        known = {e["incarnation"] for e in self.world.hub.read(1, said.end) if e["kind"] == "lost"}
        return any(
            said.at - WINDOW <= at <= said.at and incarnation not in known
            for at, incarnation in self.world.deaths
        )

    def _part(self, said: Said) -> bool:
        """Whether a query was not there yet when a window began."""
        last = next(i for i, (r, end, _) in enumerate(self.world.turns) if end == said.end and r >= said.at)
        asked = [said.query in queries for _, _, queries in self.world.turns[: last + 1]]
        first = last + 1 - (asked[::-1].index(False) if False in asked else len(asked))
        return said.at - WINDOW < self._released[first]

    def _standing(
        self, said: Said, following: Said | None, past: list[Past], changes: list[int]
    ) -> Iterator[Wrong]:
        """Until the next answer of its group an answer stands, as long as the query is there."""
        turn = next(i for i, (r, end, _) in enumerate(self.world.turns) if end == said.end and r >= said.at)
        until = self._released[-1] + 1 if following is None else following.at
        for at in changes[bisect_right(changes, said.at) : bisect_left(changes, until)]:
            last = bisect_left(self._released, at)
            if any(said.query not in queries for _, _, queries in self.world.turns[turn : last + 1]):
                return
            truth = self._true(said, past, at)
            why = self._fault(said, truth, slid=False)
            if why and not self.world.excused(replace(said, at=at, end=self._end(at))):
                yield Wrong(f"{why}, while it stands", at, said, truth)
                return

    def unmet(self) -> list[Said]:
        """Of the queries that there are in the end, the last answers that are not met."""
        last = {(s.query, s.column, s.keys): s for s in self.world.said}
        return [s for s in last.values() if s.query in self.world.catalog.queries and not s.met]

    def unanswered(self) -> set[str]:
        """Queries that have a value in the end, and have said nothing."""
        silent = set(self.world.catalog.queries) - {s.query for s in self.world.said}
        at = self._released[-1]
        rows = [row for p in self.past.values() if (row := p.row(at)) is not None]
        return {
            name
            for name in silent
            if any(of([r for r in rows if QUERIES[name].chosen(r)]) for of in QUERIES[name].truth.values())
        }
