"""SQL text to statements."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from slackwater.errors import Position
from slackwater.language.contracts import Contract, Standing
from slackwater.language.dialect import SparkText
from slackwater.language.parse_alert import parse_alert
from slackwater.language.parse_contract import (
    CONTRACT_WORDS,
    STANDING_WORDS,
    STATEMENT_WORDS,
    parse_contract,
)
from slackwater.language.parse_source import parse_stream, parse_table
from slackwater.language.statements import (
    AlterQuery,
    AnyStatement,
    CreateQuery,
    CreateView,
    Drop,
    Explain,
    ExplainFormat,
    Source,
)
from slackwater.language.tokens import Cursor, position_at, tokenize

NESTED = "leave out parentheses that are not needed, or do parts of it in views"


def parse(text: str, *, file: str = "") -> tuple[AnyStatement, ...]:
    """All statements of a text, in order.

    >>> [type(s).__name__ for s in parse("DROP QUERY a; EXPLAIN")]
    ['Drop', 'Explain']
    """
    return tuple(_read(Cursor(tokens, text, file)) for tokens in _split(tokenize(text, file)))


def parse_one(text: str, *, file: str = "") -> AnyStatement:
    """The one statement of a text."""
    statements = parse(text, file=file)
    if len(statements) != 1:
        cursor = Cursor([], text, file)
        raise cursor.error(f"expected one statement, found {len(statements)}", at=position_at(text, 0))
    return statements[0]


def _split(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    start = 0
    for index, token in enumerate(tokens):
        if token.token_type is TokenType.SEMICOLON:
            if index > start:
                yield tokens[start:index]
            start = index + 1
    if start < len(tokens):
        yield tokens[start:]


def _read(cursor: Cursor) -> AnyStatement:
    at = cursor.position()
    try:
        return _statement(cursor)
    except RecursionError:
        raise cursor.error("this statement is nested too deeply to be read", at=at, hint=NESTED) from None


def _statement(cursor: Cursor) -> AnyStatement:
    tokens = cursor.tokens
    source = Source(cursor.text, cursor.position(), cursor.file)
    sql = cursor.text[tokens[0].start : tokens[-1].end + 1]
    start = cursor.choose(STATEMENT_WORDS, "at the start of a statement")
    if start == "CREATE":
        kind = cursor.choose(("STREAM", "TABLE", "VIEW", "QUERY", "ALERT"), "after CREATE")
        if kind == "STREAM":
            return parse_stream(cursor, sql, source)
        if kind == "TABLE":
            return parse_table(cursor, sql, source)
        if kind == "ALERT":
            return parse_alert(cursor, sql, source)
        return _create_select(cursor, kind, sql, source)
    if start == "ALTER":
        cursor.expect("QUERY", "after ALTER: only the contract of a query can be altered")
        name = cursor.name("the name of a query")
        cursor.expect("WITH", f"after ALTER QUERY {name}, then the new contract")
        contract, standing = parse_contract(cursor)
        return AlterQuery(sql, source, name, contract, standing)
    if start == "DROP":
        kind = cursor.choose(("QUERY", "VIEW", "STREAM", "TABLE", "ALERT"), "after DROP")
        if_exists = cursor.accept("IF", "EXISTS")
        dropped = Drop(sql, source, kind.lower(), cursor.name("a name"), if_exists)  # type: ignore[arg-type]
        _end(cursor)
        return dropped
    return _explain(cursor, sql, source)


def _create_select(cursor: Cursor, kind: str, sql: str, source: Source) -> CreateView | CreateQuery:
    name = cursor.name(f"the name of the {kind.lower()}")
    cursor.expect("AS", f"after CREATE {kind} {name}, then SELECT")
    stop = _contract_start(cursor)
    select = parse_select(cursor, stop)
    if kind == "VIEW":
        if not cursor.done:
            raise cursor.error(
                "a view has no contract of its own",
                hint="it gives up what the queries above it allow: put the contract on those",
            )
        return CreateView(sql, source, name, select)
    contract: Contract | None = None
    standing = Standing()
    at: Position | None = None
    if cursor.accept("WITH"):
        at = cursor.position()
        contract, standing = parse_contract(cursor)
    return CreateQuery(sql, source, name, select, contract, standing, at)


def _contract_start(cursor: Cursor) -> int:
    """The index of the WITH that opens the contract, or the end: a WITH at depth 0 after the SELECT."""
    depth = 0
    seen_select = False
    for index in range(cursor.index, len(cursor.tokens)):
        token = cursor.tokens[index]
        if token.token_type is TokenType.L_PAREN:
            depth += 1
        elif token.token_type is TokenType.R_PAREN:
            depth -= 1
        elif depth == 0 and token.token_type is TokenType.SELECT:
            seen_select = True
        elif depth == 0 and seen_select and token.token_type is TokenType.WITH:
            return index
        elif (
            depth == 0
            and seen_select
            and token.text.upper() in (*CONTRACT_WORDS, *STANDING_WORDS)
            and index + 1 < len(cursor.tokens)
            and cursor.tokens[index - 1].token_type in (TokenType.R_PAREN, TokenType.VAR, TokenType.NUMBER)
            and cursor.tokens[index + 1].token_type in (TokenType.NUMBER,)
        ):
            raise cursor.error(
                f"{token.text} begins a contract, and WITH is missing before it",
                at=position_at(cursor.text, token.start),
            )
    return len(cursor.tokens)


def parse_select(cursor: Cursor, stop: int) -> exp.Select:
    """The SELECT from the cursor to token ``stop``, by sqlglot in Spark's dialect."""
    at = cursor.position()
    tokens = list(cursor.until(stop))
    if not tokens or tokens[0].text.upper() not in ("SELECT", "WITH"):
        raise cursor.error("expected SELECT", at=at)
    try:
        parsed = SparkText().parser().parse(tokens, cursor.text)
    except ParseError as error:
        raise _parse_error(cursor, error, tokens) from None
    select = parsed[0] if parsed else None
    if not isinstance(select, exp.Select):
        raise cursor.error(
            f"a query is one SELECT, found {type(select).__name__.upper()}",
            at=at,
            hint="write one query for each side of a UNION, or read both streams as one topic or path",
        )
    return select


