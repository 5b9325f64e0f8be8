"""A Spark session set up for small batches, many queries and generated code that stays compiled."""

from __future__ import annotations

import glob
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from slackwater.errors import RunError

JVM_OPTIONS = " ".join(
    [
        # HotSpot leaves methods over 8,000 bytecodes uncompiled, and wide generated stages are
        "-XX:-DontCompileHugeMethods",
        "-XX:+UseParallelGC",
        "-XX:ReservedCodeCacheSize=512m",
    ]
)

LOGGING = Path(__file__).with_name("log4j2.properties").resolve()

SETTINGS: dict[str, str] = {
    "spark.ui.enabled": "false",
    # nothing is kept there, and the default would leave an empty folder where the user stands
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "slackwater-warehouse"),
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # a bad row must not stop a standing query: what cannot be computed is NULL
    "spark.sql.ansi.enabled": "false",
    # re-planning at run time costs more than it saves in a batch of a second
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.maxFields": "10000",
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.sql.streaming.ui.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # blocks that are read of a segment are many, and each is to be found by its pages
    "spark.sql.parquet.pushdown.inFilterThreshold": "4000",
    # so that times in files are instants, in Arrow as in Spark
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # where Hadoop has no native library, the default manager forks readlink and chmod twenty times a batch
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.cleaner.referenceTracking.cleanCheckpoints": "true",
    # what goes wrong is raised and told in words; Spark's own report of it would bury them
    "spark.log.level": "FATAL",
}


DECISIVE = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.parquet.outputTimestampType",
    "spark.sql.execution.arrow.pyspark.enabled",
)


def build_session(
    name: str = "slackwater", *, settings: Mapping[str, str] | None = None, cores: int | None = None
) -> SparkSession:
    """A local session, or the one that ``spark.master`` in the settings names."""
    count = cores or os.cpu_count() or 1
    # the workers must be of the interpreter that runs us, whatever PATH says
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = Path(sys.prefix) / "java_home"
    if chosen.exists():
        os.environ["JAVA_HOME"] = chosen.read_text().strip()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    wanted = {
        "spark.master": f"local[{count}]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": str(count),
        "spark.default.parallelism": str(count),
        # over TCP a task that calls a Python function waits twice for a delayed acknowledgement, 40 ms each
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.driver.extraJavaOptions": f"{JVM_OPTIONS} -Dlog4j2.configurationFile={LOGGING.as_uri()}",
        "spark.executor.extraJavaOptions": JVM_OPTIONS,
        **SETTINGS,
        **({"spark.jars": jars} if (jars := kafka_jars()) else {}),
        **(settings or {}),
    }
    builder = SparkSession.builder.appName(name)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    # its JSON about a statement that Spark refuses would come before our word on it
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    before = signal.getsignal(signal.SIGINT)
    try:
        session = builder.getOrCreate()
        if signal.getsignal(signal.SIGINT) is not before:
            # PySpark would cancel all jobs on Ctrl+C: a run ends after its batch, and not in the middle of it
            signal.signal(signal.SIGINT, before if callable(before) else signal.default_int_handler)
        return session
    except (PySparkException, Py4JError) as error:
        reason = str(error).strip().split("\n")[0]
        raise RunError(
            f"Spark cannot be started: {reason}\nhint: it needs Java 17 or newer, and settings that it knows"
        ) from error


def own_session(session: SparkSession) -> SparkSession:
    """A session beside the given one, on the same Spark, set as answers need it.

    The user's own settings stay as they are. What decides a value (ANSI, time zone, how times are stored)
    is ours always; the rest only where nobody has said otherwise.
    """
    said = session.sparkContext.getConf()
    own = session.newSession()
    wanted = {**SETTINGS, "spark.sql.shuffle.partitions": str(session.sparkContext.defaultParallelism)}
    for key, value in wanted.items():
        if own.conf.isModifiable(key):
            ours = key in DECISIVE or not said.contains(key)
            own.conf.set(key, value if ours else (session.conf.get(key) or value))
    return own


@contextmanager
def passing_session(
    name: str, log: Path, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """The session that runs in this process already, or one that is stopped afterwards."""
    present = SparkSession.getActiveSession()
    if present is not None:
        yield present
        return
    with stderr_to(log):
        session = build_session(name, settings=settings)
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """What a process started meanwhile (Spark's JVM) writes to stderr goes to a file while it lives."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(path, "ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def kafka_jars() -> str:
    """The Kafka connector that ``make setup`` fetched, as ``spark.jars`` wants it; empty without."""
    folder = Path(sys.prefix) / "jars" / "kafka"
    return ",".join(sorted(glob.glob(str(folder / "*.jar"))))


def compilations(session: SparkSession) -> int:
    """How often Spark has compiled generated code so far, by its own metric."""
    jvm = session.sparkContext._jvm
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    kind = jvm.java.lang.Class.forName("org.apache.spark.metrics.source.CodegenMetrics$", True, loader)
    metrics = kind.getField("MODULE$").get(None)
    return int(metrics.METRIC_COMPILATION_TIME().getCount())
