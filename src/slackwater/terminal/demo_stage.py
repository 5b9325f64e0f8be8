"""All that the demo needs, put together: a hub with agents, streams that can be dialled, a session."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Self

from slackwater.edge.hub_thread import HubThread
from slackwater.language.statements import CreateStream
from slackwater.runtime.running import OpenSource
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.sinks import Sink
from slackwater.service.live import Live
from slackwater.spark.execute import SparkSession
from slackwater.spark.source import StreamSource
from slackwater.spark.trace import GeneratedTrace, Generator
from slackwater.spark.trace_source import TraceSource
from slackwater.terminal.demo_agents import LOST, Fleet
from slackwater.terminal.demo_dials import DemoDials
from slackwater.terminal.demo_load import BatchLog
from slackwater.terminal.demo_network import ROUTES, longest_prefix
from slackwater.terminal.demo_queues import DialledWalks
from slackwater.terminal.demo_tolerance import Tolerance
from slackwater.terminal.demo_traffic import DialledTraffic
from slackwater.terminal.demo_webhook import Receiver

SMALL = 4
"""Cores below which a machine is a small one."""
UTILISATION = 70
"""Percent of an interval that a batch may take: agents, routers, page and terminal need some of it too."""
RATE = 1_600.0
"""Packets a second while it is calm."""


def demo_sql(hub: str, webhook: str) -> str:
    """The statements of the demo, for a hub and a webhook by their addresses."""
    text = (resources.files("slackwater.terminal") / "demo.sql").read_text()
    return text.replace("{hub}", hub).replace("{webhook}", webhook)


def seconds_between_batches(cores: int) -> float:
    """How often there is a batch: of each, Spark alone takes most of a second on a small machine.

    >>> seconds_between_batches(2), seconds_between_batches(4)
    (3.0, 2.0)
    """
    return 3.0 if cores < SMALL else 2.0


class Stage:
    """The demo from entering to leaving; ``open`` sets it going.

    Event time is the time of day from when the first stream was opened, whatever Spark takes to read it.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._folder = folder
        self.interval = seconds_between_batches(spark.sparkContext.defaultParallelism)
        self._stack = ExitStack()
        self._spark = spark
        self._since: float | None = None
        self.hub = HubThread(folder / "hub")
        self.receiver = Receiver()
        self.packets = DialledTraffic(datetime.now(UTC), rate=RATE)

    def __enter__(self) -> Self:
        try:
            self._stack.enter_context(self.hub)
            self._stack.enter_context(self.receiver)
            self._make()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _make(self) -> None:
        self.session = Session(
            self._spark,
            self._folder / "state",
            Settings(trigger_ms=round(self.interval * 1000), utilisation=UTILISATION),
            sources=self._sources(),
        )
        self.session.function("network", longest_prefix(ROUTES), "string")
        self.session.sql(demo_sql(self.hub.url, self.receiver.url), file="demo.sql")
        options = dict(self.session.catalog.streams["queues"].options)
        self.queues = DialledWalks(options, self.packets.origin)
        self.fleet = Fleet(self.hub.url)
        self.batches = BatchLog("packets")
        self.session.watchers.append(lambda engine: engine.observers.append(self.batches))
        self._tolerance = Tolerance(self.session.catalog)
        self.dials = DemoDials(
            self.batches,
            rate=RATE,
            interval=self.interval,
            set_load=self.packets.turn,
            set_tolerance=self._tolerate,
            interrupt=self._interrupt,
        )
        self.live = Live(self.session, dials=self.dials, name="demo")

    def _sources(self) -> Mapping[str, OpenSource]:
        def opened(generator: Generator, spark: SparkSession, stream: CreateStream) -> StreamSource:
            if self._since is None:
                self._begin()
            trace = GeneratedTrace(generator, self._folder / stream.name)
            return TraceSource(spark, stream, trace, 1.0, 1, since=self._since)

        return {
            "packets": lambda spark, stream: opened(self.packets, spark, stream),
            "queues": lambda spark, stream: opened(self.queues, spark, stream),
        }

    def _begin(self) -> None:
        now, self._since = datetime.now(UTC), time.monotonic()
        # at a whole second, so that windows and seconds begin together
        origin = now.replace(microsecond=0)
        self._since -= (now - origin).total_seconds()
        self.packets.origin = self.queues.origin = origin

    def open(self, *sinks: Sink) -> None:
        """Start the run, its agents, its frames and the story."""
        self.session.start(*sinks)
        self._stack.callback(self.session.stop)
        self._stack.enter_context(self.fleet)
        self.live.start()
        self._stack.callback(self.live.stop)
        self._stack.enter_context(self.dials)

    def _tolerate(self, factor: float) -> None:
        self._tolerance.set(factor, self.session.catalog, self.session.sql)

    def _interrupt(self, interrupted: bool) -> None:
        self.fleet.lose(*([LOST] if interrupted else []))
        self.queues.silence(interrupted)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
