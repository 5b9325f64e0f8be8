"""``slackwater demo``: a story about standing queries under a burst, in the page and in the terminal."""

from __future__ import annotations

import os
import tempfile
import time
import webbrowser
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from slackwater.errors import RunError
from slackwater.runtime.answers import Answer
from slackwater.runtime.auditing import compare, promises
from slackwater.runtime.json_values import to_micros
from slackwater.runtime.sinks import JsonLinesSink
from slackwater.runtime.status import Status
from slackwater.spark.session import passing_session
from slackwater.terminal.demo_agents import HOSTS, SERVICES
from slackwater.terminal.demo_check import (
    Finding,
    alert_findings,
    audit_findings,
    bounds_findings,
    burst_findings,
    estimate_findings,
    latency_findings,
    show,
)
from slackwater.terminal.demo_dials import TICK_S
from slackwater.terminal.demo_stage import Stage
from slackwater.terminal.demo_truth import queues_truth, traffic_truth, true_load
from slackwater.terminal.open import has_display
from slackwater.terminal.serve import Serve
from slackwater.terminal.view import LiveView, summary

MOST_CORES = 4
PATIENCE_S = 170.0
"""By then the story has been told, or the machine is too slow for it."""


@dataclass(frozen=True)
class Asked:
    """What a user wants of the demo: options of the command."""

    port: int | None = None
    browser: bool = True
    seconds: float | None = None
    check: bool = False


def spark_settings(cores: int | None = None) -> dict[str, str]:
    """Spark on a few cores: the more it has, the more must be made up to be too much for it.

    >>> spark_settings(16)["spark.master"], spark_settings(2)["spark.master"]
    ('local[4]', 'local[2]')
    """
    count = str(min(MOST_CORES, cores or os.cpu_count() or 1))
    return {
        "spark.master": f"local[{count}]",
        "spark.sql.shuffle.partitions": count,
        "spark.default.parallelism": count,
    }


def run_demo(console: Console, asked: Asked, clock: Callable[[], float] = time.monotonic) -> bool:
    """Tell the story; with ``check`` whether it went as told."""
    live = console.is_terminal and not asked.check
    serve = Serve(port=asked.port)
    with ExitStack() as stack:
        # before Spark takes its seconds to start
        listening = serve.listen()
        stack.callback(listening.close)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slackwater-demo-")))
        with console.status("starting Spark …"):
            spark = stack.enter_context(
                passing_session("slackwater demo", folder / "spark.log", spark_settings())
            )
        stage = stack.enter_context(Stage(spark, folder))
        answers = folder / "answers.jsonl"
        with console.status("opening streams …"):
            stage.open(*([JsonLinesSink(answers)] if asked.check else []))
        root = folder / "state"
        address = stack.enter_context(serve.serving(stage.live, root, listening, None, ()))
        console.print(f"page: {address.page}", highlight=False, soft_wrap=True, markup=False)
        if asked.browser and not asked.check and has_display():
            webbrowser.open(address.page)
        try:
            _watch(stage, console, asked, clock, live=live)
        except KeyboardInterrupt:
            console.print("stopping after this batch …")
        stage.session.stop()
        if not asked.check:
            console.print(summary(stage.session.status()))
            if asked.seconds is not None and not stage.dials.told:
                console.print("The story was not told to its end: it takes 75 seconds after warming up.")
            return True
        return show(findings(stage, answers), console)


def _watch(stage: Stage, console: Console, asked: Asked, clock: Callable[[], float], *, live: bool) -> None:
    """Until the time is over, the story is told, or on a terminal until the user interrupts."""
    deadline = clock() + (asked.seconds if asked.seconds is not None else PATIENCE_S)
    endless = live and asked.seconds is None
    if endless:
        console.print("Ctrl+C ends it, during the story and after it")

    def status() -> Status:
        return replace(stage.session.status(), message=stage.dials.knobs().chapter)

    told = ""
    with LiveView(console, status) if live else ExitStack():
        while not stage.session.wait(TICK_S):
            chapter = stage.dials.knobs().chapter
            if not live and chapter != told:
                console.print(chapter, highlight=False, markup=False, soft_wrap=True)
                told = chapter
            if endless:
                continue
            if asked.seconds is None and stage.dials.over:
                return
            if clock() >= deadline:
                if asked.seconds is not None:
                    return
                raise RunError(
                    f"the story was not told within {PATIENCE_S:g} seconds: this machine is too busy for it"
                )


def findings(stage: Stage, answers_file: Path) -> list[Finding]:
    """What is found when the run is over, from what it has said and from what was made for it."""
    with answers_file.open("rb") as file:
        answers = [Answer.from_json(line) for line in file]
    catalog, batches, chapters = stage.session.catalog, stage.batches.batches, stage.dials.chapters
    contracts = {step.name: catalog.contracts[name] for name, step in catalog.queries.items()}
    until = batches[-1].newest
    truth = [*traffic_truth(stage.packets, until), *queues_truth(stage.queues, _last(answers, "delay"))]
    report = compare(answers, truth, promises([catalog]))
    late = sum(s.late for s in stage.session.status().streams if s.name == "hosts")
    bounded = [a for a in answers if a.query in ("total_load", "host_load")]

    def true(answer: Answer) -> float | None:
        host = answer.group.get("host")
        moment = to_micros(answer.at) if answer.at is not None else 0
        return true_load(stage.fleet, moment, None if host is None else str(host))

    return [
        *burst_findings(batches, chapters),
        *latency_findings(batches, chapters, stage.interval),
        *audit_findings(report, contracts),
        *estimate_findings(answers, contracts, chapters),
        *alert_findings(stage.receiver.events),
        *bounds_findings(bounded, true, _keys, late),
    ]


def _keys(answer: Answer) -> int:
    """How many services an answer of the agents is about."""
    return len(SERVICES) * (1 if answer.keys else len(HOSTS))


def _last(answers: list[Answer], query: str) -> int:
    """The last time that a query has spoken of."""
    return max((to_micros(a.at) for a in answers if a.query == query and a.at is not None), default=0)
