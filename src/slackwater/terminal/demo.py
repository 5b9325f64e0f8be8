"""``slackwater demo``: standing queries over a burst, live."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from importlib import resources
from ipaddress import ip_network
from pathlib import Path

from rich.console import Console

from slackwater.plan.catalog import Catalog
from slackwater.plan.explain import explain
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.tables import Plan
from slackwater.terminal.run import run_file

PREFIXES = ("10.0.0.0/8", "10.0.0.0/16", "10.0.0.0/22", "10.0.2.0/23", "10.0.4.0/22", "10.0.4.128/25")
"""Networks of the demo, several of them inside others."""


def longest_prefix(prefixes: Sequence[str]) -> Callable[[str | None], str | None]:
    """A function that finds the smallest of some networks that an address lies in.

    >>> find = longest_prefix(["10.0.0.0/8", "10.1.0.0/16"])
    >>> find("10.1.2.3"), find("10.2.2.3"), find("192.168.0.1"), find(None)
    ('10.1.0.0/16', '10.0.0.0/8', None, None)
    """
    by_length: dict[int, dict[int, str]] = {}
    for prefix in prefixes:
        network = ip_network(prefix)
        shift = 32 - network.prefixlen
        by_length.setdefault(shift, {})[int(network.network_address) >> shift] = prefix
    shifts = sorted(by_length.items())

    def find(address: str | None) -> str | None:
        if address is None:
            return None
        a, b, c, d = address.split(".")
        number = (int(a) << 24) | (int(b) << 16) | (int(c) << 8) | int(d)
        for shift, networks in shifts:
            found = networks.get(number >> shift)
            if found is not None:
                return found
        return None

    return find


def demo_sql() -> str:
    return (resources.files("slackwater.terminal") / "demo.sql").read_text()


def _heading(console: Console, text: str) -> None:
    if console.is_terminal:
        console.rule(text)
    else:
        # a pipe has no width for a rule to fill
        console.print(text)


def run_demo(console: Console, seconds: float) -> None:
    """Show the plan, then run it until the time is over."""
    text = demo_sql()
    functions = Functions().with_scalar("network", "string")
    _heading(console, "one tree for all queries: slackwater explain")
    console.print(
        explain(extend(Plan(), Catalog.from_sql(text, functions)), "text"), highlight=False, soft_wrap=True
    )
    _heading(console, "the same, running: slackwater run")
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
            register=lambda session: session.function("network", longest_prefix(PREFIXES), "string"),
            console=console,
        )
