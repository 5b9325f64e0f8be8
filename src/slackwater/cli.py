"""The command line: run, explain, check and audit files of SQL, and whatever other modules bring."""

from __future__ import annotations

import importlib
import importlib.util
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from slackwater.errors import SlackwaterError
from slackwater.terminal.arguments import (
    File,
    Import,
    Recording,
    catalog_of,
    check_agent_streams,
    errors,
    multiple_of,
    plain_errors,
    read_sql,
    registered,
    seconds_of,
    settings_of,
)
from slackwater.terminal.console import output_console

_ELSEWHERE = {
    "demo": ("slackwater.terminal.commands", "app", "demo"),
    "open": ("slackwater.terminal.commands", "app", "open"),
    "report": ("slackwater.terminal.commands", "app", "report"),
    "watch": ("slackwater.terminal.commands", "app", "watch"),
    "agent": ("slackwater.edge.commands", "app", "agent"),
    "hub": ("slackwater.edge.commands", "app", "hub"),
    "forget": ("slackwater.edge.commands", "app", "forget"),
    "deadbands": ("slackwater.edge.commands", "app", "deadbands"),
    "bench": ("slackwater.benchmarks.app", "bench", None),
    "reproduce": ("slackwater.experiments.app", "reproduce", None),
}
"""Commands of other modules: the module, its app, and the command in it, or None for the whole app."""


class _Commands(TyperGroup):
    """Loads what belongs to a command when that one is asked for: an agent's host may have no Spark."""

    # typer has a private copy of click, whose classes are not to be named here: Any

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *filter(_is_there, _ELSEWHERE)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _ELSEWHERE or not _is_there(cmd_name):
            return super().get_command(ctx, cmd_name)
        module, name, inner = _ELSEWHERE[cmd_name]
        command: Any = typer.main.get_command(getattr(importlib.import_module(module), name))
        return command if inner is None else command.commands[inner]


def _is_there(command: str) -> bool:
    return importlib.util.find_spec(_ELSEWHERE[command][0]) is not None


# the same as language.statements.ExplainFormat, whose module is slow to load
ExplainFormat = Literal["text", "json", "dot", "svg"]

app = typer.Typer(
    name="slackwater",
    cls=_Commands,
    help="Standing queries over data streams on Spark, with a contract for every answer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def check(
    file: File,
    import_: Import = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Syntax, names and contracts only, without starting Spark.")
    ] = False,
) -> None:
    """Check a file: syntax, names and contracts, then types and functions by Spark. Nothing runs."""
    with plain_errors():
        catalog = catalog_of(file, import_)
        check_agent_streams(catalog)
        if not quick:
            from slackwater.terminal.check import check_file

            check_file(read_sql(file), str(file), lambda session: registered(import_, session), errors)
        kinds = {"stream": len(catalog.streams), "table": len(catalog.tables), "query": len(catalog.queries)}
        if catalog.alerts:
            kinds["alert"] = len(catalog.alerts)
        counted = ", ".join(f"{n} {k if n == 1 else _plural(k)}" for k, n in kinds.items())
        typer.echo(f"{file}: {counted}, all in order")
        for name, step in catalog.queries.items():
            typer.echo(f"  {step.name}: {catalog.contracts[name]}")


def _plural(kind: str) -> str:
    return "queries" if kind == "query" else f"{kind}s"


