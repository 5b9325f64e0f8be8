"""What a standing query may not say, each with the reason and what to write instead."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from slackwater.language.statements import Source
from slackwater.plan.model import Path
from slackwater.plan.scope import Scope

_CLAUSES = {
    "order": ("ORDER BY has no meaning in a standing query", "sort where the answers are read"),
    "limit": (
        "LIMIT has no meaning in a standing query",
        "select with HAVING, or limit where the answers are read",
    ),
    "distinct": ("SELECT DISTINCT is not supported", "GROUP BY the columns, with a window"),
    "laterals": ("LATERAL VIEW is not supported", "explode before the stream, or use higher-order functions"),
    "qualify": ("QUALIFY is not supported", "use HAVING"),
    "windows": ("the WINDOW clause is not supported", "use GROUP BY window(…)"),
}
_BY_CHANCE = {"rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle"}
_BY_CLOCK = {"current_timestamp", "now", "current_date", "curdate", "localtimestamp", "unix_timestamp"}
_BY_PLACE = {"monotonically_increasing_id", "spark_partition_id", "input_file_name", "input_file_block_start"}


def refuse(select: exp.Select, source: Source) -> None:
    """Raise at the first thing in a SELECT, sub-queries after FROM excepted, that cannot be honoured."""
    at = Scope(source, "", "", Path(""), {}, {})
    for arg, (message, hint) in _CLAUSES.items():
        if select.args.get(arg):
            node = select.args[arg]
            first = node[0] if isinstance(node, list) else node
            raise at.error(message, first if isinstance(first, exp.Expr) else None, hint)
    for node in own_nodes(select):
        if isinstance(node, exp.Window):
            raise at.error(
                "window functions (OVER) are not supported",
                node,
                "aggregate with GROUP BY window(…), and read that with another query for what goes over it",
            )
        if isinstance(node, exp.Query):
            raise at.error(
                "a sub-query stands only after FROM",
                node,
                "look values up with JOIN and CREATE TABLE, or make it a VIEW and read that",
            )
        if isinstance(node, exp.Cube | exp.Rollup | exp.GroupingSets):
            raise at.error(
                f"{type(node).__name__.upper()} is not supported", node, "write one query for each grouping"
            )
        if isinstance(node, exp.Anonymous) and str(node.this).lower() == "session_window":
            raise at.error(
                "session windows are not supported", node, "use window(…), sliding where it must not cut"
            )
        if isinstance(node, exp.Func):
            _refuse_unrepeatable(node, at)


def own_nodes(select: exp.Select) -> Iterator[exp.Expr]:
    """All nodes of a SELECT but those after FROM."""
    for arg in ("expressions", "where", "group", "having", "joins"):
        value = select.args.get(arg)
        for root in value if isinstance(value, list) else [value]:
            if isinstance(root, exp.Expr):
                yield from root.walk()


def _refuse_unrepeatable(node: exp.Func, at: Scope) -> None:
    name = (str(node.this) if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
    reason = "a batch that is run again after a restart would give other answers"
    if name in _BY_CHANCE:
        raise at.error(
            f"{name}() changes from run to run: {reason}",
            node,
            "take a hash of a column: pmod(hash(x), 100) < 5",
        )
    timed = name == "unix_timestamp" and not node.args.get("this")
    if name in _BY_CLOCK and (timed or name != "unix_timestamp"):
        raise at.error(f"{name}() is the clock's: {reason}", node, "use the time column of the stream")
    if name in _BY_PLACE:
        raise at.error(f"{name}() depends on how Spark cuts the work: {reason}", node)
