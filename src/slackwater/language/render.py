"""Statements as SQL text, for those who declare streams and queries from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slackwater.language.contracts import Contract, Precision


def quoted_name(name: str) -> str:
    """A name in back quotes, whatever is in it.

    >>> quoted_name("web")
    '`web`'
    """
    return "`" + name.replace("`", "``") + "`"


def create_stream(
    name: str,
    columns: Mapping[str, str],
    format_: str,
    timestamp_by: str,
    *,
    options: Mapping[str, str] | None = None,
    payload: str | None = None,
    key: Sequence[str] = (),
    payload_options: Mapping[str, str] | None = None,
    lateness: str = "",
    tolerance: str = "",
    max_rate: str = "",
    idle: str = "",
    tick: str = "",
    interrupted_after: str = "",
) -> str:
    """``CREATE STREAM``; lengths of time and the rate as SQL writes them, such as ``2 SECONDS``.

    >>> create_stream("p", {"ts": "TIMESTAMP"}, "replay", "ts", options={"path": "trace.parquet"})
    "CREATE STREAM `p` (`ts` TIMESTAMP) USING replay OPTIONS ('path' 'trace.parquet') TIMESTAMP BY ts"
    """
    text = f"CREATE STREAM {quoted_name(name)} ({_columns(columns)}) USING {format_}{_options(options)}"
    text += f" FORMAT {payload}{_options(payload_options)}" if payload else ""
    text += f" KEY ({', '.join(map(quoted_name, key))})" if key else ""
    text += f" TIMESTAMP BY {timestamp_by}"
    for clause, value in (
        ("LATENESS", lateness),
        ("TOLERANCE", tolerance),
        ("MAX RATE", max_rate),
        ("IDLE", idle),
        ("TICK", tick),
        ("INTERRUPTED AFTER", interrupted_after),
    ):
        text += f" {clause} {value}" if value else ""
    return text


def create_table(
    name: str, columns: Mapping[str, str], format_: str, options: Mapping[str, str] | None = None
) -> str:
    """``CREATE TABLE``."""
    return f"CREATE TABLE {quoted_name(name)} ({_columns(columns)}) USING {format_}{_options(options)}"


def create_view(name: str, select: str) -> str:
    """``CREATE VIEW``."""
    return f"CREATE VIEW {quoted_name(name)} AS {select}"


def create_query(name: str, select: str, contract: Contract | str | None = None) -> str:
    """``CREATE QUERY``."""
    promised = f" WITH {_written(contract)}" if contract is not None else ""
    return f"CREATE QUERY {quoted_name(name)} AS {select}{promised}"


def alter_query(name: str, contract: Contract | str) -> str:
    """``ALTER QUERY``.

    >>> alter_query("load", Precision(2, immediate=True))
    'ALTER QUERY `load` WITH PRECISION 2 IMMEDIATE'
    """
    return f"ALTER QUERY {quoted_name(name)} WITH {_written(contract)}"


def _written(contract: Contract | str) -> str:
    """A contract with what is to be done about it, which is no part of the promise."""
    at_once = isinstance(contract, Precision) and contract.immediate
    return f"{contract} IMMEDIATE" if at_once else str(contract)


def drop_query(name: str) -> str:
    """``DROP QUERY``."""
    return f"DROP QUERY {quoted_name(name)}"


def drop_view(name: str) -> str:
    """``DROP VIEW``."""
    return f"DROP VIEW {quoted_name(name)}"


def drop_table(name: str) -> str:
    """``DROP TABLE``."""
    return f"DROP TABLE {quoted_name(name)}"


def create_alert(name: str, query: str, when: str, urls: Sequence[str]) -> str:
    """``CREATE ALERT``; the condition as SQL writes it after WHEN.

    >>> create_alert("heavy", "traffic", "bytes > 1e9 POSSIBLY", ["http://localhost:8000/"])
    "CREATE ALERT `heavy` ON `traffic` WHEN bytes > 1e9 POSSIBLY TO 'http://localhost:8000/'"
    """
    to = " AND ".join(map(_string, urls))
    return f"CREATE ALERT {quoted_name(name)} ON {quoted_name(query)} WHEN {when} TO {to}"


def drop_alert(name: str) -> str:
    """``DROP ALERT``."""
    return f"DROP ALERT {quoted_name(name)}"


def _columns(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{quoted_name(name)} {type_}" for name, type_ in columns.items())


def _options(options: Mapping[str, str] | None) -> str:
    if not options:
        return ""
    return f" OPTIONS ({', '.join(f'{_string(k)} {_string(v)}' for k, v in options.items())})"


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
