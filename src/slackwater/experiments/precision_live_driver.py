"""The driver of `precision-live`: a session that is changed while it runs, by lines of its input."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from slackwater.edge.clock import now_micros
from slackwater.runtime.session import Session
from slackwater.runtime.sinks import sink_for
from slackwater.spark.session import passing_session

PATIENCE_S = 180.0
"""How long it may take to answer all that there is in the end."""


def main(file: Path, folder: Path) -> None:
    """Run a file of SQL with its state in a folder; each line that comes is applied, and noted with its time.

    Ends with the input, when all that there was by then has been answered; what it has read of each stream is
    written down then.
    """
    with passing_session("precision-live", folder / "spark.log") as spark:
        session = Session(spark, folder / "state")
        session.sql(file.read_text(encoding="utf-8"), file=str(file))
        session.start(sink_for(str(folder / "answers.jsonl")))
        with (folder / "changes.jsonl").open("a", encoding="utf-8") as changes:
            for line in sys.stdin:
                began = now_micros()
                session.sql(line)
                noted = {"sql": line.strip(), "began": began, "done": now_micros()}
                changes.write(json.dumps(noted) + "\n")
                changes.flush()
        _answer_all(session, now_micros())
        print(session.explain(), flush=True)
        session.stop()
        read = {name: keeper.mirror.queue.rows for name, keeper in session.engine.bounds.items()}
        (folder / "read.json").write_text(json.dumps(read), encoding="utf-8")


def _answer_all(session: Session, until: int) -> None:
    """Wait until what was so up to a time has been answered in all streams; raises what broke the run."""
    deadline = time.monotonic() + PATIENCE_S
    while any(keeper.mirror.queue.released < until for keeper in session.engine.bounds.values()):
        session.poll()
        if time.monotonic() > deadline:
            raise RuntimeError(f"not all was answered within {PATIENCE_S:g} s: the run is too slow")
        time.sleep(0.1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
