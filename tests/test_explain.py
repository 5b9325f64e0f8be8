"""EXPLAIN in its four forms; the text is compared letter by letter."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from slackwater.errors import PlanError
from slackwater.language.aggregates import UserAggregate
from slackwater.plan.catalog import Catalog
from slackwater.plan.describe import describe
from slackwater.plan.explain import explain, explain_dot, explain_json, explain_svg, explain_text
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.tables import Plan

PACKETS = """
CREATE STREAM packets (ts TIMESTAMP, src STRING, dst STRING, sport INT, dport INT, size INT)
  USING kafka OPTIONS (subscribe 'packets') FORMAT json TIMESTAMP BY ts LATENESS 2 SECONDS;
"""
SITES = "CREATE TABLE sites (host STRING, site STRING) USING parquet OPTIONS (path 'sites.parquet');"
LOAD = "CREATE STREAM load (ts TIMESTAMP, host STRING, pps DOUBLE) USING agents KEY host TIMESTAMP BY ts;"

PREFIXES = (
    PACKETS
    + """
CREATE QUERY web AS SELECT SUM(size) AS bytes FROM packets WHERE sport = 80
  GROUP BY window(ts, '60 seconds', '1 second') WITH ERROR 5% CONFIDENCE 99% WEIGHT 2;
CREATE QUERY big_web AS SELECT COUNT(*) AS n FROM packets WHERE size > 1000 AND sport = 80
  GROUP BY window(ts, '10 seconds') WITH SUBSET GAP 10;
CREATE QUERY web_again AS SELECT SUM(size) AS size FROM packets WHERE sport = 80
  GROUP BY window(ts, '30 seconds');
CREATE QUERY hosts AS SELECT src, COUNT(*) AS n, MEDIAN(size) AS middle FROM packets WHERE sport = 80
  GROUP BY window(ts, '1 minute'), src HAVING COUNT(*) > 100;
"""
)
LOOKUP = (
    PACKETS
    + SITES
    + """
CREATE QUERY by_site AS SELECT site, SUM(size) AS bytes FROM packets JOIN sites ON src = sites.host
  WHERE sport = 80 AND site <> 'lab' GROUP BY window(ts, '1 minute'), site;
CREATE QUERY known AS SELECT COUNT(site) AS n FROM packets LEFT JOIN sites ON src = sites.host
  GROUP BY window(ts, '1 minute');
"""
)
NESTED = (
    PACKETS
    + """
CREATE VIEW small AS SELECT ts, size FROM packets WHERE size < 1500;
CREATE VIEW spread AS SELECT MAX(size) - MIN(size) AS d FROM small GROUP BY window(ts, '5 minutes');
CREATE QUERY jumps AS SELECT COUNT(*) AS n FROM spread WHERE d > 500 GROUP BY window(ts, '1 hour')
  WITH SUBSET GAP 10;
CREATE QUERY most AS SELECT MAX(n) AS n FROM jumps GROUP BY window(ts, '1 day');
CREATE QUERY alarms AS SELECT d FROM spread WHERE d > 1400;
"""
)
ALIKE = PACKETS + "".join(
    f"CREATE QUERY port_{port} AS SELECT COUNT(*) AS n FROM packets WHERE sport = 80 AND dport = {port} "
    "GROUP BY window(ts, '1 minute');\n"
    for port in range(10)
)
TUPLES = (
    PACKETS
    + """
CREATE QUERY runs AS SELECT COUNT(*) AS n, SUM(size) AS bytes FROM packets WHERE sport = 80
  GROUP BY tuples(1000, 100) WITH EXACT;
"""
)
PYTHON = (
    PACKETS
    + """
CREATE QUERY risk AS SELECT COUNT(*) AS n FROM packets WHERE risky(size) AND sport = 80
  GROUP BY window(ts, '1 minute');
CREATE QUERY web AS SELECT COUNT(*) AS n FROM packets WHERE sport = 80 GROUP BY window(ts, '1 minute');
CREATE QUERY names AS SELECT longest(src) AS name FROM packets GROUP BY window(ts, '1 minute') WITH EXACT;
"""
)
LATEST = (
    LOAD
    + """
