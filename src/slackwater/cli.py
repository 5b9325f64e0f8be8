"""The command line: run, explain and check files of SQL; benchmarks and the demo."""

from __future__ import annotations

import importlib
import importlib.util
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from typer.core import TyperGroup

from slackwater.errors import SlackwaterError
from slackwater.language.durations import parse_duration
from slackwater.terminal.console import output_console

if TYPE_CHECKING:
    from slackwater.plan.catalog import Catalog

_ELSEWHERE = {
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

File = Annotated[Path, typer.Argument(help="A file of SQL: streams, tables, views and queries.")]
Import = Annotated[
    list[Path] | None,
    typer.Option("--import", help="A Python file with register(session): your functions and aggregates."),
]
errors = Console(stderr=True, highlight=False, soft_wrap=True)


@contextmanager
def plain_errors() -> Iterator[None]:
    """What went wrong, in words, and exit code 1; a traceback only for what nobody expected."""
    try:
        yield
    except SlackwaterError as error:
        errors.print(f"[bold red]error:[/] {_escaped(str(error))}")
        raise typer.Exit(1) from None
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        errors.print(f"[bold red]error:[/] {_escaped(f'{place}{error.strerror or error}')}")
        raise typer.Exit(1) from None


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SlackwaterError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SlackwaterError(f"cannot read {path}: expected SQL as UTF-8 text") from None


def _registered(paths: list[Path] | None, target: Any) -> None:
    """Let the user's files register their functions."""
    for path in paths or ():
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None or not path.exists():
            raise SlackwaterError(f"--import {path}: expected a Python file")
        module = importlib.util.module_from_spec(spec)
        with _user_code(path):
            spec.loader.exec_module(module)
        if not hasattr(module, "register"):
            raise SlackwaterError(f"--import {path}: expected a function register(session) in it, found none")
        with _user_code(path):
            module.register(target)


@contextmanager
def _user_code(path: Path) -> Iterator[None]:
    """What a user's file raises, with its line."""
    try:
        yield
    except SlackwaterError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f.lineno for f in frames if Path(f.filename).resolve() == path.resolve()]
        where = f", line {lines[-1]}" if lines else ""
        raise SlackwaterError(f"--import {path}{where}: {type(error).__name__}: {error}") from error


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
        catalog = _catalog(file, import_)
        _check_agents(catalog)
        if not quick:
            from slackwater.terminal.check import check_file

            check_file(_read(file), str(file), lambda session: _registered(import_, session), errors)
        kinds = {"stream": len(catalog.streams), "table": len(catalog.tables), "query": len(catalog.queries)}
        if catalog.alerts:
            kinds["alert"] = len(catalog.alerts)
        counted = ", ".join(f"{n} {k if n == 1 else _plural(k)}" for k, n in kinds.items())
        typer.echo(f"{file}: {counted}, all in order")
        for name, step in catalog.queries.items():
            typer.echo(f"  {step.name}: {catalog.contracts[name]}")


def _plural(kind: str) -> str:
    return "queries" if kind == "query" else f"{kind}s"


def _catalog(file: Path, imports: list[Path] | None) -> Catalog:
    from slackwater.plan.catalog import Catalog
    from slackwater.plan.functions import FunctionRegistry

    registry = FunctionRegistry()
    _registered(imports, registry)
    return Catalog.from_sql(_read(file), registry.functions, file=str(file))


def _check_agents(catalog: Catalog) -> None:
    """Raise where a stream of agents is declared wrongly; say what in one has no effect."""
    from slackwater.plan.agents import check_agents

    for warning in check_agents(catalog):
        errors.print(f"[bold yellow]warning:[/] {_escaped(str(warning))}")


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

        plan = extend(Plan(), _catalog(file, import_))
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
        multiple = _multiple(load) if load is not None else 1.0
        from slackwater.terminal.explain_run import Trial, explain_live, explain_load

        seconds = _seconds(for_) or (20.0 if live else 15.0)
        settings, sparks = _settings(set_)
        if sparks:
            raise SlackwaterError("--set spark.… goes with run")
        trial = Trial(_read(file), str(file), seconds, settings, lambda s: _registered(import_, s))
        if live:
            explain_live(trial, output_console(), errors)
        else:
            explain_load(trial, multiple, cores, output_console(), errors)


def _multiple(text: str) -> float:
    try:
        multiple = float(text.lower().removesuffix("x"))
    except ValueError:
        multiple = 0.0
    if not 0 < multiple < float("inf"):
        raise SlackwaterError(f"--load {text}: expected a multiple of the measured load, such as 4x")
    return multiple


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
        seconds = _seconds(for_)
        settings, spark_settings = _settings(set_)
        text = _read(file)
        # a mistake in the file is told before Spark takes its seconds to start
        _check_agents(_catalog(file, import_))
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
            register=lambda session: _registered(import_, session),
            console=output_console(),
            serve=Serve(host, port, token_file) if serve else None,
            imports=import_ or (),
        )


@app.command()
def audit(
    folder: Annotated[Path, typer.Argument(help="What `slackwater run FILE --record DIR` has recorded.")],
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
            register=lambda session: _registered(import_, session),
            queries=query or (),
            json_file=json_,
            console=output_console(),
            talk=errors,
        )
    if not passed:
        raise typer.Exit(1)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_duration(text) / 1e6
    except ValueError as error:
        raise SlackwaterError(f"--for: {error}") from None


def _settings(pairs: list[str] | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Our settings and Spark's, from key=value."""
    from slackwater.runtime.session import Settings

    known = {f.name for f in fields(Settings)}
    ours: dict[str, Any] = {}
    sparks: dict[str, str] = {}
    for pair in pairs or ():
        key, separator, value = pair.partition("=")
        if not separator:
            raise SlackwaterError(f"--set {pair}: expected key=value")
        if key.startswith("spark."):
            sparks[key] = value
        elif key in ("shedding", "objective", "deferral"):
            ours[key] = value
        elif key == "margin":
            try:
                ours[key] = float(value)
            except ValueError:
                raise SlackwaterError(
                    f"--set margin: expected a number such as 0.01, got {value!r}"
                ) from None
        elif key in known:
            if not (value.isascii() and value.isdigit() and int(value) > 0):
                raise SlackwaterError(f"--set {key}: expected a whole number above 0, got {value!r}")
            ours[key] = int(value)
        else:
            raise SlackwaterError(
                f"--set {key}: there is no such setting; there are {', '.join(sorted(known))} "
                "and all of spark.…"
            )
    return ours, sparks


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
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port of the page; 8400, or a free one.")
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address of the page.")
    ] = False,
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


Recording = Annotated[Path, typer.Argument(help="What `slackwater run FILE --record DIR` has recorded.")]


@app.command("open")
def open_(
    folder: Recording,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port of the page; 8400, or a free one.")
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address of the page.")
    ] = False,
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


def main() -> None:
    app()


if __name__ == "__main__":
    main()
