"""Metrics of a run: their names, types and labels, and that the example dashboard knows them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from service_client import Client
from service_still import AT, Still, a_frame
from slackwater.runtime.batch_times import BatchTimes
from slackwater.service.events import Readers
from slackwater.service.metrics import registry
from slackwater.service.models import AgentsFrame, AlertFrame, Frame, Point, QueryFrame, StreamFrame
from slackwater.service.server import DEFAULT_PORT, serving

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ODD = 'web "of" \\all\\\nlines'
"""A name as only back quotes allow it."""


def query(name: str, **more: Any) -> QueryFrame:
    plain: dict[str, Any] = {
        "stream": "p",
        "contract": "ERROR 5%",
        "kind": "windows",
        "columns": ["bytes"],
        "answers": 7,
        "groups": 0,
        "how": "sampled",
        "met": True,
        "rate": 0.25,
        "error": 0.03,
        "expected_error": 0.04,
        "load": 0.5,
        "suspended": False,
        "missed": 1,
        "evaluated": 2,
        "column": "bytes",
        "keys": {},
        "last_text": "",
        "points": [Point(at=AT, value=100.0, low=97.0, high=103.0, how="sampled", met=True, rate=0.25)],
    }
    return QueryFrame(name=name, **(plain | more))


def a_busy_frame() -> Frame:
    """A frame with something of everything."""
    stream = StreamFrame(
        name="p", state="running", batch=5, rows=1000, rows_per_second=200.0, lag_seconds=1.5, batch_seconds=0.4,
        late=3, unreadable=1, watermark=AT, progress=None, kept=0.5, level=0.2,
    )  # fmt: skip
    agents = AgentsFrame(
        stream="hosts", there=2, known=3, keys=40, updates_per_second=4.0, grants_per_second=1.0,
        offered_per_second=90.0, late=0, agents=[], widths=[], interruptions=5,
    )  # fmt: skip
    alert = AlertFrame(
        name="heavy",
        query="web",
        condition="bytes > 1 CERTAINLY",
        url="",
        raised=1,
        events=4,
        waiting=2,
        lost=6,
        failed=8,
        trouble="",
    )
    silent = query("silent", met=None, error=None, rate=None, load=None, how=None, points=[], suspended=True)
    return a_frame(
        load=2.0, kept_load=1.0, capacity=1.2, level=0.3,
        streams=[stream], queries=[query("web"), query(ODD, met=False, keys={"host": "a", "port": None}), silent], agents=[agents], alerts=[alert],
    )  # fmt: skip


def families(frame: Frame) -> dict[str, Metric]:
    took = {"p": BatchTimes().with_batch(0.2).with_batch(0.4).with_batch(90.0)}
    text = generate_latest(registry(Still(frame, took=took), Readers(count=3, sent=9))).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


@pytest.fixture(scope="module")
def busy() -> dict[str, Metric]:
    return families(a_busy_frame())


def value(found: dict[str, Metric], name: str, **labels: str) -> float | None:
    known = re.sub("_(total|bucket|sum|count)$", "", name)
    family = found[known] if known in found else found[name]
    fitting = [s.value for s in family.samples if s.name == name and s.labels == labels]
    assert len(fitting) <= 1
    return fitting[0] if fitting else None


def own(found: dict[str, Metric]) -> Iterator[Metric]:
    return (family for name, family in found.items() if name.startswith("slackwater_"))


def test_numbers_are_those_of_the_frame(busy: dict[str, Metric]) -> None:
    assert value(busy, "slackwater_load_seconds") == 2.0
    assert value(busy, "slackwater_kept_load_seconds") == 1.0
    assert value(busy, "slackwater_capacity_seconds") == 1.2
    assert value(busy, "slackwater_level") == 0.3
    assert value(busy, "slackwater_phase", phase="running") == 1
    assert value(busy, "slackwater_phase", phase="failed") == 0
    assert value(busy, "slackwater_rows_total", stream="p") == 1000
    assert value(busy, "slackwater_last_batch_seconds", stream="p") == 0.4
    assert value(busy, "slackwater_answers_total", query="web") == 7
    assert value(busy, "slackwater_answer_low", query="web", column="bytes", group="") == 97
    grouped = value(busy, "slackwater_answer_high", query=ODD, column="bytes", group="host=a, port=NULL")
    assert grouped == 103
    assert value(busy, "slackwater_agent_interruptions_total", stream="hosts") == 5
    assert value(busy, "slackwater_alert_events_lost_total", alert="heavy") == 6
    assert value(busy, "slackwater_alert_failed_attempts_total", alert="heavy") == 8
    assert value(busy, "slackwater_agent_values_per_second", stream="hosts") == 90
    assert value(busy, "slackwater_alert_events_total", alert="heavy") == 4
    assert value(busy, "slackwater_event_stream_readers") == 3
    assert value(busy, "slackwater_events_sent_total") == 9


def test_how_long_batches_took_is_a_histogram(busy: dict[str, Metric]) -> None:
    def bucket(le: str) -> float | None:
        return value(busy, "slackwater_batch_seconds_bucket", stream="p", le=le)

    assert busy["slackwater_batch_seconds"].type == "histogram"
    assert [bucket(le) for le in ("0.1", "0.25", "0.5", "60.0", "+Inf")] == [0, 1, 2, 2, 3]
    assert value(busy, "slackwater_batch_seconds_count", stream="p") == 3
    assert value(busy, "slackwater_batch_seconds_sum", stream="p") == pytest.approx(90.6)


def test_names_of_any_kind_come_through(busy: dict[str, Metric]) -> None:
    assert value(busy, "slackwater_contract_met", query=ODD) == 0


def test_what_is_not_known_is_left_out(busy: dict[str, Metric]) -> None:
    for name in ("contract_met", "error_ratio", "kept_rows_ratio", "query_load_seconds"):
        assert value(busy, f"slackwater_{name}", query="silent") is None
    assert value(busy, "slackwater_answer_value", query="silent", column="bytes", group="") is None
    assert value(busy, "slackwater_suspended", query="silent") == 1
    idle = families(a_frame())
    assert "slackwater_load_seconds" in idle, "named all the same"
    assert idle["slackwater_load_seconds"].samples == []


def test_names_and_types_follow_the_conventions(busy: dict[str, Metric]) -> None:
    assert len(list(own(busy))) > 30
    for family in own(busy):
        assert re.fullmatch(r"slackwater(_[a-z]+)+", family.name)
        assert family.documentation.endswith(".")
        assert len(family.documentation.split()) > 3, "who reads it has nothing else"
        if family.type == "histogram":
            assert family.name.endswith("_seconds")
            continue
        assert family.type in ("gauge", "counter")
        names = {sample.name for sample in family.samples if not sample.name.endswith("_created")}
        assert names <= {family.name + ("_total" if family.type == "counter" else "")}
        assert not family.name.endswith("_total")
        assert all(math.isfinite(sample.value) for sample in family.samples)
    assert {"process_cpu_seconds", "process_resident_memory_bytes"} <= busy.keys()


def test_they_are_served() -> None:
    with serving(Still(a_busy_frame()), port=0) as address:
        said = Client(address).get("/metrics")
    assert said.headers["content-type"].startswith("text/plain; version=")
    found = {f.name: f for f in text_string_to_metric_families(said.body.decode())}
    assert value(found, "slackwater_level") == 0.3


def dashboard() -> Any:
    return json.loads((EXAMPLES / "grafana.json").read_text())


def test_the_dashboard_asks_for_metrics_that_there_are(busy: dict[str, Metric]) -> None:
    known = {sample.name for family in own(busy) for sample in family.samples}
    panels = dashboard()["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    asked += [
        variable["query"]["query"]
        for variable in dashboard()["templating"]["list"]
        if "refId" in str(variable)
    ]
    named = {name for text in asked for name in re.findall(r"\bslackwater_\w+", text)}
    assert named <= known
    assert len(named) > 20
    for panel in panels:
        targets = panel.get("targets", ())
        for text in (target["expr"] for target in targets):
            assert text.count("slackwater_") == text.count('instance=~"$instance"'), "runs are told apart"
        # over a range each phase that there ever was would count as that of now
        assert all(target.get("instant", False) == (panel["type"] == "stat") for target in targets)
    for text in asked:
        # Prometheus itself says of each series whose it is
        for label in set(re.findall(r"(\w+)=~", text)) - {"instance"}:
            assert any(label in sample.labels for family in own(busy) for sample in family.samples)


def test_the_dashboard_can_be_taken_into_any_grafana() -> None:
    board = dashboard()
    assert board["schemaVersion"] >= 39
    assert board["id"] is None
    text = json.dumps(board)
    assert "://" not in text, "it names no address"
    sources = {p["datasource"]["uid"] for p in board["panels"] if "datasource" in p}
    assert sources == {"${datasource}"}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    places = [tuple(panel["gridPos"][side] for side in "xywh") for panel in board["panels"]]
    cells = [(x + i, y + j) for x, y, w, h in places for i in range(w) for j in range(h)]
    assert len(set(cells)) == len(cells), "no panel lies on another"
    assert max(x for x, _ in cells) < 24
    assert all(panel["title"] for panel in board["panels"])


def test_the_scrape_configuration_asks_where_the_service_is() -> None:
    jobs = yaml.safe_load((EXAMPLES / "prometheus.yml").read_text())["scrape_configs"]
    assert jobs[0]["static_configs"][0]["targets"] == [f"127.0.0.1:{DEFAULT_PORT}"]
    assert all(job["metrics_path"] == "/metrics" for job in jobs)