def _parse_error(cursor: Cursor, error: ParseError, tokens: Sequence[Token]) -> Exception:
    detail = error.errors[0] if error.errors else {}
    line, column = detail.get("line"), detail.get("col")
    at = None
    for token in tokens:
        if token.line == line and token.col == column:
            at = position_at(cursor.text, token.start)
    description = str(detail.get("description") or str(error).splitlines()[0])
    # sqlglot shows its own classes here
    description = re.sub(r" but got <Token.*", "", description)
    description = re.sub(r"Required keyword: .* missing for <class .*", "something is missing", description)
    found = detail.get("highlight")
    message = f"cannot read this SELECT: {description[:1].lower()}{description[1:]}"
    if found:
        message += f" at {found!r}"
    hint = "a ; is missing before it" if str(found).upper() in STATEMENT_WORDS else ""
    return cursor.error(message, at=at or position_at(cursor.text, tokens[-1].start), hint=hint)


def _explain(cursor: Cursor, sql: str, source: Source) -> Explain:
    form: ExplainFormat = "text"
    words = ("TEXT", "JSON", "DOT", "SVG")
    cursor.accept("FORMAT")
    if cursor.word in words:
        form = cursor.choose(words, "after EXPLAIN").lower()  # type: ignore[assignment]
    if cursor.done:
        return Explain(sql, source, form, None, None)
    if cursor.word == "CREATE":
        rest = _statement(Cursor(cursor.tokens[cursor.index :], cursor.text, cursor.file))
        if not isinstance(rest, CreateQuery | CreateView):
            raise cursor.error(
                "EXPLAIN shows the plan of queries", hint="write EXPLAIN CREATE QUERY … or EXPLAIN name"
            )
        return Explain(sql, source, form, None, rest)
    if cursor.word in ("SELECT", "WITH"):
        stop = _contract_start(cursor)
        select = parse_select(cursor, stop)
        contract, standing = parse_contract(cursor) if cursor.accept("WITH") else (None, Standing())
        query = CreateQuery(sql, source, "explained", select, contract, standing)
        return Explain(sql, source, form, None, query)
    cursor.accept("QUERY")
    explained = Explain(sql, source, form, cursor.name("the name of a stream, view or query"), None)
    _end(cursor)
    return explained


def _end(cursor: Cursor) -> None:
    if not cursor.done:
        near = difflib.get_close_matches(cursor.word, STATEMENT_WORDS, n=1)
        raise cursor.error(
            f"unexpected {cursor.found()}",
            hint="a ; is missing before it" if near else "the statement should end here",
        )
