"""Files as others wrote them: which columns they have, and times finer than Spark's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from slackwater.errors import SourceError
from slackwater.language.statements import Column, CreateStream


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
