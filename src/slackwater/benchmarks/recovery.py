"""``bench recovery``: kill a run at random points and compare its answers with those of one left alone.

The run is the command line's own, on two replayed streams with queries of every kind. Half of the kills
take Python and the JVM at once, half take Python alone. A power cut is not among them.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.progress import Progress

from slackwater.benchmarks.report import note
from slackwater.benchmarks.workload import COLUMNS, seconds_of
from slackwater.traffic import Traffic

PATIENCE_S = 900.0
QUERIES = """
CREATE QUERY web_bytes AS SELECT sum(size) AS bytes, count(*) AS n, stddev(size) AS spread FROM packets
  WHERE dport = 80 GROUP BY window(ts, '10 seconds', '1 second');
CREATE QUERY by_source AS SELECT src, sum(size) AS bytes, max(size) - min(size) AS d FROM packets
  GROUP BY window(ts, '5 seconds'), src;
CREATE VIEW spread AS SELECT max(size) - min(size) AS d, count(*) AS c FROM packets WHERE proto = 'udp'
  GROUP BY window(ts, '2 seconds');
CREATE QUERY jumps AS SELECT count(*) AS n, sum(c) AS s FROM spread WHERE d > 100
  GROUP BY window(ts, '10 seconds');
CREATE QUERY middle AS SELECT median(size) AS m, count(DISTINCT src) AS hosts FROM packets
  GROUP BY window(ts, '8 seconds', '4 seconds');
CREATE QUERY by_tuples AS SELECT src, sum(size) AS s FROM packets WHERE dport = 443
  GROUP BY tuples(200, 50), src;
CREATE QUERY giants AS SELECT ts, src, size * 2 AS twice FROM packets WHERE size > 1450;
CREATE QUERY other_bytes AS SELECT proto, sum(size) AS bytes FROM others
  GROUP BY window(ts, '6 seconds', '2 seconds'), proto;
"""


@dataclass(frozen=True)
class Sizes:
    """How much is killed."""

    kills: int
    seconds: int
    rate: float
    rows_per_batch: int
    delay_s: float
    """Kills fall within so long after the first new commit."""


FULL = Sizes(kills=20, seconds=120, rate=500.0, rows_per_batch=1_000, delay_s=2.5)
QUICK = Sizes(kills=1, seconds=20, rate=200.0, rows_per_batch=500, delay_s=1.0)


def recovery(folder: Path, sizes: Sizes, progress: Progress) -> dict[str, float]:
    """Kill until there have been enough; data sets follow each other where one ends too soon."""
    chance = random.Random(20)
    task = progress.add_task("kills", total=sizes.kills)
    kills = differing = answers = batches = sets = 0
    while kills < sizes.kills:
        run = _Run(folder / f"set-{sets}", sizes, seed=100 + sets)
        expected = run.alone()
        killed = run.killed(chance, sizes.kills - kills, lambda: progress.advance(task))
        found = read_lines(run.answers)
        differing += sum(((found - expected) + (expected - found)).values())
        answers += sum(expected.values())
        batches += run.turns()
        kills += killed
        sets += 1
    note(f"{kills} kills over {sets} set(s) of data, {batches} turns, {answers:,} answers compared")
    return {"kills": kills, "differing_answers": differing, "answers": answers, "turns": batches}


def read_lines(path: Path) -> Counter[str]:
    """The answers of a file, how often each is there, whenever they were given."""
    found: Counter[str] = Counter()
    with open(path) as lines:
        for line in lines:
            answer = json.loads(line)
            answer.pop("emitted_at")
            found[json.dumps(answer, sort_keys=True)] += 1
    return found


class _Run:
    """A file of SQL over two recorded streams, run as often as it takes."""

    def __init__(self, folder: Path, sizes: Sizes, seed: int) -> None:
        self._folder = folder
        self._sizes = sizes
        folder.mkdir(parents=True)
        text = QUERIES
        for index, stream in enumerate(("others", "packets")):
            traffic = Traffic(seed=seed + 1000 * index, rate=sizes.rate / (1 + index), hosts=20, sources=8)
            path = folder / f"{stream}.parquet"
            rows = pa.concat_tables(seconds_of(traffic, sizes.seconds)).drop_columns(["seq"])
            pq.write_table(rows.slice(0, min(len(rows), int(sizes.rate * sizes.seconds))), path)
            text = (
                f"CREATE STREAM {stream} ({COLUMNS}) USING replay OPTIONS (path '{path}', speed 'max') "
                f"TIMESTAMP BY ts;\n{text}"
            )
        self._sql = folder / "workload.sql"
        self._sql.write_text(text)
        self._state = folder / "state"
        self.answers = folder / "answers.jsonl"

    def _start(self, state: Path, answers: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "slackwater.cli", "run", str(self._sql)]
        command += ["--state", str(state), "--answers", str(answers)]
        command += ["--set", f"rows_per_batch={self._sizes.rows_per_batch}"]
        with open(self._folder / "log.txt", "ab") as log:
            # a group of its own, so that a kill can take the JVM with it
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def alone(self) -> Counter[str]:
        """The answers of a run that nothing interrupts."""
        answers = self._folder / "expected.jsonl"
        self._finish(self._start(self._folder / "expected", answers))
        return read_lines(answers)

    def killed(self, chance: random.Random, most: int, on_kill: Callable[[], None]) -> int:
        """Run and kill, at most so often, then let it finish; how many kills there were."""
        kills = 0
        while True:
            process = self._start(self._state, self.answers)
            if kills == most:
                self._finish(process)
                return kills
            delay = chance.uniform(0.0, self._sizes.delay_s)
            before = self.turns()
            while process.poll() is None and self.turns() <= before + (kills == 0):
                time.sleep(0.005)
            if _waited(process, delay):
                self._finish(process)
                return kills
            _kill(process, whole=kills % 2 == 0)
            kills += 1
            on_kill()

    def turns(self) -> int:
        """The number of the last commit."""
        names = [int(f.stem) for f in (self._state / "commits").glob("*.json")]
        return max(names, default=0)

    def _finish(self, process: subprocess.Popen[bytes]) -> None:
        try:
            code = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            _kill(process, whole=True)
            raise
        if code != 0:
            tail = (self._folder / "log.txt").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"the run ended with code {code}:\n{tail}")


def _waited(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the process ended by itself within a time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill(process: subprocess.Popen[bytes], *, whole: bool) -> None:
    """SIGKILL to Python, and to the JVM at once or a moment later, should it live on."""
    if not whole:
        process.kill()
        process.wait()
        time.sleep(1.0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
