"""The commands that show something: the demo, a recorded run in the page or as a report, a run over SSH."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slackwater.errors import SlackwaterError
from slackwater.terminal.arguments import Import, Recording, errors, plain_errors
from slackwater.terminal.console import output_console

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="The port of the page; 8400, or a free one.")
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Only print the address of the page.")]


@app.command()
def demo(
    seconds: Annotated[
        int | None,
        typer.Option(
            "--for-seconds",
            min=1,
            help="How long to run, warming up included; without it on a terminal until Ctrl+C.",
        ),
    ] = None,
    port: Port = None,
    no_browser: NoBrowser = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Tell the story once and hold its answers against the truth: exit code 1 if not."
        ),
    ] = False,
) -> None:
    """Watch a story in the page: calm, a burst to five times what this machine can do, calm again."""
    with plain_errors():
        from slackwater.terminal.demo import Asked, run_demo

        if check and seconds is not None:
            raise SlackwaterError("--check tells the whole story: leave --for-seconds out")
        passed = run_demo(output_console(), Asked(port, not no_browser, seconds, check))
    if not passed:
        raise typer.Exit(1)


@app.command("open")
def open_(
    folder: Recording,
    port: Port = None,
    no_browser: NoBrowser = False,
    import_: Import = None,
) -> None:
    """Look at a recorded run in the page, as it was. --import is for audits that are started there."""
    with plain_errors():
        from slackwater.terminal.open import open_folder

        open_folder(
            folder,
            port=port,
            browser=not no_browser,
            imports=import_ or (),
            console=output_console(),
            talk=errors,
        )


@app.command()
def report(
    folder: Recording,
    out: Annotated[Path | None, typer.Option(help="The file to write; DIR/report.html by default.")] = None,
) -> None:
    """Write one HTML file about a recorded run: what was run, its plots and numbers. It needs no network."""
    with plain_errors():
        from slackwater.terminal.report import report_folder

        report_folder(folder, out, output_console(), errors)


@app.command()
def watch(
    url: Annotated[str, typer.Argument(help="Where the service of a run is.")] = "http://127.0.0.1:8400",
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file with the token, where reading needs one; else SLACKWATER_SERVICE_TOKEN."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show one picture and end.")] = False,
) -> None:
    """Watch a run in the terminal: load against capacity, the level, streams, queries, agents, alerts."""
    with plain_errors():
        from slackwater.terminal.watch import watch_url

        watch_url(url, token_file=token_file, once=once, console=output_console(), talk=errors)
