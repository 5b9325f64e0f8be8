"""EXPLAIN as text, compared letter by letter."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from explained import ALIKE, ALL, EXTREMES, LATEST, LOOKUP, NESTED, PACKETS, PREFIXES, PYTHON, TUPLES, planned
from slackwater.plan.describe import describe
from slackwater.plan.explain import explain_text


def shown(text: str, name: str | None = None) -> str:
    """The text form, with the digests in the names of tables blotted out."""
    return re.sub(r"_[0-9a-f]{12}\b", "_" + "·" * 12, explain_text(planned(text), name))


def test_text_of_shared_prefixes() -> None:
    assert (
        shown(PREFIXES)
        == """\
stream packets · kafka json · time ts · lateness 2 seconds
│  3 passes over a batch answer 4 queries from 3 pane tables
└─ sport = 80
   ├─ query web · ERROR 5% CONFIDENCE 99% WEIGHT 2
   │    window 1 minute every 1 second: sum(size) AS bytes
   │    panes of 1 second in table 1 · shared pass, shared with big_web, web_again
   ├─ query web_again · ERROR 5%
   │    window 30 seconds: sum(size) AS size
   │    panes of 1 second in table 1 · shared pass, shared with web, big_web
   │    warm start from the panes of web
   ├─ query hosts · EXACT
   │    window 1 minute by src: count(*) AS n, percentile(size, 0.5) AS middle
   │    having count(*) > 100
   │    panes of 1 minute in tables 2 and 3 · shared pass
   └─ size > 1000
      └─ query big_web · SUBSET GAP 10
           window 10 seconds: count(*) AS n
           panes of 1 second in table 1 · shared pass, shared with web, web_again

   pane table             of       panes            holds           filled by    read by
1  partials_············  packets  1 second         3 columns       shared pass  web, big_web, web_again
2  partials_············  packets  1 minute by src  1 column        shared pass  hosts
3  values_············    packets  1 minute by src  values of size  shared pass  hosts
"""
    )


def test_text_of_a_lookup() -> None:
    assert (
        shown(LOOKUP)
        == """\
stream packets · kafka json · time ts · lateness 2 seconds
│  2 passes over a batch answer 2 queries from 2 pane tables
├─ sport = 80
│  └─ lookup sites on src = sites.host
│     └─ sites.site <> 'lab'
│        └─ query by_site · ERROR 5%
│             window 1 minute by site: sum(size) AS bytes
│             panes of 1 minute in table 1 · shared pass
└─ left lookup sites on src = sites.host
   └─ query known · ERROR 5%
        window 1 minute: count(sites.site) AS n
        panes of 1 minute in table 2 · shared pass

   pane table             of       panes                   holds      filled by    read by
1  partials_············  packets  1 minute by sites.site  2 columns  shared pass  by_site
2  partials_············  packets  1 minute                2 columns  shared pass  known
"""
    )


def test_text_of_steps_two_deep() -> None:
    assert (
        shown(NESTED)
        == """\
stream packets · kafka json · time ts · lateness 2 seconds
│  one pass over a batch answers 3 queries from 3 pane tables; 2 of them are filled from the answers
│  of spread, jumps
│  looked through, at no cost: view small
└─ size < 1500
   └─ view spread
      │  window 5 minutes: max(size) - min(size) AS d
      │  panes of 5 minutes in table 1 · shared pass
      ├─ d > 500
      │  └─ query jumps · SUBSET GAP 10
      │     │  window 1 hour: count(*) AS n
      │     │  panes of 1 hour in table 2 · shared pass
      │     └─ query most · EXACT
      │          window 1 day: max(n) AS n
      │          panes of 1 day in table 3 · shared pass
      └─ d > 1400
         └─ query alarms · EXACT
              rows: d
              rows emitted by a pass of its own

   pane table             of       panes      holds      filled by    read by
1  partials_············  packets  5 minutes  3 columns  shared pass  spread
2  partials_············  spread   1 hour     1 column   shared pass  jumps
3  partials_············  jumps    1 day      2 columns  shared pass  most
"""
    )


def test_text_of_many_alike() -> None:
    assert (
        shown(ALIKE)
        == """\
stream packets · kafka json · time ts · lateness 2 seconds
│  2 passes over a batch answer 10 queries from one pane table
│  one of the passes only counts the rows that arrive
└─ sport = 80
   └─ dport = ? · constants join, 10 members
      └─ 10 queries alike: port_0, port_1, port_2 and 7 more · ERROR 5%
           window 1 minute: count(*) AS n
           panes of 1 minute in table 1 · constants join

   pane table             of       panes     holds     filled by       read by
1  partials_············  packets  1 minute  1 column  constants join  port_0, port_1, port_2 and 7 more
"""
    )


def test_text_of_tuple_windows() -> None:
    assert (
        shown(TUPLES)
        == """\
stream packets · kafka json · time ts · lateness 2 seconds
│  2 passes over a batch answer one query from one pane table
│  one of the passes only counts the rows that arrive
└─ sport = 80 · filtered first
   └─ query runs · EXACT
        tuples 1000 every 100: count(*) AS n, sum(size) AS bytes
        panes of 100 rows in table 1 · filtered first (tuple window)

   pane table             of       panes     holds      filled by       read by
1  partials_············  packets  100 rows  4 columns  filtered first  runs
"""
    )


def test_text_of_python_functions() -> None:
    assert (
        shown(PYTHON)
        == """\
