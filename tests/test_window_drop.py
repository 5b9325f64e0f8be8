"""Windows left out on Spark: every kind of query, beside queries that are sampled or exact, and after kills."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from slackwater import UserAggregate
from slackwater.planners.ruling import FixedRates
from slackwater.runtime.answers import Answer
from slackwater.runtime.governor import Governor
from slackwater.runtime.session import Settings
from slackwater.runtime.testing import (
    Killed,
    ListSink,
    abandon,
    killer,
    run_scripted,
    scripted_session,
    take_turns,
)

SECOND = 1_000_000
ORIGIN = 1_700_000_000 // 3600 * 3600 * SECOND
STREAM = "CREATE STREAM p (ts TIMESTAMP, port INT, size INT, host STRING) USING scripted TIMESTAMP BY ts;"
SPAN = 20
BATCHES = 4
Place = tuple[object, ...]


def batches(rows: int = 600, seed: int = 3) -> list[pa.Table]:
    random = np.random.default_rng(seed)
    made = []
    for number in range(BATCHES):
        times = ORIGIN + number * SPAN * SECOND + np.sort(random.integers(0, SPAN * SECOND, rows))
        made.append(
            pa.table(
                {
                    "ts": pa.array(times, pa.timestamp("us", "UTC")),
                    "port": pa.array(random.choice([80, 443, 53], rows, p=[0.6, 0.3, 0.1]).astype("int32")),
                    "size": pa.array(random.integers(40, 1500, rows).astype("int32")),
                    "host": pa.array(random.choice(["a", "b", "c"], rows)),
                }
            )
        )
    return made


ROWS = batches()
SPANS = [(ORIGIN + n * SPAN * SECOND, ORIGIN + (n + 1) * SPAN * SECOND) for n in range(BATCHES)]


def place(answer: Answer) -> Place:
    return answer.query, answer.column, answer.window_start, answer.window_end, answer.at, answer.keys


def run(spark, queries: str, drops: Mapping[str, float] | None = None, **options) -> dict[Place, Answer]:
    rates = options.pop("rates", {})
    ruler = FixedRates(rates, drops=drops, **options.pop("ruling", {})) if drops is not None else None
    spans = {"p": SPANS} if options.pop("timed", True) else {}
    found = run_scripted(spark, STREAM + queries, {"p": ROWS}, ruler=ruler, spans=spans, **options)
    by_place = {place(a): a for a in found}
    assert len(by_place) == len(found)
    return by_place


def longest_missing(true: Iterable[Answer], found: Mapping[Place, Answer], slide: float) -> int:
    """The most windows in a row, adjacent by the slide, of which nothing was delivered."""
    starts = defaultdict(bool)
    for answer in true:
        starts[answer.window_start] |= place(answer) in found
    longest = length = 0
    last = None
    for start, delivered in sorted(starts.items()):
        near = last is not None and (start - last).total_seconds() <= slide
        length = 0 if delivered else (length + 1 if near or length == 0 else 1)
        longest, last = max(longest, length), start
    return longest


def check(
    exact: Mapping[Place, Answer], found: Mapping[Place, Answer], query: str, slide: float, gap: int
) -> int:
    """That a query's answers are a part of the exact ones; how many windows are missing."""
    true = [a for a in exact.values() if a.query == query]
    got = {p: a for p, a in found.items() if a.query == query}
    for at, answer in got.items():
        # floats are added in another order where panes come in other batches
        assert answer.value == pytest.approx(exact[at].value, rel=1e-12), (answer, exact[at])
        assert answer.rows == exact[at].rows
        assert answer.met
        assert answer.how == "subset"
        assert answer.rate < 1.0
        assert (answer.low, answer.high, answer.confidence) == (answer.value, answer.value, 1.0)
    assert longest_missing(true, got, slide) <= gap
    delivered = {a.window_start for a in got.values()}
    missing = {a.window_start for a in true} - delivered
    # a window is delivered as a whole or not at all
    assert all((a.window_start in delivered) == (place(a) in got) for a in true)
    assert missing, f"nothing of {query} was left out"
    assert delivered, f"nothing of {query} was delivered"
    return len(missing)


