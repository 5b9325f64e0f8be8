"""Files as others wrote them: which columns they have, and times finer than Spark's."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from slackwater.errors import SourceError
from slackwater.language.statements import Column, CreateStream, CreateTable
from slackwater.language.tokens import position_at

FILE_FORMATS = ("parquet", "json", "csv", "orc", "text", "avro", "xml")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PATTERN = re.compile(r"[*?\[{\\]")


def declared_schema(columns: Sequence[Column]) -> str:
    """Declared columns as Spark writes a schema."""
    return ", ".join(f"`{c.name}` {c.type}" for c in columns)


def data_files(path: Path) -> list[Path]:
    """The files that Spark would read: all but hidden ones."""
    if path.is_file():
        return [path]
    found = (f for f in path.rglob("*") if f.is_file())
    return sorted(f for f in found if not any(p.startswith((".", "_")) for p in f.relative_to(path).parts))


def local_files(path: str) -> list[Path]:
    """The data files at a path of this machine's; none where it is elsewhere, or a pattern."""
    local = Path(path.removeprefix("file://"))
    return data_files(local) if local.exists() else []


def table_options(session: SparkSession, table: CreateTable) -> dict[str, str]:
    """A table's options, with the place of its files as Spark finds them from wherever it was started.

    Raises SourceError where there is nothing on this machine; what is elsewhere, or a pattern, is Spark's
    to judge.
    """
    options = dict(table.options)
    key = next((k for k in options if k.lower() == "path"), None)
    if key is None or table.format.lower() not in FILE_FORMATS or _PATTERN.search(options[key]):
        return options
    path = options[key]
    if path.startswith("file:"):
        local = Path("/" + path.removeprefix("file:").lstrip("/"))
    elif _SCHEME.match(path) or not _files_are_local(session):
        return options
    else:
        local = Path(path).absolute()
        options[key] = str(local)
    if not local.exists():
        raise _nothing_there(table, path)
    return options


def _files_are_local(session: SparkSession) -> bool:
    """Whether a path without a scheme is on this machine, and not in a cluster's file system."""
    configured = session.sparkContext._jsc.hadoopConfiguration()
    return str(configured.get("fs.defaultFS", "file:///")).startswith("file:")


def _nothing_there(table: CreateTable, path: str) -> SourceError:
    source = table.source
    place = table.sql.find(f"'{path}'")
    at = position_at(source.text, source.position.offset + place) if place >= 0 else None
    complaint = source.error(
        f"table {table.name}: there is nothing at {path!r} (looked from {os.getcwd()})",
        at=at,
        hint="put its file there, or correct the path; a relative one starts where the command runs",
    )
    return SourceError(str(complaint))


def read_nanoseconds(session: SparkSession, source: Path) -> frozenset[str]:
    """The columns with nanoseconds, as pandas and Arrow write them, in lower case.

    Spark refuses such files unless told to read those columns as whole numbers; it is told so here.
    """
    files = data_files(source)
    try:
        schema = pq.read_schema(files[0]) if files else pa.schema([])
    except (OSError, pa.ArrowInvalid):
        return frozenset()  # Spark will say what is wrong with the file
    found = frozenset(f.name.lower() for f in schema if pa.types.is_timestamp(f.type) and f.type.unit == "ns")
    if found:
        session.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    return found


def cast_column(column: Column, nanos: frozenset[str]) -> str:
    """A file's column as declared."""
    value = f"`{column.name}`"
    if column.name.lower() in nanos:
        value = f"timestamp_micros(({value} - pmod({value}, 1000)) div 1000)"
    return f"CAST({value} AS {column.type}) AS `{column.name}`"


def csv_layout(
    session: SparkSession, stream: CreateStream, path: str, options: Mapping[str, str], *, header: bool
) -> tuple[dict[str, str], str]:
    """Options and schema with which Spark reads CSV by the names in its header, not by position.

    Without a header the columns are those declared, in their order. ``header`` is what holds where the
    options do not say.
    """
    files = local_files(path)
    given = {k.lower(): v for k, v in options.items()}
    headed = given.get("header", str(header)).lower() == "true"
    tabs = any(".tsv" in f.suffixes for f in files)
    defaults = {"header": str(headed).lower(), "sep": "\t" if tabs else ","}
    if headed:
        # files whose headers differ are refused, where Spark would mix up their columns
        defaults["enforceSchema"] = "false"
    chosen = {**{k: v for k, v in defaults.items() if k.lower() not in given}, **options}
    if not headed or not files:
        return chosen, declared_schema(stream.columns)
    probe = {k: v for k, v in chosen.items() if k.lower() != "path"}
    names = session.read.options(**probe).csv(str(files[0])).columns
    there = {n.lower() for n in names}
    missing = [c.name for c in stream.columns if c.name.lower() not in there]
    if missing:
        raise SourceError(
            f"stream {stream.name}: the header of {files[0]} has no column {', '.join(missing)}; "
            f"it has {', '.join(names)}; where there is no header, say OPTIONS (header 'false')"
        )
    types = {c.name.lower(): c.type for c in stream.columns}
    return chosen, ", ".join(f"`{n}` {types.get(n.lower(), 'STRING')}" for n in names)
