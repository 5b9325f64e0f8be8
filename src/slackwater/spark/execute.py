"""What the runtime asks of Spark: run a statement, keep a result in the log, read it back."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from slackwater.errors import PlanError, RunError, SourceError
from slackwater.language.aggregates import UserAggregate
from slackwater.language.statements import CreateTable
from slackwater.plan.catalog import Catalog
from slackwater.plan.model import Lookup, Window
from slackwater.plan.scope import safe_name
from slackwater.plan.tables import Table
from slackwater.spark.files import cast_column, declared_schema, local_files, read_nanoseconds, table_options
from slackwater.spark.finish import windows_sql
from slackwater.spark.shed import rows_read
from slackwater.spark.states import final_states, first_states

__all__ = ["DataFrame", "Executor", "SparkSession", "first_line", "parquet_bounds", "spark_errors"]

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""What PySpark raises: its own errors for those it knows, Java's for those of jobs that failed."""
Scalars = Mapping[str, tuple[Callable[..., Any], str]]
"""Python functions by name, with the Spark SQL type they return."""


class Executor:
    """Statements over batches, in whichever session a batch comes with."""

    def __init__(self, session: SparkSession, scalars: Scalars) -> None:
        self.session = session
        self._scalars = dict(scalars)
        self._tables: dict[str, DataFrame] = {}
        self._unique: set[Lookup] = set()
        self.checked: set[object] = set()
        """Forms of queries that Spark has accepted."""
        self.numberless: set[object] = set()
        """Those of them that aggregate intervals of time, or have an aggregated item that is no number."""
        self.unsampled: set[str] = set()
        """Steps of such a form, by name: they are always exact."""
        self._prepared: dict[str, dict[str, str]] = {}

    def add_scalar(self, name: str, function: Callable[..., Any], returns: str) -> None:
        self._scalars[name.lower()] = (function, returns)
        self.session.udf.register(name, function, returns)

    def prepare(self, session: SparkSession, catalog: Catalog, views: Mapping[str, str]) -> None:
        """Make tables, functions and constants known to a session; what it knows already costs nothing.

        A streaming query runs in a clone of the session it was started from, so later additions
        must be brought to it.
        """
        # every batch brings a new Python object for the same session of the JVM
        known = self._prepared.setdefault(str(session._jsparkSession.sessionUUID()), {})
        for name, (function, returns) in self._scalars.items():
            if f"function {name}" not in known:
                session.udf.register(name, function, returns)
                known[f"function {name}"] = returns
        for table in catalog.tables.values():
            if known.get(f"table {table.name}") != table.sql:
                self.open_table(table)
                frame = self._tables[table.sql]
                _adopt(session, frame).createOrReplaceTempView(safe_name(table.name))
                known[f"table {table.name}"] = table.sql
        for name, sql in views.items():
            if known.get(f"constants {name}") != sql:
                session.sql(sql).createOrReplaceTempView(name)
                known[f"constants {name}"] = sql

    def open_table(self, table: CreateTable) -> None:
        """Read a stored table once, checked against its declaration."""
        if table.sql in self._tables:
            return
        options = table_options(self.session, table)
        try:
            frame = self.session.read.format(table.format).options(**options)
            nanos: frozenset[str] = frozenset()
            if table.format.lower() in ("csv", "json"):
                frame = frame.schema(declared_schema(table.columns))
            elif table.format.lower() == "parquet":
                path = next((v for k, v in table.options if k.lower() == "path"), "")
                nanos = read_nanoseconds(self.session, files[0]) if (files := local_files(path)) else nanos
            read = frame.load()
            there = {n.lower() for n in read.columns}
            missing = [c.name for c in table.columns if c.name.lower() not in there]
            if missing:
                raise SourceError(
                    f"table {table.name} has no column {', '.join(missing)}; it has {', '.join(read.columns)}"
                )
            kept = read.selectExpr(*(cast_column(c, nanos) for c in table.columns))
            kept.persist().count()
        except SPARK_ERRORS as error:
            raise SourceError(f"table {table.name}: {first_line(error)}") from error
        self._tables[table.sql] = kept

    def stored_table(self, table: CreateTable) -> DataFrame:
        """The rows of a stored table, as lookups see them."""
        self.open_table(table)
        return self._tables[table.sql]

    def pretend_table(self, table: CreateTable) -> None:
        """A table of the declared columns without rows: for checks that read nothing."""
        if table.sql not in self._tables:
            self._tables[table.sql] = self.session.createDataFrame([], declared_schema(table.columns))

    def check_lookup(self, lookup: Lookup, catalog: Catalog) -> None:
        """Raise where a lookup's keys do not identify a row of its table."""
        if lookup in self._unique:
            return
        table = catalog.tables[lookup.table.lower()]
        self.open_table(table)
        keys = ", ".join(f"`{k}`" for k in lookup.keys)
        frame = self._tables[table.sql]
        twice = frame.groupBy(*lookup.keys).count().where("count > 1").limit(1).collect()
        if twice:
            found = ", ".join(f"{k} = {twice[0][k]!r}" for k in lookup.keys)
            raise PlanError(
                f"table {table.name} has {twice[0]['count']} rows with {found}: a lookup needs {keys} to "
                "identify a row, or every row of the stream would count several times"
            )
        self._unique.add(lookup)

    def collect(self, session: SparkSession, sql: str) -> pa.Table:
        """The result of a statement, on the driver."""
        with spark_errors():
            return session.sql(sql).toArrow()

    def collect_counted(self, session: SparkSession, sql: str) -> tuple[pa.Table, int | None]:
        """The same, and how many rows came from the source, where Spark can tell."""
        with spark_errors():
            frame = session.sql(sql)
            result = frame.toArrow()
            return result, rows_read(frame)

    def write(
        self, session: SparkSession, sql: str, path: Path, state: UserAggregate | None, table: Table | None
    ) -> None:
        """The result of a statement as Parquet, without passing the driver."""
        with spark_errors():
            frame = session.sql(sql)
            if state is not None and table is not None:
                frame = first_states(frame, table, state)
            shutil.rmtree(path, ignore_errors=True)
            frame.write.mode("overwrite").parquet(str(path))

    def panes(self, session: SparkSession, paths: Sequence[str], name: str, columns: Sequence[str]) -> None:
        """Files of the pane log as a view; a column that no file has is NULL."""
        with spark_errors():
            frame = session.read.option("mergeSchema", "true").parquet(*paths)
            missing = [c for c in columns if c not in frame.columns]
            if missing:
                frame = frame.selectExpr("*", *(f"CAST(NULL AS BIGINT) AS {c}" for c in missing))
            frame.createOrReplaceTempView(name)

    def gather(self, session: SparkSession, paths: Sequence[str], folder: Path, *, before: int) -> None:
        """Files of the pane log as one folder, without the panes before a point."""
        with spark_errors():
            frame = session.read.option("mergeSchema", "true").parquet(*paths)
            kept = frame.where(f"pane >= {before}").coalesce(session.sparkContext.defaultParallelism)
            kept.write.mode("overwrite").parquet(str(folder))

    def user_windows(
        self,
        session: SparkSession,
        table: Table,
        window: Window,
        view: str,
        aggregate: UserAggregate,
        bind: Callable[[str], str],
    ) -> str:
        """A view of a user aggregate's results by window; its name."""
        name = f"{view}_windows"
        with spark_errors():
            frame = session.sql(bind(windows_sql(table, window, view)))
            final_states(frame, table, aggregate).createOrReplaceTempView(name)
        return name

    def view_of(self, session: SparkSession, rows: pa.Table, name: str) -> DataFrame:
        with spark_errors():
            frame = session.createDataFrame(rows)
            frame.createOrReplaceTempView(name)
        return frame

    def frame_of_files(self, session: SparkSession, path: Path, items: Sequence[str]) -> DataFrame:
        with spark_errors():
            return session.read.parquet(str(path)).selectExpr(*items)

    @contextmanager
    def batch_view(self, session: SparkSession, frame: DataFrame, name: str, *, keep: bool) -> Iterator[None]:
        """A batch under a name; kept in memory where asked for, so that it is scanned and parsed once."""
        kept = frame.persist() if keep else None
        (kept if kept is not None else frame).createOrReplaceTempView(name)
        try:
            yield
        finally:
            if kept is not None:
                kept.unpersist()


