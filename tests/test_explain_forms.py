"""EXPLAIN as JSON, DOT and SVG, and what holds of every form."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

from explained import ALIKE, ALL, EXTREMES, LOOKUP, NESTED, PACKETS, PREFIXES, SITES, planned
from slackwater.errors import PlanError
from slackwater.plan.describe import describe
from slackwater.plan.explain import explain, explain_dot, explain_json, explain_svg, explain_text
from slackwater.plan.tables import Plan


@pytest.mark.parametrize("text", ALL.values(), ids=ALL)
def test_equal_plans_have_equal_texts_in_every_form(text: str) -> None:
    for form in ("text", "json", "dot", "svg"):
        assert explain(planned(text), form) == explain(planned(text), form)


@pytest.mark.parametrize("text", ALL.values(), ids=ALL)
def test_json_is_the_description(text: str) -> None:
    plan = planned(text)
    assert json.loads(explain_json(plan)) == describe(plan).as_dict()


def test_json_has_ticks_and_extremes() -> None:
    (stream,) = json.loads(explain_json(planned(EXTREMES)))["streams"]
    assert (stream["tick"], stream["interrupted_after"]) == ("500 milliseconds", "30 seconds")
    assert "max_over(sum(price) / count(*), '20 seconds') AS p" in json.dumps(stream)


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


@pytest.mark.parametrize("text", [t for n, t in ALL.items() if n not in ("latest", "extremes")])
def test_passes_are_those_that_are_run(text: str) -> None:
    compile_source = pytest.importorskip("slackwater.spark.compile").compile_source
    plan = planned(text)
    for stream in describe(plan).streams:
        compiled = compile_source(plan, stream.name, stream=True)
        assert stream.passes == len(compiled.statements) + len(compiled.emits)
