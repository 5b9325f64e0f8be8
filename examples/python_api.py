"""The Session API from end to end: declare, run, change while it runs, read the answers.

python examples/python_api.py
"""

from __future__ import annotations

import math
from typing import Any

from slackwater import Answer, Error, Exact, Session, Settings, Subset, UserAggregate

# root mean square: a state (count, sum of squares) that merges
RMS = UserAggregate(
    init=lambda: (0, 0.0),
    incr=lambda state, value: state if value is None else (state[0] + 1, state[1] + value * value),
    merge=lambda left, right: (left[0] + right[0], left[1] + right[1]),
    final=lambda state: math.sqrt(state[1] / state[0]) if state[0] else None,
    returns="DOUBLE",
)


def declare(session: Session) -> None:
    """A function, an aggregate, a stream, a view and four queries."""
    session.function("is_well_known", lambda port: port is not None and port < 1024, "BOOLEAN")
    session.aggregate("rms", RMS)
    session.stream(
        "packets",
        {"ts": "TIMESTAMP", "src": "STRING", "dport": "INT", "size": "INT"},
        format="traffic",
        options={"seed": "5", "rate": "500", "length": "30 seconds", "speed": "max"},
        timestamp_by="ts",
    )
    session.query(
        "web_bytes",
        "SELECT SUM(size) AS bytes FROM packets WHERE dport = 80 GROUP BY window(ts, '5 seconds')",
        contract=Error(0.05, confidence=0.99, weight=2),
    )
    session.query(
        "well_known",
        "SELECT COUNT(*) AS n FROM packets WHERE is_well_known(dport) GROUP BY window(ts, '10 seconds')",
        contract=Exact(priority=1),
    )
    session.query(
        "sizes",
        "SELECT rms(size) AS size FROM packets GROUP BY window(ts, '10 seconds', '5 seconds')",
        contract=Subset(gap=4),
    )
    session.view("seconds", "SELECT COUNT(*) AS n FROM packets GROUP BY window(ts, '1 second')")
    session.sql("CREATE QUERY peak AS SELECT MAX(n) AS n FROM seconds GROUP BY window(ts, '10 seconds')")


def change(session: Session) -> None:
    """Add, alter and drop while the stream runs: each takes effect at its next batch."""
    session.query(
        "added",
        "SELECT COUNT(*) AS n FROM packets WHERE dport = 80 GROUP BY window(ts, '5 seconds')",
        contract=Error(0.02),
    )
    session.alter("web_bytes", Error(0.01))
    session.drop("peak")


def main(spark: Any = None) -> list[Answer]:
    """Run all of it; without a Spark session the Session builds its own."""
    found: list[Answer] = []
    with Session(spark, settings=Settings(rows_per_batch=2500)) as session:
        declare(session)
        print(session.explain())
        session.start()
        for answer in session.answers():  # ends when the stream does
            if not found:
                change(session)
            found.append(answer)
        session.wait()  # raises what broke the run, if anything did
    return found


if __name__ == "__main__":
    for answer in main():
        print(answer.to_json_line())
