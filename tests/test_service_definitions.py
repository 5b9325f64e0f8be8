"""Whose answers are whose, while queries are dropped and created as others under the same names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.planners.decision import Decision
from slackwater.runtime.clocks import Clocks
from slackwater.runtime.status import Status
from slackwater.service.definitions import Definitions
from slackwater.service.live import Live
from slackwater.service.watched import Asked
from test_service_shown import BEGAN, answers

STREAM = "CREATE STREAM p (ts TIMESTAMP, port INT, size INT) USING scripted TIMESTAMP BY ts;\n"
VIEW = "CREATE VIEW v AS SELECT {}(size) AS s FROM p GROUP BY window(ts, '1 second');\n"
READER = "CREATE QUERY {} AS SELECT MAX(s) AS n FROM v GROUP BY window(ts, '1 second');\n"
QUERY = "CREATE QUERY {} AS SELECT {}(size) AS n FROM p GROUP BY window(ts, '1 second');\n"


def catalog(*statements: str) -> Catalog:
    return Catalog.from_sql(STREAM + "".join(statements), Functions())


def sums(*names: str) -> Catalog:
    return catalog(*(QUERY.format(name, "SUM") for name in names))


def test_a_query_is_another_one_where_it_or_what_it_reads_is() -> None:
    known = Definitions()
    assert known.take(catalog(VIEW.format("SUM"), READER.format("a"), READER.format("b"))) == []
    assert known.take(catalog(VIEW.format("MIN"), READER.format("a"), READER.format("c"))) == ["a", "b"]
    altered = catalog(VIEW.format("MIN"), READER.format("a"), READER.format("c"), "ALTER QUERY a WITH EXACT;")
    assert known.take(altered) == [], "its contract does not make it another"
    assert known.take(altered) == []


def test_answers_of_queries_that_are_others_by_now_are_left_out() -> None:
    known = Definitions()
    before, after = sums("a", "b", "c"), catalog(QUERY.format("a", "MIN"), QUERY.format("b", "SUM"))
    known.take(after)
    both = answers([1, 2, 3, 4], query=pa.DictionaryArray.from_arrays([0, 1, 0, 1], ["a", "b"]))
    found = list(known.own(before, [answers([5], query="a"), both, answers([6], query="b")]))
    assert [(b.query, b.value.to_pylist()) for b in found] == [("b", [2, 4]), ("b", [6])]
    known.take(before)
    assert list(known.own(before, [both])) == [both]


class Versions:
    """The versions of a query set that a test proposes."""

    def __init__(self) -> None:
        self.catalogs: list[Catalog] = []
        self.then: list[Callable[[], None]] = []
        """What happens right after the newest version was asked for."""

    @property
    def latest(self) -> int:
        found, then, self.then = len(self.catalogs), self.then, []
        for happens in then:
            happens()
        return found

    def plan(self, number: int) -> Any:
        return SimpleNamespace(catalog=self.catalogs[number - 1])


class Run:
    """As much of a session and its engine as frames are made of, in the hands of a test."""

    def __init__(self, first: Catalog, record: Path | None = None) -> None:
        self.versions = Versions()
        self.version, self.turns = 0, 0
        self.observers: list[Any] = []
        self.decided: dict[str, Decision] = {}
        self.bounds: dict[str, Any] = {}
        self.board = SimpleNamespace(listeners=[])
        self.load = SimpleNamespace(ruler=None)
        self.alerts = SimpleNamespace(status=lambda: (), run="r")
        self.error = None
        self.session: Any = SimpleNamespace(
            clocks=Clocks(lambda: 0.0, lambda: BEGAN),
            watchers=[],
            catalog=first,
            status=lambda: Status(at=BEGAN),
        )
        # frames are made when a test says so
        self.live = Live(self.session, record=record, every=3600.0)
        self.session.watchers[0](self)
        self.change(first)
        if record is None:
            self.live.advance()
        else:
            self.live.start()

    def change(self, to: Catalog) -> None:
        self.session.catalog = to
        self.versions.catalogs.append(to)

    def turn(self, version: int, *batches: Any) -> None:
        self.version, self.turns = version, self.turns + 1
        self.decided["p"] = Decision("p", self.turns, "batch", version, 0, batch=self.turns)
        for batch in batches:
            for listen in self.board.listeners:
                listen(batch)
        for observe in self.observers:
            observe(self)

    def values(self, query: str) -> list[Any]:
        return [a.value for a in self.live.keeper.answers(query, Asked())]

    def points(self, query: str) -> list[Any]:
        return [p.value for q in self.live.frame().queries if q.name == query for p in q.points]


@pytest.fixture
def run() -> Run:
    return Run(sums("q", "other"))


def test_a_query_created_anew_has_its_own_answers_and_none_of_the_old_ones(run: Run) -> None:
    run.turn(1, answers([100], 1), answers([1], 1, "other"))
    run.live.advance()
    assert (run.values("q"), run.points("q")) == ([100], [100])
    # what the old one had to say, the change and what the new one says come between two frames
    run.turn(1, answers([101], 2))
    run.change(catalog(QUERY.format("q", "MIN"), QUERY.format("other", "SUM")))
    run.turn(2, answers([7], 3))
    run.live.advance()
    assert (run.values("q"), run.points("q")) == ([7], [7])
    assert run.values("other") == run.points("other") == [1]


def test_a_turn_that_ends_after_its_query_was_replaced_is_not_the_new_ones(run: Run) -> None:
    run.change(sums("other"))
    run.live.advance()
    run.change(catalog(QUERY.format("q", "MIN"), QUERY.format("other", "SUM")))
    run.live.advance()
    run.turn(1, answers([100], 1), answers([1], 1, "other"))
    run.live.advance()
    assert run.values("q") == run.points("q") == []
    assert run.values("other") == run.points("other") == [1], "this one has stayed"
    run.change(sums("other"))
    run.turn(3, answers([7], 2))
    run.live.advance()
    assert run.values("q") == run.points("q") == []


def test_answers_of_a_query_that_comes_while_a_frame_is_made_are_kept(run: Run) -> None:
    def comes() -> None:
        run.change(sums("q", "other", "third"))
        run.turn(2, answers([7], 3, "third"))

    run.versions.then.append(comes)
    run.live.advance()
    run.live.advance()
    assert run.values("third") == run.points("third") == [7]


def test_the_points_of_a_frame_that_could_not_be_made_are_in_the_next_one(run: Run) -> None:
    def broken() -> Status:
        raise ValueError("no status")

    status, run.session.status = run.session.status, broken
    run.turn(1, answers([100], 1), answers([1], 1, "other"))
    with pytest.raises(ValueError, match="no status"):
        run.live.advance()
    # meanwhile one of them becomes another one
    run.change(catalog(QUERY.format("q", "MIN"), QUERY.format("other", "SUM")))
    run.turn(2, answers([7], 2))
    with pytest.raises(ValueError, match="no status"):
        run.live.advance()
    run.session.status = status
    run.live.advance()
    assert run.values("q") == run.points("q") == [7]
    assert run.values("other") == run.points("other") == [1]


def test_no_answer_of_many_is_left_out_of_a_frame(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackwater.service.live.UNFRAMED", 2)
    run.turn(1, *(answers([second], second) for second in range(1, 6)))
    run.live.advance()
    assert run.points("q") == [1, 2, 3, 4, 5]


def test_version_and_queries_of_a_frame_belong_together(run: Run) -> None:
    # the session learns last of a change
    run.versions.catalogs.append(sums("q", "other", "third"))
    run.live.advance()
    frame = run.live.frame()
    assert (frame.version, [q.name for q in frame.queries]) == (2, ["q", "other", "third"])