KINDS = """
CREATE QUERY plain AS SELECT COUNT(*) AS n, SUM(size) AS bytes, AVG(size) AS mean, MAX(size) AS most
  FROM p WHERE port = 80 GROUP BY window(ts, '1 second') WITH SUBSET GAP 3;
CREATE QUERY sliding AS SELECT STDDEV(size) AS sd, COUNT(*) AS n FROM p
  GROUP BY window(ts, '4 seconds', '1 second') WITH SUBSET GAP 6;
CREATE QUERY hosts AS SELECT host, COUNT(*) AS n FROM p GROUP BY host, window(ts, '2 seconds') WITH SUBSET GAP 2;
CREATE QUERY middle AS SELECT MEDIAN(size) AS m, COUNT(DISTINCT host) AS h FROM p
  GROUP BY window(ts, '2 seconds') WITH SUBSET GAP 2;
CREATE QUERY spread AS SELECT spread(size) AS d FROM p GROUP BY window(ts, '2 seconds') WITH SUBSET GAP 3;
CREATE VIEW tens AS SELECT host, SUM(size) AS bytes FROM p GROUP BY host, window(ts, '3 seconds', '2 seconds');
CREATE QUERY nested AS SELECT MAX(bytes) AS most, COUNT(*) AS n FROM tens WHERE bytes > 2000
  GROUP BY window(ts, '4 seconds') WITH SUBSET GAP 2;
"""
SLIDES = {
    "plain": (1, 3),
    "sliding": (1, 6),
    "hosts": (2, 2),
    "middle": (2, 2),
    "spread": (2, 3),
    "nested": (4, 2),
}
AGGREGATES = {
    "spread": UserAggregate(
        init=list,
        incr=lambda state, value: [*state, value],
        final=lambda state: float(max(state) - min(state)),
        returns="DOUBLE",
    )
}


@pytest.fixture(scope="module")
def exact_kinds(spark) -> dict[Place, Answer]:
    return run(spark, KINDS, aggregates=AGGREGATES)


@pytest.mark.parametrize("driver_rows", [100_000, 1])
def test_every_kind_of_query_delivers_a_part_of_the_exact_answers(spark, exact_kinds, driver_rows: int):
    settings = Settings(driver_rows=driver_rows)
    found = run(spark, KINDS, dict.fromkeys(SLIDES, 0.5), aggregates=AGGREGATES, settings=settings)
    for query, (slide, gap) in SLIDES.items():
        check(exact_kinds, found, query, slide, gap)


def test_windows_over_rows_are_left_out_by_their_numbers(spark):
    queries = """
    CREATE QUERY hundreds AS SELECT COUNT(*) AS n, SUM(size) AS bytes FROM p WHERE port = 80
      GROUP BY tuples(100, 50) WITH SUBSET GAP 2;
    CREATE QUERY spread AS SELECT spread(size) AS d FROM p GROUP BY tuples(50) WITH SUBSET GAP 3;
    CREATE QUERY middle AS SELECT MEDIAN(size) AS m FROM p GROUP BY tuples(40) WITH SUBSET GAP 3;
    CREATE VIEW hosts AS SELECT host, COUNT(*) AS n FROM p GROUP BY host, window(ts, '1 second');
    CREATE QUERY dozens AS SELECT SUM(n) AS n FROM hosts GROUP BY tuples(12) WITH SUBSET GAP 2;
    """
    exact = run(spark, queries, aggregates=AGGREGATES)
    shares = dict.fromkeys(("hundreds", "spread", "middle", "dozens"), 0.5)
    found = run(spark, queries, shares, aggregates=AGGREGATES)
    for query, gap in (("hundreds", 2), ("spread", 3), ("middle", 3), ("dozens", 2)):
        got = {p: a for p, a in found.items() if a.query == query}
        assert all(a.value == exact[p].value and a.rows == exact[p].rows for p, a in got.items()), query
        true = sorted({a.window_start for a in exact.values() if a.query == query})
        delivered = {a.window_start for a in got.values()}
        run_, longest = 0, 0
        for start in true:
            run_ = 0 if start in delivered else run_ + 1
            longest = max(longest, run_)
        assert 0 < len(delivered) < len(true), query
        assert longest <= gap, query


SHARED = """
CREATE QUERY sub AS SELECT COUNT(*) AS n, SUM(size) AS bytes FROM p GROUP BY window(ts, '2 seconds')
  WITH SUBSET GAP 3;
CREATE QUERY drawn AS SELECT COUNT(*) AS n, SUM(size) AS bytes FROM p GROUP BY window(ts, '5 seconds')
  WITH ERROR 5%;
"""


def test_a_sample_never_touches_rows_that_a_kept_window_needs(spark):
    exact = run(spark, SHARED)
    found = run(spark, SHARED, {"sub": 0.6}, rates={"drawn": 0.3})
    check(exact, found, "sub", 2, 3)
    drawn = {p: a for p, a in found.items() if a.query == "drawn"}
    assert drawn.keys() == {p for p, a in exact.items() if a.query == "drawn"}
    for at, answer in drawn.items():
        assert answer.how == "sampled"
        assert answer.rate == pytest.approx(0.3, abs=0.1)
        assert answer.value == pytest.approx(exact[at].value, rel=0.35)
    inside = [a.low <= exact[p].value <= a.high for p, a in drawn.items()]
    assert np.mean(inside) > 0.85


