"""Where commands print: a terminal as wide as it is, or a pipe or file as wide as what is printed."""

from __future__ import annotations

from rich.console import Console

UNBROKEN = 10_000
"""Wider than any table: Rich takes a pipe to be a terminal of 80 columns, and breaks words and numbers."""


def output_console(*, stderr: bool = False) -> Console:
    """A console that breaks and cuts lines only where somebody reads them on a terminal."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=UNBROKEN)
