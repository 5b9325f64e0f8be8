"""Prometheus metrics of a run, made of the newest frame when somebody asks.

Names follow the conventions: a prefix, base units, `_total` for what only grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isinf

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from slackwater.runtime.batch_times import BatchTimes
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
        yield _batch_times(self._watched.batch_times())
        yield from _queries(frame.queries[:QUERIES_AT_MOST])
        yield from _agents(frame)
        yield from _alerts(frame)
        yield _gauge(
            "event_stream_readers",
            "Readers of event streams that are there now.",
            [((), self._readers.count)],
        )
        yield _counter(
            "events_sent", "Events that all readers together were sent.", [((), self._readers.sent)]
        )


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


def _batch_times(times: Mapping[str, BatchTimes]) -> Metric:
    text = "How long the batches of a stream took since the run was started."
    family = HistogramMetricFamily("slackwater_batch_seconds", text, labels=("stream",))
    for stream, took in times.items():
        buckets = [("+Inf" if isinf(bound) else str(bound), float(count)) for bound, count in took.at_most()]
        family.add_metric((stream,), buckets, took.seconds)
    return family


def _run(frame: Frame) -> Iterator[Metric]:
    text = "The loss level: 0 while nothing is shed, above 1 where contracts are not kept."
    yield _gauge("level", text, [((), frame.level)])
    yield _gauge(
        "load_seconds", "Executor seconds that batches would take if nothing was shed.", [((), frame.load)]
    )
    yield _gauge(
        "kept_load_seconds",
        "Executor seconds that batches take as they are shed now.",
        [((), frame.kept_load)],
    )
    yield _gauge("capacity_seconds", "Executor seconds that batches may take.", [((), frame.capacity)])
    phases = ("starting", "running", "ended", "stopped", "failed")
    states = [((phase,), float(frame.phase == phase)) for phase in phases]
    yield _gauge("phase", "1 for the phase that the run is in, 0 for the others.", states, ("phase",))
    text = "Number of the query set; it grows with each change of queries."
    yield _gauge("query_set_version", text, [((), frame.version)])


def _streams(streams: list[StreamFrame]) -> Iterator[Metric]:
    def each(pick: str) -> Samples:
        return [((s.name,), getattr(s, pick)) for s in streams]

    label = ("stream",)
    yield _counter("batches", "Batches of a stream, over all parts of a run.", each("batch"), label)
    yield _counter("rows", "Rows of a stream that have arrived.", each("rows"), label)
    yield _counter("late_rows", "Rows that came after their windows had closed.", each("late"), label)
    yield _counter("unreadable_rows", "Rows that could not be read.", each("unreadable"), label)
    yield _gauge(
        "rows_per_second", "Rows of a stream that arrive in a second.", each("rows_per_second"), label
    )
    text = "How far the reading of a stream is behind its source."
    yield _gauge("lag_seconds", text, each("lag_seconds"), label)
    text = "How long the last batch of a stream took."
    yield _gauge("last_batch_seconds", text, each("batch_seconds"), label)
    text = "For how long the batch that runs now has been running; absent between batches."
    yield _gauge("running_batch_seconds", text, each("running_seconds"), label)
    text = "Share of the last batch's rows that some query has looked at."
    yield _gauge("kept_ratio", text, each("kept"), label)
    text = "The loss level that the last batch of a stream was planned for."
    yield _gauge("stream_level", text, each("level"), label)


def _queries(queries: list[QueryFrame]) -> Iterator[Metric]:
    def each(pick: str) -> Samples:
        return [((q.name,), getattr(q, pick)) for q in queries]

    label = ("query",)
    yield _counter("answers", "Answers that a query has given.", each("answers"), label)
    met = [((q.name,), None if q.met is None else float(q.met)) for q in queries]
    yield _gauge("contract_met", "1 where the last answers of a query kept its contract.", met, label)
    text = "Half the width of a query's last interval over its value."
    yield _gauge("error_ratio", text, each("error"), label)
    text = "Share of rows, under SUBSET of windows, that a query is answered from."
    yield _gauge("kept_rows_ratio", text, each("rate"), label)
    text = "A query's part of the load, in executor seconds of a batch."
    yield _gauge("query_load_seconds", text, each("load"), label)
    yield _gauge("suspended", "1 while there is no capacity for a query.", each("suspended"), label)
    text = "Evaluations under DRIFT that were due and not had in time."
    yield _counter("missed_evaluations", text, each("missed"), label)
    yield _counter("evaluations", "Evaluations under DRIFT that were run.", each("evaluated"), label)
    for pick, text in (
        ("value", "The last answer of a query, of the column and group that its card shows."),
        ("low", "The low end of the interval of that answer."),
        ("high", "The high end of the interval of that answer."),
    ):
        points = [
            ((q.name, q.column or "", _group(q)), getattr(q.points[-1], pick)) for q in queries if q.points
        ]
        # without its group a series would become that of another one when this one is gone
        yield _gauge(f"answer_{pick}", text, points, ("query", "column", "group"))


def _group(query: QueryFrame) -> str:
    """The group of a query's points; empty where there are none."""
    return ", ".join(f"{key}={'NULL' if value is None else value}" for key, value in query.keys.items())


def _agents(frame: Frame) -> Iterator[Metric]:
    def each(pick: str) -> Samples:
        return [((a.stream,), getattr(a, pick)) for a in frame.agents]

    label = ("stream",)
    yield _gauge("agents_connected", "Agents of a stream that are there.", each("there"), label)
    yield _gauge("agents_known", "Agents of a stream that have ever been there.", each("known"), label)
    text = "How often agents of a stream were away, all together."
    yield _counter("agent_interruptions", text, each("interruptions"), label)
    yield _gauge("agent_keys", "Keys that agents of a stream have.", each("keys"), label)
    text = "Updates a second that agents send: what has left its bound."
    yield _gauge("agent_updates_per_second", text, each("updates_per_second"), label)
    text = "Grants a second that are sent to agents: wider bounds."
    yield _gauge("agent_grants_per_second", text, each("grants_per_second"), label)
    text = "Values a second that come to agents, sent or not."
    yield _gauge("agent_values_per_second", text, each("offered_per_second"), label)


def _alerts(frame: Frame) -> Iterator[Metric]:
    def each(pick: str) -> Samples:
        return [((a.name,), getattr(a, pick)) for a in frame.alerts]

    label = ("alert",)
    text = "Groups in which an alert is raised; 1 or 0 without groups."
    yield _gauge("alert_raised", text, each("raised"), label)
    yield _counter("alert_events", "Times that an alert was raised or cleared.", each("events"), label)
    text = "Events of an alert that some webhook has not taken yet."
    yield _gauge("alert_events_waiting", text, each("waiting"), label)
    text = "Events of an alert that were dropped, since too many waited."
    yield _counter("alert_events_lost", text, each("lost"), label)
    text = "Attempts to tell a webhook of an alert that have failed."
    yield _counter("alert_failed_attempts", text, each("failed"), label)