@app.command()
def explain(
    file: File,
    name: Annotated[str | None, typer.Argument(help="Only this stream, view or query.")] = None,
    format: Annotated[ExplainFormat, typer.Option(help="The form of the plan.")] = "text",
    import_: Import = None,
    live: Annotated[
        bool,
        typer.Option(
            "--live", help="Run it for a while, answers going nowhere, and show rows, times and load."
        ),
    ] = False,
    load: Annotated[
        str | None,
        typer.Option(help="Measure it, then say what error each query would get at this load, such as 4x."),
    ] = None,
    cores: Annotated[
        int | None, typer.Option(min=1, help="With --load: on so many cores, not on this machine.")
    ] = None,
    for_: Annotated[
        str | None, typer.Option("--for", help="How long to run: 20s with --live, 15s with --load.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="With --live or --load: a setting, as in run.")
    ] = None,
) -> None:
    """Show the shared plan of a file: one tree per stream, what its queries share, what panes hold.

    With --live and --load the file is run for a while to learn what it costs.
    """
    with plain_errors():
        from slackwater.plan.explain import explain as explain_plan
        from slackwater.plan.layout import extend
        from slackwater.plan.tables import Plan

        plan = extend(Plan(), catalog_of(file, import_))
        if not live and load is None:
            if cores is not None or for_ is not None or set_:
                raise SlackwaterError("--cores, --for and --set go with --live or --load")
            typer.echo(explain_plan(plan, format, name))
            return
        if (live and load is not None) or name is not None or format != "text":
            raise SlackwaterError("--live and --load stand alone: neither both, nor a name or --format")
        if cores is not None and load is None:
            raise SlackwaterError("--cores goes with --load")
        agents = [s.name for s in plan.catalog.streams.values() if s.format.lower() == "agents"]
        if agents:
            raise SlackwaterError(
                f"stream {agents[0]} is sent by agents: to run it for a while would take it over from the "
                "run that reads it; in a session that runs, Session.explain() shows widths and messages"
            )
        multiple = multiple_of(load) if load is not None else 1.0
        from slackwater.terminal.explain_run import Trial, explain_live, explain_load

        seconds = seconds_of(for_) or (20.0 if live else 15.0)
        settings, sparks = settings_of(set_)
        if sparks:
            raise SlackwaterError("--set spark.… goes with run")
        trial = Trial(read_sql(file), str(file), seconds, settings, lambda s: registered(import_, s))
        if live:
            explain_live(trial, output_console(), errors)
        else:
            explain_load(trial, multiple, cores, output_console(), errors)


@app.command()
def run(
    file: File,
    for_: Annotated[str | None, typer.Option("--for", help="Stop after so long, such as 30s.")] = None,
    answers: Annotated[
        str | None,
        typer.Option(help="Where answers go: a .jsonl file, a folder for Parquet, or - for stdout."),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value: a setting, or one of Spark's.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Where the run keeps what it needs to go on; .slackwater/NAME by default."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget an earlier run of this file and start over.")
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(
            help="A folder for all that `slackwater audit` needs: every row as it arrived, before anything "
            "is shed. It costs a full read of every batch, and the room for its rows."
        ),
    ] = None,
    import_: Import = None,
    serve: Annotated[bool, typer.Option(help="Serve the page and the API of the run.")] = True,
    host: Annotated[str, typer.Option(help="Where to serve; other than this machine only with a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Where to serve: 8400, or any where that is taken. 0: any."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token for changes; one is made where none is given.")
    ] = None,
) -> None:
    """Run a file of SQL and serve its page. Killed or stopped, the same command goes on where it was."""
    with plain_errors():
        seconds = seconds_of(for_)
        settings, spark_settings = settings_of(set_)
        text = read_sql(file)
        # a mistake in the file is told before Spark takes its seconds to start
        check_agent_streams(catalog_of(file, import_))
        from slackwater.terminal.run import run_file
        from slackwater.terminal.serve import Serve

        root = state if state is not None else Path(".slackwater") / file.stem
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        run_file(
            text,
            file=str(file),
            root=root,
            seconds=seconds,
            answers=answers,
            settings=settings,
            spark_settings=spark_settings,
            fresh=fresh,
            record=record,
            register=lambda session: registered(import_, session),
            console=output_console(),
            serve=Serve(host, port, token_file) if serve else None,
            imports=import_ or (),
        )


@app.command()
def audit(
    folder: Recording,
    import_: Import = None,
    json_: Annotated[
        Path | None, typer.Option("--json", help="Also write the report to this file, for machines.")
    ] = None,
    query: Annotated[
        list[str] | None, typer.Option("--query", help="Report on this query only; may be repeated.")
    ] = None,
) -> None:
    """Replay a recorded run without shedding, and compare its answers with the true ones.

    Exit code 1 where a promise was broken: an exact answer differs or is missing, a row was delivered that
    there is not, more answers in a row are missing than GAP allows, or intervals hold the truth less often
    than they claim, by more than chance.
    """
    with plain_errors():
        from slackwater.terminal.audit import audit_folder

        passed = audit_folder(
            folder,
            register=lambda session: registered(import_, session),
            queries=query or (),
            json_file=json_,
            console=output_console(),
            talk=errors,
        )
    if not passed:
        raise typer.Exit(1)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
