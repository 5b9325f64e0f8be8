"""The command line: run, explain and check files of SQL; benchmarks and the demo."""

from __future__ import annotations

import importlib.util
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from slackwater.errors import SlackwaterError
from slackwater.language.durations import parse_duration
from slackwater.language.statements import ExplainFormat
from slackwater.plan.catalog import Catalog
from slackwater.plan.explain import explain as explain_plan
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.tables import Plan

app = typer.Typer(
    name="slackwater",
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
        if not quick:
            from slackwater.terminal.check import check_file

            check_file(_read(file), str(file), lambda session: _registered(import_, session), errors)
        kinds = {"stream": len(catalog.streams), "table": len(catalog.tables), "query": len(catalog.queries)}
        counted = ", ".join(f"{n} {k if n == 1 else _plural(k)}" for k, n in kinds.items())
        typer.echo(f"{file}: {counted}, all in order")
        for name, step in catalog.queries.items():
            typer.echo(f"  {step.name}: {catalog.contracts[name]}")


def _plural(kind: str) -> str:
    return "queries" if kind == "query" else f"{kind}s"


class _Registry:
    """Takes what register(session) registers, where there is no session."""

    def __init__(self) -> None:
        self.functions = Functions()

    def function(self, name: str, function: Any, returns: str) -> None:
        self.functions = self.functions.with_scalar(name, returns)

    def aggregate(self, name: str, aggregate: Any) -> None:
        self.functions = self.functions.with_aggregate(name, aggregate)


def _catalog(file: Path, imports: list[Path] | None) -> Catalog:
    registry = _Registry()
    _registered(imports, registry)
    return Catalog.from_sql(_read(file), registry.functions, file=str(file))


@app.command()
def explain(
    file: File,
    name: Annotated[str | None, typer.Argument(help="Only this stream, view or query.")] = None,
    format: Annotated[ExplainFormat, typer.Option(help="The form of the plan.")] = "text",
    import_: Import = None,
) -> None:
    """Show the shared plan of a file: one tree per stream, what its queries share, what panes hold."""
    with plain_errors():
        typer.echo(explain_plan(extend(Plan(), _catalog(file, import_)), format, name))


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
    import_: Import = None,
) -> None:
    """Run a file of SQL. Killed or stopped, the same command goes on where it was."""
    with plain_errors():
        seconds = _seconds(for_)
        settings, spark_settings = _settings(set_)
        text = _read(file)
        # a mistake in the file is told before Spark takes its seconds to start
        _catalog(file, import_)
        from slackwater.terminal.run import run_file

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
            register=lambda session: _registered(import_, session),
            console=Console(),
        )


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
        elif key == "shedding":
            ours[key] = value
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
    seconds: Annotated[int, typer.Option("--for-seconds", help="How long to run.")] = 60,
) -> None:
    """Watch standing queries over bursty generated traffic, live."""
    with plain_errors():
        from slackwater.terminal.demo import run_demo

        run_demo(Console(), float(seconds))


def main() -> None:
    app()


def _mount_benchmarks() -> None:
    from slackwater.benchmarks.app import bench

    app.add_typer(bench, name="bench")


if importlib.util.find_spec("slackwater.benchmarks.app") is not None:
    _mount_benchmarks()

if __name__ == "__main__":
    main()
