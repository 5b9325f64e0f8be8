"""A real Kafka broker for tests: one KRaft node on a free loopback port, gone when the tests are."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pytest

from waiting import wait_for

JARS = Path(sys.prefix, "jars")
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
REQUEST_TIMEOUT_S = 20.0
CLUSTER_ID = "c2xhY2t3YXRlci10ZXN0cw"  # any 16 bytes in URL-safe base64

_CREATE_TOPICS, _API_VERSIONS = 19, 18


def jars_missing() -> str:
    """Why no broker can be used here; empty when one can."""
    for kind in ("kafka", "broker"):
        if not (JARS / kind / "resolved.txt").exists():
            return f"no jars in .venv/jars/{kind}; once online: rm .venv/.setup-stamp && make setup"
    return ""


def _java() -> str:
    noted = Path(sys.prefix, "java_home")
    home = noted.read_text().strip() if noted.exists() else os.environ.get("JAVA_HOME", "")
    return str(Path(home, "bin", "java")) if home else "java"


def _free_ports(count: int) -> list[int]:
    """Free loopback ports, all held open until the last is known, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


class KafkaBroker:
    """A single-node broker; `with KafkaBroker() as broker:` runs it, `broker.bootstrap` is its address.

    Topics that are written to or read from before they are created get `default_partitions` partitions.
    """

    def __init__(self, default_partitions: int = 3) -> None:
        self.default_partitions = default_partitions
        self.port = 0
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> KafkaBroker:
        self._directory = Path(tempfile.mkdtemp(prefix="slackwater-kafka-"))
        try:
            self._start(self._directory)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, directory: Path) -> None:
        self.port, controller = _free_ports(2)
        properties = directory / "server.properties"
        properties.write_text(
            f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={directory / "data"}
num.partitions={self.default_partitions}
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""
        )
        self._run(directory, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
        with (directory / "broker.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*self._command(directory), "kafka.Kafka", str(properties)],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
            )
        process = self._process

        def alive() -> None:
            if process.poll() is not None:
                raise RuntimeError(f"the Kafka broker ended with code {process.poll()}; {said()}")

        def said() -> str:
            tail = (directory / "broker.log").read_text(errors="replace")[-3000:]
            return f"the log of the Kafka broker ends with:\n{tail}"

        wait_for(self._answers, alive, said, START_TIMEOUT_S)

    def _command(self, directory: Path) -> list[str]:
        logging = directory / "log4j2.properties"
        logging.write_text(
            "rootLogger.level=WARN\nrootLogger.appenderRef.out.ref=out\n"
            "appender.out.type=Console\nappender.out.name=out\n"
            "appender.out.layout.type=PatternLayout\nappender.out.layout.pattern=%d %p %c: %m%n\n"
        )
        options = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return [_java(), *options, f"-Dlog4j2.configurationFile={logging}", "-cp", f"{JARS / 'broker'}/*"]

    def _run(self, directory: Path, *arguments: str) -> None:
        done = subprocess.run(
            [*self._command(directory), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=directory,
            timeout=START_TIMEOUT_S,
        )
        if done.returncode:
            raise RuntimeError(f"{arguments[0]} ended with code {done.returncode}:\n{done.stdout[-3000:]}")

    def _request(self, key: int, version: int, body: bytes) -> bytes:
        """One request in Kafka's wire protocol, non-flexible versions only; the answer's body."""
        header = struct.pack(">hhi", key, version, 1) + _string("slackwater-tests")
        with socket.create_connection(("127.0.0.1", self.port), timeout=REQUEST_TIMEOUT_S) as link:
            link.sendall(struct.pack(">i", len(header + body)) + header + body)
            with link.makefile("rb") as answers:
                (length,) = struct.unpack(">i", answers.read(4))
                return answers.read(length)[4:]

    def _answers(self) -> bool:
        try:
            return self._request(_API_VERSIONS, 0, b"")[:2] == b"\0\0"
        except (OSError, struct.error):
            return False

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic and return its name."""
        one = _string(name) + struct.pack(">ihii", partitions, 1, 0, 0)
        body = struct.pack(">i", 1) + one + struct.pack(">i?", int(REQUEST_TIMEOUT_S * 1000), False)
        answer = self._request(_CREATE_TOPICS, 2, body)
        # throttle time, number of topics, length of the name, the name, the error code
        (code,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(name.encode()))
        if code:
            raise RuntimeError(f"topic {name!r} cannot be created: Kafka error code {code}")
        return name

    def stop(self) -> None:
        """Stop the broker and remove its files; once stopped, nothing more happens."""
        if self._process is not None:
            # its data is thrown away: no need for the slow way of a clean shutdown
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
            self._process = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


@pytest.fixture(scope="module")
def kafka_broker() -> Iterator[KafkaBroker]:
    """A running broker, shared by the tests of a module."""
    if missing := jars_missing():
        pytest.skip(missing)
    with KafkaBroker() as broker:
        yield broker
