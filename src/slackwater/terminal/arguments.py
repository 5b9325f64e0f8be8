"""What commands have in common: their arguments, read and checked, and how they say what went wrong."""

from __future__ import annotations

import importlib.util
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from slackwater.errors import SlackwaterError
from slackwater.language.durations import parse_duration

if TYPE_CHECKING:
    from slackwater.plan.catalog import Catalog

File = Annotated[Path, typer.Argument(help="A file of SQL: streams, tables, views and queries.")]
Import = Annotated[
    list[Path] | None,
    typer.Option("--import", help="A Python file with register(session): your functions and aggregates."),
]
Recording = Annotated[Path, typer.Argument(help="What `slackwater run FILE --record DIR` has recorded.")]
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


def read_sql(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SlackwaterError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SlackwaterError(f"cannot read {path}: expected SQL as UTF-8 text") from None


def registered(paths: list[Path] | None, target: Any) -> None:
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


def catalog_of(file: Path, imports: list[Path] | None) -> Catalog:
    from slackwater.plan.catalog import Catalog
    from slackwater.plan.functions import FunctionRegistry

    registry = FunctionRegistry()
    registered(imports, registry)
    return Catalog.from_sql(read_sql(file), registry.functions, file=str(file))


def check_agent_streams(catalog: Catalog) -> None:
    """Raise where a stream of agents is declared wrongly; say what in one has no effect."""
    from slackwater.plan.agents import check_agents

    for warning in check_agents(catalog):
        errors.print(f"[bold yellow]warning:[/] {_escaped(str(warning))}")


def multiple_of(text: str) -> float:
    try:
        multiple = float(text.lower().removesuffix("x"))
    except ValueError:
        multiple = 0.0
    if not 0 < multiple < float("inf"):
        raise SlackwaterError(f"--load {text}: expected a multiple of the measured load, such as 4x")
    return multiple


def seconds_of(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_duration(text) / 1e6
    except ValueError as error:
        raise SlackwaterError(f"--for: {error}") from None


def settings_of(pairs: list[str] | None) -> tuple[dict[str, Any], dict[str, str]]:
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