CREATE QUERY traffic AS SELECT AVG(pps) AS pps FROM LATEST(load) WITH PRECISION 5;
CREATE QUERY busy AS SELECT host, pps FROM LATEST(load) WHERE pps > 100;
"""
)
ALL = {
    "prefixes": PREFIXES,
    "lookup": LOOKUP,
    "nested": NESTED,
    "alike": ALIKE,
    "tuples": TUPLES,
    "python": PYTHON,
    "latest": LATEST,
}
LONGEST = UserAggregate(init=str, incr=lambda state, _: state, final=lambda state: state)
FUNCTIONS = Functions(frozenset({"risky"}), {"longest": LONGEST})


def planned(text: str, before: Plan | None = None) -> Plan:
    return extend(before or Plan(), Catalog.from_sql(text, FUNCTIONS))


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
def test_equal_plans_have_equal_texts_in_every_form(text: str) -> None:
    for form in ("text", "json", "dot", "svg"):
        assert explain(planned(text), form) == explain(planned(text), form)


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


@pytest.mark.parametrize("text", ALL.values(), ids=ALL)
def test_json_is_the_description(text: str) -> None:
    plan = planned(text)
    assert json.loads(explain_json(plan)) == describe(plan).as_dict()


def test_json_names_every_member_with_its_constants() -> None:
    (stream,) = json.loads(explain_json(planned(ALIKE)))["streams"]
    (common,) = stream["children"]
    (join,) = common["children"]
    assert (join["kind"], join["title"], join["alike"]) == ("constants", "dport = ?", 10)
    assert join["children"][0]["members"][3] == {"name": "port_3", "constants": ["3"]}


@pytest.mark.parametrize("text", ALL.values(), ids=ALL)
def test_dot_is_well_formed(text: str) -> None:
    graph = explain_dot(planned(text))
    unquoted = re.sub(r'"(\\.|[^"\\])*"', '""', graph)
    assert unquoted.count("{") == unquoted.count("}") == 1
    assert unquoted.count("[") == unquoted.count("]")
    assert '"' not in unquoted.replace('""', "")
    declared = set(re.findall(r"^  (\w+) \[label", unquoted, re.MULTILINE))
    ends = {end for edge in re.findall(r"^  (\w+) -> (\w+)", unquoted, re.MULTILINE) for end in edge}
    assert ends <= declared


@pytest.mark.parametrize("text", ALL.values(), ids=ALL)
def test_svg_is_xml_that_needs_nothing_else_and_names_every_query(text: str) -> None:
    plan = planned(text)
    picture = explain_svg(plan)
    root = ElementTree.fromstring(picture)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    said = " ".join(root.itertext())
    for query in plan.catalog.queries.values():
        assert re.search(rf"\b{query.name}\b", said)
    assert "prefers-color-scheme: dark" in picture
    assert not re.search(r"href|url\(|@import|<script", picture)


def test_boxes_of_a_picture_do_not_overlap() -> None:
    text = "".join([PREFIXES, SITES, LOOKUP.split(SITES)[1], NESTED.split("LATENESS 2 SECONDS;")[1]])
    text += ALIKE.split("LATENESS 2 SECONDS;")[1]
    root = ElementTree.fromstring(explain_svg(planned(text)))
    boxes = [
        tuple(float(rect.attrib[side]) for side in ("x", "y", "width", "height"))
        for rect in root.iter("{http://www.w3.org/2000/svg}rect")
        if rect.attrib["class"] == "box"
    ]
    assert len(boxes) > 20
    for index, (x, y, width, height) in enumerate(boxes):
        assert x + width <= float(root.attrib["width"])
        assert y + height <= float(root.attrib["height"])
        for other_x, other_y, other_width, other_height in boxes[index + 1 :]:
            beside = x + width <= other_x or other_x + other_width <= x
            assert beside or y + height <= other_y or other_y + other_height <= y


def test_marks_and_quotes_are_escaped() -> None:
    text = PACKETS + (
        "CREATE QUERY odd AS SELECT COUNT(*) AS n FROM packets WHERE src = '<a href=\"x\">&\\\\' "
        "GROUP BY window(ts, '1 minute');"
    )
    plan = planned(text)
    assert "<a href" in "".join(ElementTree.fromstring(explain_svg(plan)).itertext())
    assert '\\"x\\"' in explain_dot(plan)


def test_names_are_found_without_case() -> None:
    assert explain_text(planned(NESTED), "JUMPS") == explain_text(planned(NESTED), "jumps")
    assert explain_text(planned(NESTED), "Packets") == explain_text(planned(NESTED))


def test_unknown_names_are_refused_with_the_nearest() -> None:
    plan = planned(LOOKUP)
    with pytest.raises(PlanError, match="no stream, view or query called by_sit: did you mean by_site"):
        explain(plan, "text", "by_sit")
    with pytest.raises(PlanError, match="there are packets, by_site, known"):
        explain(plan, "svg", "zzz")
    with pytest.raises(PlanError, match="sites is a table"):
        explain(plan, "json", "sites")


def test_nothing_declared() -> None:
    assert explain_text(Plan()) == "nothing is declared yet\n"
    assert json.loads(explain_json(Plan())) == {}
    ElementTree.fromstring(explain_svg(Plan()))
    assert explain_dot(Plan()).rstrip().endswith("}")


def test_a_thousand_alike_take_a_few_lines() -> None:
    text = PACKETS + "".join(
        f"CREATE QUERY q{port} AS SELECT COUNT(*) AS n FROM packets WHERE dport = {port} "
        "GROUP BY window(ts, '1 minute');\n"
        for port in range(1000)
    )
    said = explain_text(planned(text))
    assert len(said.splitlines()) <= 10
    assert "1000 queries alike" in said


@pytest.mark.parametrize("text", [t for n, t in ALL.items() if n != "latest"])
def test_passes_are_those_that_are_run(text: str) -> None:
    compile_source = pytest.importorskip("slackwater.spark.compile").compile_source
    plan = planned(text)
    for stream in describe(plan).streams:
        compiled = compile_source(plan, stream.name, stream=True)
        assert stream.passes == len(compiled.statements) + len(compiled.emits)


def test_parents_come_before_their_children_on_the_page() -> None:
    """Indentation grows by one step at a time: every line hangs on one above it."""
    lines = [line for line in explain_text(planned(NESTED)).split("\n\n")[0].splitlines() if "─ " in line]
    depths = [line.index("─ ") for line in lines]
    assert all(later - earlier <= 3 for earlier, later in pairwise(depths))