stream packets · kafka json · time ts · lateness 2 seconds
│  3 passes over a batch answer 3 queries from 3 pane tables
├─ query names · EXACT
│    window 1 minute: longest(src) AS name
│    panes of 1 minute in table 3 · filtered first (user aggregate longest)
└─ sport = 80
   ├─ query web · ERROR 5%
   │    window 1 minute: count(*) AS n
   │    panes of 1 minute in table 2 · shared pass
   └─ risky(size) · Python function, tested last · filtered first
      └─ query risk · ERROR 5%
           window 1 minute: count(*) AS n
           panes of 1 minute in table 1 · filtered first (Python function)

   pane table             of       panes     holds             filled by       read by
1  partials_············  packets  1 minute  1 column          filtered first  risk
2  partials_············  packets  1 minute  1 column          shared pass     web
3  rows_············      packets  1 minute  rows for longest  filtered first  names
"""
    )


def test_text_of_current_values() -> None:
    assert (
        shown(LATEST)
        == """\
stream load · agents · time ts · key host
│  2 queries read current values
└─ latest by host
   ├─ query traffic · PRECISION 5
   │    current values: avg(pps) AS pps
   └─ pps > 100
      └─ query busy · EXACT
           rows: host, pps
           one for each key, as it is now
"""
    )


def test_text_of_extremes_over_time() -> None:
    assert (
        shown(EXTREMES)
        == """\
stream ticks · rate · time ts · key host · tick 500 milliseconds · interrupted after 30 seconds
│  one query reads current values
└─ latest by host
   └─ lookup sites on host = sites.host
      └─ query peak · EXACT
           current values by site: sum(price) AS now, max_over(sum(price) / count(*), '20 seconds')
             AS p, min_since(avg(price), TIMESTAMP '2026-01-31 09:00:00') AS low
           having max_over(avg(price), '1 minute') > 3
"""
    )


def test_text_of_one_query_with_what_it_reads() -> None:
    assert (
        shown(NESTED, "most")
        == """\
stream packets · kafka json · time ts · lateness 2 seconds
│  one pass over a batch answers 2 queries from 3 pane tables; 2 of them are filled from the answers
│  of spread, jumps
└─ size < 1500
   └─ view spread
      │  window 5 minutes: max(size) - min(size) AS d
      │  panes of 5 minutes in table 1 · shared pass
      └─ d > 500
         └─ query jumps · SUBSET GAP 10
            │  window 1 hour: count(*) AS n
            │  panes of 1 hour in table 2 · shared pass
            └─ query most · EXACT
                 window 1 day: max(n) AS n
                 panes of 1 day in table 3 · shared pass

   pane table             of       panes      holds      filled by    read by
1  partials_············  packets  5 minutes  3 columns  shared pass  spread
2  partials_············  spread   1 hour     1 column   shared pass  jumps
3  partials_············  jumps    1 day      2 columns  shared pass  most
"""
    )


def test_text_of_one_of_many_alike() -> None:
    assert (
        shown(ALIKE, "port_7")
        == """\
stream packets · kafka json · time ts · lateness 2 seconds
│  one pass over a batch answers one query from one pane table
└─ sport = 80
   └─ dport = ? · constants join, 10 members
      └─ query port_7 (7) · ERROR 5%
           window 1 minute: count(*) AS n
           panes of 1 minute in table 1 · constants join

   pane table             of       panes     holds     filled by       read by
1  partials_············  packets  1 minute  1 column  constants join  port_0, port_1, port_2 and 7 more
"""
    )


def test_text_of_a_view_that_is_looked_through() -> None:
    assert (
        shown(NESTED, "small")
        == """\
stream packets · kafka json · time ts · lateness 2 seconds
└─ size < 1500
   └─ view small
        rows: ts, size
        its readers look through it: it costs nothing by itself
"""
    )


@pytest.mark.parametrize("text", ALL.values(), ids=ALL)
def test_lines_fit_a_terminal(text: str) -> None:
    assert max(map(len, explain_text(planned(text)).splitlines())) <= 110


def test_a_new_query_says_where_its_panes_come_from() -> None:
    before = planned(PREFIXES)
    extra = """CREATE QUERY late AS SELECT SUM(size) AS b FROM packets WHERE sport = 80
      GROUP BY window(ts, '2 seconds');"""
    (stream,) = describe(planned(PREFIXES + extra, before), "late").streams
    (web,) = stream.children
    (late,) = web.children
    assert late.step is not None
    assert late.step.warm_from == ("web",)
    assert late.step.shares == ("web", "big_web", "web_again")
    assert "warm start from the panes of web" in explain_text(planned(PREFIXES + extra, before), "late")


def test_names_are_found_without_case() -> None:
    assert explain_text(planned(NESTED), "JUMPS") == explain_text(planned(NESTED), "jumps")
    assert explain_text(planned(NESTED), "Packets") == explain_text(planned(NESTED))


def test_a_thousand_alike_take_a_few_lines() -> None:
    text = PACKETS + "".join(
        f"CREATE QUERY q{port} AS SELECT COUNT(*) AS n FROM packets WHERE dport = {port} "
        "GROUP BY window(ts, '1 minute');\n"
        for port in range(1000)
    )
    said = explain_text(planned(text))
    assert len(said.splitlines()) <= 10
    assert "1000 queries alike" in said


def test_parents_come_before_their_children_on_the_page() -> None:
    """Indentation grows by one step at a time: every line hangs on one above it."""
    lines = [line for line in explain_text(planned(NESTED)).split("\n\n")[0].splitlines() if "─ " in line]
    depths = [line.index("─ ") for line in lines]
    assert all(later - earlier <= 3 for earlier, later in pairwise(depths))