def _adopt(session: SparkSession, frame: DataFrame) -> DataFrame:
    """A frame of one session as a frame of another; cached data is shared between them."""
    return DataFrame(frame._jdf, session)


@contextmanager
def spark_errors() -> Iterator[None]:
    """Spark's errors as one line that a user can act on."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise RunError(f"Spark: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The line that says what is wrong: the last of a Python worker's traceback, else the first."""
    if isinstance(error, Py4JJavaError):
        return _java_line(error)
    lines = str(error).strip().split("\n")
    if "Python worker" in lines[0]:
        said = [line for line in lines[1:] if line.strip() and not line[0].isspace()]
        places = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', str(error))
        where = "{}, line {}, in {}: ".format(*places[-1]) if places else ""
        return f"a Python function failed: {where}{said[-1] if said else lines[0]}"[:500]
    return lines[0][:500]


def _java_line(error: Py4JJavaError) -> str:
    """Where a job failed: what the error says, and what was at the root of it."""
    causes = [error.java_exception]
    while (cause := causes[-1].getCause()) is not None:
        causes.append(cause)
    texts = dict.fromkeys(str(e.getMessage() or e.toString()) for e in (causes[0], causes[-1]))
    return ": ".join(t.strip().split("\n")[0][:400].rstrip(" .:") for t in texts)


def parquet_bounds(path: Path) -> tuple[int, int, int] | None:
    """Rows, and the lowest and highest pane, of a log file or folder; None where it has no panes."""
    files = [path] if path.is_file() else sorted(path.glob("*.parquet"))
    rows, lows, highs = 0, [], []
    for file in files:
        metadata = pq.ParquetFile(file).metadata
        rows += metadata.num_rows
        index = metadata.schema.to_arrow_schema().get_field_index("pane")
        for group in range(metadata.num_row_groups):
            statistics = metadata.row_group(group).column(index).statistics
            if statistics is not None and statistics.has_min_max:
                lows.append(statistics.min)
                highs.append(statistics.max)
    return (rows, min(lows), max(highs)) if lows else None
