"""The Session API from end to end: declare, run, change while it runs, read the answers.

python examples/python_api.py
"""

from __future__ import annotations

from typing import Any

from slackwater.language.aggregates import UserAggregate
from slackwater.language.contracts import Error, Exact, Subset
from slackwater.runtime.answers import Answer
from slackwater.runtime.session import Session, Settings


def declare(session: Session) -> None:
    """A stream, a function, an aggregate, a view and four queries."""
    session.function("is_well_known", lambda port: port is not None and port < 1024, "BOOLEAN")
    session.aggregate(
        "product_sign",
        UserAggregate(
            init=lambda: 1,
            incr=lambda state, value: -state if value is not None and value < 100 else state,
            merge=lambda left, right: left * right,
            final=lambda state: state,
            returns="INT",
        ),
    )
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
        "sign",
        "SELECT product_sign(size) AS sign FROM packets GROUP BY window(ts, '10 seconds', '5 seconds')",
        contract=Subset(gap=4),
    )
    session.view("seconds", "SELECT COUNT(*) AS n FROM packets GROUP BY window(ts, '1 second')")
    session.sql("CREATE QUERY peak AS SELECT MAX(n) AS n FROM seconds GROUP BY window(ts, '10 seconds')")


def run(session: Session) -> list[Answer]:
    """Start, change the query set after the first answer, and return all answers."""
    session.start()
    answers = session.answers()
    found = [next(answers)]
    # the stream is running: each change takes effect at its next batch
    session.query(
        "added",
        "SELECT COUNT(*) AS n FROM packets WHERE dport = 80 GROUP BY window(ts, '5 seconds')",
        contract=Error(0.02),
    )
    session.alter("web_bytes", Error(0.01))
    session.drop("peak")
    found.extend(answers)  # ends when the stream does
    session.wait()  # raises what went wrong, if anything did
    return found


def main(spark: Any = None) -> list[Answer]:
    """Run all of it; without a Spark session the Session builds its own."""
    with Session(spark, settings=Settings(rows_per_batch=2000)) as session:
        declare(session)
        print(session.explain())
        return run(session)


if __name__ == "__main__":
    for answer in main():
        print(answer.to_json_line())