def test_an_exact_query_beside_it_gets_all_rows(spark):
    queries = (
        SHARED
        + "CREATE QUERY sure AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '3 seconds') WITH EXACT;"
    )
    exact = run(spark, queries)
    found = run(spark, queries, {"sub": 0.6}, rates={"drawn": 0.3})
    check(exact, found, "sub", 2, 3)
    for at, answer in found.items():
        if answer.query == "sure":
            assert (answer.how, answer.value) == ("exact", exact[at].value)
    assert {p for p, a in found.items() if a.query == "sure"} == {
        p for p, a in exact.items() if a.query == "sure"
    }


def test_a_query_that_is_read_by_another_delivers_only_its_own_windows(spark):
    queries = """
    CREATE QUERY below AS SELECT SUM(size) AS bytes FROM p GROUP BY window(ts, '1 second') WITH SUBSET GAP 2;
    CREATE QUERY above AS SELECT MAX(bytes) AS most, COUNT(*) AS n FROM below GROUP BY window(ts, '5 seconds')
      WITH SUBSET GAP 1 PRIORITY 1;
    """
    exact = run(spark, queries)
    found = run(spark, queries, {"below": 0.6, "above": 0.4})
    check(exact, found, "below", 1, 2)
    check(exact, found, "above", 5, 1)


def test_where_times_are_not_known_beforehand_windows_are_decided_ahead(spark, exact_kinds):
    exact = exact_kinds
    found = run(spark, KINDS, dict.fromkeys(SLIDES, 0.7), aggregates=AGGREGATES, timed=False)
    for query in ("plain", "hosts"):
        got = {p: a for p, a in found.items() if a.query == query}
        true = [a for a in exact.values() if a.query == query]
        assert all(a.value == pytest.approx(exact[p].value, rel=1e-12) for p, a in got.items())
        assert longest_missing(true, got, SLIDES[query][0]) <= SLIDES[query][1]
        assert 0 < len(got) < len(true)


def test_queries_that_are_shut_say_so(spark):
    found = run(spark, SHARED, {"sub": 0.0}, ruling={"shut": frozenset({"sub"})})
    hows = {a.how for a in found.values() if a.query == "sub"}
    assert hows == {"suspended"}
    assert all(not a.met and a.value is None for a in found.values() if a.query == "sub")
    assert {a.how for a in found.values() if a.query == "drawn"} == {"exact"}


class Counted(FixedRates):
    """Counts how often it is asked to decide."""

    asked: ClassVar[list[str]] = []

    def leave(self, coming, points):
        self.asked.append(coming.stream)
        return super().leave(coming, points)


def test_windows_over_rows_that_are_shut_say_so(spark):
    query = "CREATE QUERY rows AS SELECT COUNT(*) AS n FROM p GROUP BY tuples(100) WITH SUBSET GAP 2;"
    ruler = FixedRates(shut=frozenset({"rows"}))
    found = run_scripted(spark, STREAM + query, {"p": ROWS}, ruler=ruler)
    assert {a.how for a in found} == {"suspended"}
    assert len(found) == sum(t.num_rows for t in ROWS) // 100
    assert all(a.window_start is None and not a.met for a in found)


@pytest.mark.parametrize("point", ["recorded", "answers"])
def test_a_killed_run_goes_on_with_the_same_windows(spark, tmp_path: Path, point: str):
    queries = KINDS.split("CREATE QUERY middle")[0] + "CREATE VIEW tens" + KINDS.split("CREATE VIEW tens")[1]
    drops = dict.fromkeys(SLIDES, 0.5)
    whole = run(spark, queries, drops)
    kept: list[Answer] = []
    options = {"state": tmp_path, "ruler": FixedRates(drops=drops), "spans": {"p": SPANS}}
    session = scripted_session(spark, STREAM + queries, {"p": ROWS}, fault=killer(point, 3), **options)
    session.start(ListSink(kept), manual=True)
    with pytest.raises(Killed):
        take_turns(session, {"p": ROWS})
    killed = session.engine.state.streams["p"].turn + 1
    abandon(session)
    Counted.asked.clear()
    options["ruler"] = ruler = Counted(drops=drops)
    session = scripted_session(spark, STREAM + queries, {"p": ROWS}, **options)
    session.start(ListSink(kept), manual=True)
    take_turns(session, {"p": ROWS})
    session.stop()
    assert {place(a): a.value for a in kept} == {p: a.value for p, a in whole.items()}
    # the batch that was killed obeys its record: only those after it are decided on
    assert len(ruler.asked) == BATCHES - killed


