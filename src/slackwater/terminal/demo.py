"""``slackwater demo``: standing queries over a burst, live."""

from __future__ import annotations

import tempfile
from importlib import resources
from pathlib import Path

from rich.console import Console

from slackwater.plan.catalog import Catalog
from slackwater.plan.explain import explain
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.tables import Plan
from slackwater.terminal.run import run_file


def demo_sql() -> str:
    return (resources.files("slackwater.terminal") / "demo.sql").read_text()


def run_demo(console: Console, seconds: float) -> None:
    """Show the plan, then run it until the time is over."""
    text = demo_sql()
    console.rule("one tree for all queries: slackwater explain")
    console.print(
        explain(extend(Plan(), Catalog.from_sql(text, Functions())), "text"), highlight=False, soft_wrap=True
    )
    console.rule("the same, running: slackwater run")
    with tempfile.TemporaryDirectory(prefix="slackwater-demo-") as folder:
        run_file(
            text,
            file="demo.sql",
            root=Path(folder) / "state",
            seconds=seconds,
            answers=None,
            settings={},
            spark_settings={},
            fresh=False,
            register=lambda session: None,
            console=console,
        )
