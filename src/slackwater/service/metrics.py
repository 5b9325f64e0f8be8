"""Prometheus metrics of a run, made of the newest frame when somebody asks.

Names follow the conventions: a prefix, base units, `_total` for what only grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slackwater.service.events import Readers
from slackwater.service.models import Frame, QueryFrame, StreamFrame
from slackwater.service.watched import Watched

QUERIES_AT_MOST = 10_000
"""Queries that have metrics of their own."""


class RunCollector(Collector):
    """All metrics of a run."""

    def __init__(self, watched: Watched, readers: Readers) -> None:
        self._watched = watched
        self._readers = readers

    def describe(self) -> Iterable[Metric]:
        """Nothing is looked at before somebody asks."""
        return []

    def collect(self) -> Iterator[Metric]:
        frame = self._watched.frame()
        yield from _run(frame)
        yield from _streams(frame.streams)
        yield from _queries(frame.queries[:QUERIES_AT_MOST])
        yield from _agents(frame)
        yield from _alerts(frame)
        yield _gauge("event_stream_readers", "Readers of event streams now.", [((), self._readers.count)])
        yield _counter("events_sent", "Events that readers were sent.", [((), self._readers.sent)])


def registry(watched: Watched, readers: Readers) -> CollectorRegistry:
    """The metrics of a run and of its process."""
    made = CollectorRegistry()
    made.register(RunCollector(watched, readers))
    ProcessCollector(registry=made)
    PlatformCollector(registry=made)
    GCCollector(registry=made)
    return made


Samples = Iterable[tuple[tuple[str, ...], float | None]]


def _gauge(name: str, text: str, samples: Samples, labels: tuple[str, ...] = ()) -> Metric:
    family = GaugeMetricFamily(f"slackwater_{name}", text, labels=labels)
    return _filled(family, samples)


def _counter(name: str, text: str, samples: Samples, labels: tuple[str, ...] = ()) -> Metric:
    return _filled(CounterMetricFamily(f"slackwater_{name}", text, labels=labels), samples)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, samples: Samples) -> Metric:
    for labels, value in samples:
        if value is not None:
            family.add_metric(labels, float(value))
    return family


def _run(frame: Frame) -> Iterator[Metric]:
    yield _gauge("level", "The loss level: above 1 contracts are not kept.", [((), frame.level)])
    yield _gauge("load_seconds", "Executor seconds that a batch would take whole.", [((), frame.load)])
    yield _gauge("kept_load_seconds", "The same with what is shed now.", [((), frame.kept_load)])
    yield _gauge("capacity_seconds", "Executor seconds that a batch may take.", [((), frame.capacity)])
    phases = ("starting", "running", "ended", "stopped", "failed")
    states = [((phase,), float(frame.phase == phase)) for phase in phases]
    yield _gauge("phase", "1 for the phase that the run is in.", states, ("phase",))
    yield _gauge("query_set_version", "Of the query set.", [((), frame.version)])


def _streams(streams: list[StreamFrame]) -> Iterator[Metric]:
    def each(pick: str) -> Samples:
        return [((s.name,), getattr(s, pick)) for s in streams]

    label = ("stream",)
    yield _counter("batches", "Batches of a stream.", each("batch"), label)
    yield _counter("rows", "Rows that have arrived.", each("rows"), label)
    yield _counter("late_rows", "Rows that came too late.", each("late"), label)
    yield _counter("unreadable_rows", "Rows that could not be read.", each("unreadable"), label)
    yield _gauge("rows_per_second", "Rows a second.", each("rows_per_second"), label)
    yield _gauge("lag_seconds", "How far reading is behind.", each("lag_seconds"), label)
    yield _gauge("batch_seconds", "How long the last batch took.", each("batch_seconds"), label)
    running = each("running_seconds")
    yield _gauge("running_batch_seconds", "For how long the batch that runs has run.", running, label)
    yield _gauge("kept_ratio", "Share of the last batch that was looked at.", each("kept"), label)
    yield _gauge("stream_level", "The loss level of a stream.", each("level"), label)


def _queries(queries: list[QueryFrame]) -> Iterator[Metric]:
    def each(pick: str) -> Samples:
        return [((q.name,), getattr(q, pick)) for q in queries]

    label = ("query",)
    yield _counter("answers", "Answers of a query.", each("answers"), label)
    met = [((q.name,), None if q.met is None else float(q.met)) for q in queries]
    yield _gauge("contract_met", "1 where the last answers kept the contract.", met, label)
    yield _gauge("error_ratio", "Half the last interval over its value.", each("error"), label)
    yield _gauge("kept_rows_ratio", "Share of rows (of windows) that is kept.", each("rate"), label)
    yield _gauge("query_load_seconds", "A query's part of the load.", each("load"), label)
    yield _gauge("suspended", "1 while there is no capacity for a query.", each("suspended"), label)
    yield _counter("missed_evaluations", "Evaluations not had in time.", each("missed"), label)
    yield _counter("evaluations", "Evaluations under DRIFT.", each("evaluated"), label)
    for pick, text in (("value", "The last answer."), ("low", "Its low end."), ("high", "Its high end.")):
        points = [((q.name, q.column or ""), getattr(q.points[-1], pick)) for q in queries if q.points]
        yield _gauge(f"answer_{pick}", text, points, ("query", "column"))


def _agents(frame: Frame) -> Iterator[Metric]:
    def each(pick: str) -> Samples:
        return [((a.stream,), getattr(a, pick)) for a in frame.agents]

    label = ("stream",)
    yield _gauge("agents_connected", "Agents that are there.", each("there"), label)
    yield _gauge("agents_known", "Agents that have ever been there.", each("known"), label)
    yield _gauge("agent_keys", "Keys of agents.", each("keys"), label)
    yield _gauge("agent_updates_per_second", "Updates a second.", each("updates_per_second"), label)
    yield _gauge("agent_grants_per_second", "Grants a second.", each("grants_per_second"), label)
    offered = each("offered_per_second")
    yield _gauge(
        "agent_values_per_second",
        "Values a second that come to agents, sent or not.",
        offered,
        label,
    )


def _alerts(frame: Frame) -> Iterator[Metric]:
    def each(pick: str) -> Samples:
        return [((a.name,), getattr(a, pick)) for a in frame.alerts]

    label = ("alert",)
    yield _gauge("alert_raised", "Groups in which an alert is raised.", each("raised"), label)
    yield _counter("alert_events", "Events of an alert.", each("events"), label)
    yield _gauge("alert_events_waiting", "Events that no webhook has taken.", each("waiting"), label)
