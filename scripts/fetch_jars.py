"""Fetch jars with all they need, by the Ivy resolver that comes with PySpark: no Maven is needed.

    python scripts/fetch_jars.py kafka     Spark's Kafka connector, into jars/kafka of the environment
    python scripts/fetch_jars.py broker    a Kafka broker for the tests, into jars/broker

The exit code is 0 when the jars are there, 1 when they could not be had.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark

SPARK_JARS = Path(pyspark.__file__).parent / "jars"
RESOLVED = "resolved.txt"
TIMEOUT_S = 600


@dataclass(frozen=True)
class Wanted:
    """One way to get what is wanted: root coordinates, and versions that differ from the declared ones."""

    roots: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    remark: str = ""

    def note(self) -> str:
        """What the folder's note says once all jars are in it."""
        return "\n".join([*self.roots, *self.overrides, *([self.remark] if self.remark else []), ""])


SPARK = pyspark.__version__
CHOICES: dict[str, tuple[Wanted, ...]] = {
    "kafka": (
        Wanted((f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK}",)),
        # Repositories lag behind: a new Spark is in the Python index before its connector is everywhere.
        # This combination of older parts has been run against Spark 4.3.0 and a real broker.
        Wanted(
            ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",),
            ("org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",),
            remark=f"no connector for Spark {SPARK} could be had: this is the one of Spark 4.2.0",
        ),
    ),
    "broker": (Wanted(("org.apache.kafka:kafka_2.13:4.3.1",)),),
}
# Jars which Spark brings along itself must not come twice; a broker runs on its own and needs all.
WITHOUT_SPARKS_OWN = {"kafka"}


def java() -> str:
    """The Java to run Ivy with: the one setup noted, else JAVA_HOME's, else the one on the path."""
    noted = Path(sys.prefix, "java_home")
    home = noted.read_text().strip() if noted.exists() else os.environ.get("JAVA_HOME", "")
    return str(Path(home, "bin", "java")) if home else "java"


def artifact(jar: str) -> str:
    """The name of a jar without its version.

    >>> artifact("kafka-clients-3.9.2.jar"), artifact("spark-tags_2.13-4.2.0.jar")
    ('kafka-clients', 'spark-tags_2.13')
    """
    return re.sub(r"-\d.*$", "", jar)


def ivy_file(wanted: Wanted) -> str:
    def attributes(coordinates: str, name: str) -> str:
        group, module, version = map(quoteattr, coordinates.split(":"))
        return f"org={group} {name}={module} rev={version}"

    lines = ['<ivy-module version="2.0"><info organisation="local" module="wanted" revision="1"/>']
    lines.append('<configurations><conf name="default"/></configurations><dependencies>')
    lines += [f'<dependency {attributes(r, "name")} conf="default->default"/>' for r in wanted.roots]
    lines += [f"<override {attributes(o, 'module')}/>" for o in wanted.overrides]
    return "\n".join([*lines, "</dependencies></ivy-module>"])


def resolve(wanted: Wanted, into: Path) -> str:
    """Resolve and copy the jars; the answer is empty, or says why it failed."""
    classpath = os.pathsep.join(
        str(jar) for name in ("ivy", "commons-cli") for jar in sorted(SPARK_JARS.glob(f"{name}-[0-9]*.jar"))
    )
    description = into / "ivy.xml"
    description.write_text(ivy_file(wanted))
    command = [java(), "-cp", classpath, "org.apache.ivy.Main", "-ivy", str(description)]
    command += ["-cache", str(Path(sys.prefix, "jars", ".cache")), "-confs", "default"]
    command += ["-types", "jar", "bundle", "-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return str(problem)
    if done.returncode == 0:
        return ""
    missing = re.findall(r":: (\S+#\S+: .*)", done.stdout)
    errors = re.findall(r"(?m)^\s*((?:Host|Server|SERVER|ERROR|java\.).*)$", done.stdout)
    reasons = list(dict.fromkeys(missing + errors)) or done.stdout.strip().splitlines()[-3:]
    return "; ".join(reason.strip() for reason in reasons[:4])


def fetch(kind: str) -> bool:
    target = Path(sys.prefix, "jars", kind)
    noted = (target / RESOLVED).read_text() if (target / RESOLVED).exists() else ""
    if noted in [wanted.note() for wanted in CHOICES[kind]]:
        return True
    target.parent.mkdir(parents=True, exist_ok=True)
    failures = []
    for wanted in CHOICES[kind]:
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            failure = resolve(wanted, Path(scratch))
            if failure:
                failures.append(f"{', '.join(wanted.roots)}: {failure}")
                continue
            sparks = SPARK_JARS.glob("*.jar") if kind in WITHOUT_SPARKS_OWN else ()
            own = {artifact(jar.name) for jar in sparks}
            jars = sorted(jar for jar in Path(scratch).glob("*.jar") if artifact(jar.name) not in own)
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            for jar in jars:
                shutil.move(jar, target / jar.name)
            # last: only a complete folder has this file
            (target / RESOLVED).write_text(wanted.note())
        print(f"{kind}: {len(jars)} jars for {', '.join(wanted.roots)}")
        if wanted.remark:
            print(f"{kind}: NOTE: {wanted.remark}; to look again later, remove {target} and the setup stamp")
        return True
    print(f"{kind}: the jars could not be fetched (offline?); all but Kafka works without them")
    for failure in failures:
        print(f"{kind}:   {failure}")
    return False


if __name__ == "__main__":
    kinds = sys.argv[1:]
    if not kinds or set(kinds) - set(CHOICES):
        sys.exit(f"usage: fetch_jars.py [{' | '.join(CHOICES)}]...")
    failed = [kind for kind in kinds if not fetch(kind)]
    sys.exit(1 if failed else 0)