@pytest.mark.parametrize("fill", ["linear", "last"])
def test_missing_windows_are_filled_and_say_that_they_are_modelled(spark, fill: str):
    queries = f"""
    CREATE QUERY all_ AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '1 second') WITH SUBSET GAP 3 FILL {fill};
    CREATE QUERY hosts AS SELECT host, SUM(size) AS bytes FROM p GROUP BY host, window(ts, '2 seconds')
      WITH SUBSET GAP 2 FILL {fill};
    """
    exact = run(spark, queries)
    found = run(spark, queries, {"all_": 0.5, "hosts": 0.5})
    modelled = {p: a for p, a in found.items() if a.how == "modelled"}
    check(exact, {p: a for p, a in found.items() if p not in modelled}, "all_", 1, 3)
    missing = {p for p in exact if p not in found}
    # only before the first delivered window there is nothing to go by
    first = min(a.window_start for a in found.values() if a.how == "subset")
    assert all(p[2] < first + timedelta(seconds=4) for p in missing)
    inside = [
        a.low <= exact[p].value <= a.high for p, a in modelled.items() if p in exact and a.low is not None
    ]
    assert len(inside) > 20
    assert np.mean(inside) > 0.85
    assert all(a.confidence == 0.95 and a.rows == 0 for a in modelled.values())


def test_members_of_a_signature_get_what_their_contracts_say(spark):
    """Ten alike queries are found by one join; some of them leave out windows, one is exact, one sampled."""
    select = "SELECT COUNT(*) AS n, SUM(size) AS bytes FROM p WHERE size > {} AND port = 80 GROUP BY window(ts, '2 seconds')"
    queries = "".join(f"CREATE QUERY q{n} AS {select.format(40 + n)} WITH SUBSET GAP 3;" for n in range(8))
    queries += f"CREATE QUERY sure AS {select.format(60)} WITH EXACT;"
    queries += f"CREATE QUERY drawn AS {select.format(61)} WITH ERROR 5%;"
    exact = run(spark, queries)
    found = run(spark, queries, {f"q{n}": 0.6 for n in range(8)}, rates={"drawn": 0.5})
    for n in range(8):
        check(exact, found, f"q{n}", 2, 3)
    sure = {p: a for p, a in exact.items() if a.query == "sure"}
    assert {p: a.value for p, a in found.items() if a.query == "sure"} == {
        p: a.value for p, a in sure.items()
    }
    for at, answer in exact.items():
        if answer.query == "drawn":
            assert found[at].how == "sampled"
            assert found[at].value == pytest.approx(answer.value, rel=0.6)


def test_windows_with_an_offset_and_more_needs_than_bits(spark):
    queries = """CREATE QUERY shifted AS SELECT COUNT(*) AS n FROM p
      GROUP BY window(ts, '3 seconds', '2 seconds', '1 second') WITH SUBSET GAP 4;"""
    # each of another priority, so that none shares its drop with another
    queries += "".join(
        f"CREATE QUERY q{n} AS SELECT MAX(size) + {n} AS m FROM p WHERE size % 97 <> {n} "
        f"GROUP BY window(ts, '4 seconds') WITH SUBSET GAP 2 PRIORITY {n + 1};"
        for n in range(66)
    )
    shares = {"shifted": 0.6, **{f"q{n}": 0.5 for n in range(66)}}
    exact, found = run(spark, queries), run(spark, queries, shares)
    check(exact, found, "shifted", 2, 4)
    for n in range(66):
        check(exact, found, f"q{n}", 4, 2)


def test_a_governor_leaves_out_what_is_too_much_and_delivers_the_rest_exactly(spark, exact_kinds):
    governor = Governor(lambda: 1e9, 2, multiple=1.5)
    found = run_scripted(
        spark, STREAM + KINDS, {"p": ROWS}, ruler=governor, spans={"p": SPANS}, aggregates=AGGREGATES
    )
    # times decide on the shares, and a query may be too much whatever is left out of it: then it says so
    shut = {a.query for a in found if a.how == "suspended"}
    by_place = {place(a): a for a in found if a.how != "suspended"}
    assert {a.how for a in by_place.values()} <= {"exact", "subset"}
    missing = 0
    for query, (slide, gap) in SLIDES.items():
        true = [a for a in exact_kinds.values() if a.query == query]
        got = {p: a for p, a in by_place.items() if a.query == query}
        for at, answer in got.items():
            assert answer.value == pytest.approx(exact_kinds[at].value, rel=1e-12)
            assert answer.rows == exact_kinds[at].rows
        assert query in shut or longest_missing(true, got, slide) <= gap
        missing += len(true) - len(got)
    assert by_place
    assert missing, "there is more work than capacity"
