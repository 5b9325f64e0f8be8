"""``CREATE STREAM`` and ``CREATE TABLE``: where rows come from."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import TokenType

from slackwater.errors import PlanError, Position
from slackwater.language.dialect import SparkText
from slackwater.language.statements import Column, CreateStream, CreateTable, Source
from slackwater.language.tokens import Cursor, position_at

_CLAUSES = (
    "OPTIONS",
    "FORMAT",
    "KEY",
    "TIMESTAMP BY",
    "LATENESS",
    "TOLERANCE",
    "MAX RATE",
    "IDLE",
    "TICK",
    "INTERRUPTED AFTER",
)
_FIRST_WORDS = frozenset(clause.split()[0] for clause in _CLAUSES)
PAYLOADS = ("json", "csv", "xml", "text")
Options = tuple[tuple[str, str], ...]
Rates = tuple[tuple[str, float], ...]
Places = dict[str, Position]


def parse_stream(cursor: Cursor, sql: str, source: Source) -> CreateStream:
    """The rest of ``CREATE STREAM``, after those two words."""
    name = cursor.name("the name of the stream")
    columns = _columns(cursor, f"the columns of {name}")
    places: Places = {}
    format_, options = _using(cursor, places)
    payload: str | None = None
    payload_options: Options = ()
    key: tuple[str, ...] = ()
    time: tuple[str, str | None] | None = None
    lateness, tolerance, idle, tick, interrupted = 0, None, None, None, None
    max_rate: float | None = None
    max_rates: Rates = ()
    seen: set[str] = set()
    while not cursor.done:
        at = cursor.position()
        clause = _clause(cursor, name)
        if clause in seen:
            raise cursor.error(f"{clause} is given twice", at=at)
        seen.add(clause)
        places[clause] = at
        if clause == "OPTIONS":
            payload_or_source = _options(cursor, places if payload is None else {})
            if payload is None:
                options = payload_or_source
            else:
                payload_options = payload_or_source
        elif clause == "FORMAT":
            payload = cursor.choose(tuple(p.upper() for p in PAYLOADS), "after FORMAT").lower()
            payload_options = _options(cursor, {}) if cursor.accept("OPTIONS") else ()
        elif clause == "KEY":
            key = _key(cursor, columns)
        elif clause == "TIMESTAMP BY":
            time = _time(cursor, columns)
        elif clause == "LATENESS":
            lateness = cursor.duration("the lateness")
        elif clause == "TOLERANCE":
            tolerance = cursor.duration("the latency tolerance")
        elif clause == "MAX RATE":
            max_rate, max_rates = _max_rates(cursor, columns, at)
        elif clause == "IDLE":
            idle = cursor.duration("how long a stream may be silent")
        elif clause == "TICK":
            tick = _above_nothing(cursor, "the time between two ticks", at)
        elif clause == "INTERRUPTED AFTER":
            interrupted = _above_nothing(cursor, "how long a key may be silent", at)
    if time is None:
        raise cursor.error(
            f"stream {name} needs TIMESTAMP BY: windows are taken over event time",
            hint=f"name the time column: TIMESTAMP BY {_time_candidate(columns)}",
        )
    return CreateStream(
        sql, source, name, columns, format_, options, payload, payload_options, key, time[0], time[1],
        lateness, tolerance, max_rate, idle, tick, interrupted, max_rates, places,
    )  # fmt: skip


def _max_rates(cursor: Cursor, columns: tuple[Column, ...], at: Position) -> tuple[float | None, Rates]:
    """What follows MAX RATE: the largest change in a second of all values, and those OF single columns."""
    found: dict[str, float] = {}
    while True:
        rate = cursor.number("the largest change")
        if rate < 0:
            raise cursor.error(f"MAX RATE is a largest change and at least 0, got {rate:g}", at=at)
        cursor.expect("PER", "after the rate, then a unit of time")
        rate = rate * 1e6 / _unit(cursor)
        column, here = "", cursor.position()
        if cursor.accept("OF"):
            here = cursor.position()
            column = _declared(cursor, columns)
        if column in found:
            raise cursor.error(f"MAX RATE is given twice for {column or 'all columns'}", at=here)
        found[column] = rate
        if not cursor.accept(","):
            return found.pop("", None), tuple(found.items())


def _above_nothing(cursor: Cursor, what: str, at: Position) -> int:
    length = cursor.duration(what)
    if length <= 0:
        raise cursor.error(f"{what} must be above 0", at=at, hint="a length of time such as 1 SECOND")
    return length


def parse_table(cursor: Cursor, sql: str, source: Source) -> CreateTable:
    """The rest of ``CREATE TABLE``, after those two words."""
    name = cursor.name("the name of the table")
    columns = _columns(cursor, f"the columns of {name}")
    format_, options = _using(cursor, {})
    if not cursor.done:
        raise cursor.error(
            f"unexpected {cursor.found()} in CREATE TABLE", hint="a table has USING and OPTIONS, nothing more"
        )
    return CreateTable(sql, source, name, columns, format_, options)


def _columns(cursor: Cursor, what: str) -> tuple[Column, ...]:
    if not cursor.accept("("):
        raise cursor.error(
            f"expected {what} in parentheses, found {cursor.found()}",
            hint="declare every column: (ts TIMESTAMP, host STRING, size INT)",
        )
    stop = cursor.closing()
    columns: list[Column] = []
    while cursor.index < stop:
        at = cursor.position()
        name = cursor.name("a column name")
        if any(c.name.lower() == name.lower() for c in columns):
            raise cursor.error(f"column {name} is declared twice", at=at)
        columns.append(Column(name, _type(cursor, name, stop)))
        if cursor.index < stop:
            cursor.expect(",", "between columns")
    cursor.index = stop + 1
    if not columns:
        raise cursor.error(f"expected {what}, found none")
    return tuple(columns)


def check_type(written: str, what: str) -> None:
    """Raise where a text is not a Spark SQL type."""
    try:
        exp.DataType.build(written, dialect=SparkText)
    except (ParseError, ValueError):
        raise PlanError(f"{what}: {written!r} is not a Spark SQL type such as DOUBLE or STRING") from None


def _type(cursor: Cursor, column: str, stop: int) -> str:
    depth = 0
    begin = cursor.index
    while cursor.index < stop:
        text = cursor.tokens[cursor.index].text
        if text in ("(", "<"):
            depth += 1
        elif text in (")", ">"):
            depth -= 1
        elif text == ">>":
            depth -= 2
        elif text == "," and depth == 0:
            break
        cursor.index += 1
    tokens = cursor.tokens[begin : cursor.index]
    if not tokens:
        raise cursor.error(
            f"expected a type for column {column}, such as INT or STRING", hint=f"{column} STRING"
        )
    written = cursor.text[tokens[0].start : tokens[-1].end + 1]
    try:
        exp.DataType.build(written, dialect=SparkText)
    except (ParseError, ValueError):
        raise cursor.error(
            f"{written!r} is not a Spark SQL type",
            at=position_at(cursor.text, tokens[0].start),
            hint="use STRING, INT, BIGINT, DOUBLE, BOOLEAN, TIMESTAMP, DATE, DECIMAL(p, s), "
            "ARRAY<…>, MAP<…> or STRUCT<…>",
        ) from None
    return written


def _using(cursor: Cursor, places: Places) -> tuple[str, Options]:
    cursor.expect("USING", "after the columns, then a Spark format, replay, traffic, walks or agents")
    format_ = cursor.name("a format after USING")
    while cursor.accept("."):
        format_ += "." + cursor.name("the rest of the format's name")
    return format_, _options(cursor, places) if cursor.accept("OPTIONS") else ()


def _options(cursor: Cursor, places: Places) -> Options:
    """Options in parentheses; where each stands goes to ``places``."""
    cursor.expect("(", "after OPTIONS")
    stop = cursor.closing()
    options: list[tuple[str, str]] = []
    while cursor.index < stop:
        token, at = cursor.token, cursor.position()
        assert token is not None
        if token.token_type is TokenType.STRING:
            key = cursor.string("an option name")
        else:
            key = cursor.name("an option name")
            while cursor.accept("."):
                key += "." + cursor.name("the rest of the option's name")
        places[key.lower()] = at
        cursor.accept("=")
        options.append((key, _option_value(cursor, key)))
        if cursor.index < stop:
            cursor.expect(",", "between options")
    cursor.index = stop + 1
    return tuple(options)


def _option_value(cursor: Cursor, key: str) -> str:
    token = cursor.token
    if (token is not None and token.token_type is TokenType.NUMBER) or cursor.word == "-":
        return f"{cursor.number(key):.17g}"
    if cursor.word in ("TRUE", "FALSE"):
        return cursor.name(key).lower()
    return cursor.string(f"a value for option {key}")


def _clause(cursor: Cursor, name: str) -> str:
    for clause in _CLAUSES:
        if cursor.accept(*clause.split()):
            return clause
    words = ", ".join(_CLAUSES)
    raise cursor.error(
        f"unexpected {cursor.found()} in CREATE STREAM {name}", hint=f"expected one of {words}, or ;"
    )


def _key(cursor: Cursor, columns: tuple[Column, ...]) -> tuple[str, ...]:
    parenthesised = cursor.accept("(")
    names = [_declared(cursor, columns)]
    while cursor.accept(","):
        at = cursor.position()
        name = _declared(cursor, columns)
        if name in names:
            raise cursor.error(
                f"column {name} is in the KEY twice", at=at, hint="name every column of the key once"
            )
        names.append(name)
    if parenthesised:
        cursor.expect(")", "after the key columns")
    return tuple(names)


def _declared(cursor: Cursor, columns: tuple[Column, ...]) -> str:
    at = cursor.position()
    name = cursor.name("a column name")
    for column in columns:
        if column.name.lower() == name.lower():
            return column.name
    declared = ", ".join(c.name for c in columns)
    raise cursor.error(f"no column {name} is declared", at=at, hint=f"declared are {declared}")


def _time(cursor: Cursor, columns: tuple[Column, ...]) -> tuple[str, str | None]:
    """A column, or an expression with an optional name: ``timestamp_seconds(epoch_s) AS ts``."""
    start = cursor.index
    at = cursor.position()
    token = cursor.token
    following = cursor.tokens[start + 1] if start + 1 < len(cursor.tokens) else None
    if token is not None and (
        following is None or following.text not in ("(", "+", "-", "*", "/", ".", "::")
    ):
        name = _declared(cursor, columns)
        declared = next(c.type.upper() for c in columns if c.name == name)
        if not declared.startswith(("TIMESTAMP", "DATE")):
            raise cursor.error(
                f"the time column {name} is declared {declared}, expected TIMESTAMP",
                at=at,
                hint=f"give an expression: TIMESTAMP BY timestamp_seconds({name}) AS ts "
                "(or timestamp_millis, timestamp_micros, to_timestamp)",
            )
        return name, None
    depth = 0
    stop = start
    while stop < len(cursor.tokens):
        text = cursor.tokens[stop].text.upper()
        if text == "(":
            depth += 1
        elif text == ")":
            depth -= 1
        elif depth == 0 and (text == "AS" or text in _FIRST_WORDS):
            break
        stop += 1
    tokens = list(cursor.until(stop))
    expression = _expression(cursor, tokens, at)
    name = cursor.name("a name for the time") if cursor.accept("AS") else "ts"
    if any(c.name.lower() == name.lower() for c in columns):
        raise cursor.error(f"the time is to be called {name}, which a column is called already", at=at)
    return name, expression


def _expression(cursor: Cursor, tokens: list, at: Position) -> str:  # type: ignore[type-arg]
    text = cursor.text[tokens[0].start : tokens[-1].end + 1]
    try:
        SparkText().parse(f"SELECT {text}")
    except ParseError:
        raise cursor.error(f"cannot read the time expression {text!r}", at=at) from None
    return text


def _unit(cursor: Cursor) -> int:
    from slackwater.language.durations import unit_micros

    at = cursor.position()
    unit = cursor.name("a unit of time")
    micros = unit_micros(unit)
    if micros is None:
        raise cursor.error(f"{unit!r} is not a unit of fixed length", at=at)
    return micros


def _time_candidate(columns: tuple[Column, ...]) -> str:
    return next((c.name for c in columns if c.type.upper().startswith("TIMESTAMP")), "ts")
