"""Statements for those who may not know all that is in them: reports are passed on."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot.tokenizer_core import Token, TokenType

from slackwater.errors import SlackwaterError
from slackwater.language.parse import parse
from slackwater.language.statements import AnyStatement, CreateAlert, CreateStream, CreateTable
from slackwater.language.tokens import Cursor, tokenize
from slackwater.language.urls import shown_url

UNREADABLE = "(SQL that cannot be read, and is not shown)"
HIDDEN = "'…'"

Span = tuple[int, int, str]
"""The first and the last of some tokens, and what is shown in their place."""


def shown_sql(text: str) -> str:
    """Statements without values of options, and with the hosts of webhooks alone.

    Which option holds a secret nobody can tell by its name, so none is shown.

    >>> shown_sql("CREATE TABLE t (a INT) USING csv OPTIONS (path 'x', api_key = 'y')")
    "CREATE TABLE t (a INT) USING csv OPTIONS (path '…', api_key '…')"
    >>> shown_sql("CREATE TABLE t (a INT")
    '(SQL that cannot be read, and is not shown)'
    """
    try:
        return ";\n".join(map(_shown, parse(text)))
    except SlackwaterError:
        return UNREADABLE


def _shown(statement: AnyStatement) -> str:
    if isinstance(statement, CreateStream | CreateTable):
        cursor = Cursor(tokenize(statement.sql), statement.sql)
        return _without(cursor, list(_options(cursor)))
    if isinstance(statement, CreateAlert):
        cursor = Cursor(tokenize(statement.sql), statement.sql)
        return _without(cursor, list(_addresses(cursor)))
    return statement.sql


def _options(cursor: Cursor) -> Iterator[Span]:
    """The parentheses after each OPTIONS, of a statement that is known to be right."""
    # its name may be any word, OPTIONS among them
    cursor.index = 3
    while not cursor.done:
        here = cursor.accept("OPTIONS")
        if not cursor.accept("("):
            cursor.index += not here
            continue
        first, stop = cursor.index, cursor.closing()
        if here:
            names = ", ".join(f"{name} {HIDDEN}" for name in _option_names(cursor, stop))
            yield first - 1, stop, f"({names})"
        cursor.index = stop + 1


def _option_names(cursor: Cursor, stop: int) -> Iterator[str]:
    """Names of options as they are written; a value has neither commas nor parentheses outside of quotes."""
    while cursor.index < stop:
        first = cursor.index
        cursor.index += 1
        while cursor.accept("."):
            cursor.index += 1
        yield "".join(_written(cursor, token) for token in cursor.tokens[first : cursor.index])
        while cursor.index < stop and not cursor.accept(","):
            cursor.index += 1


def _addresses(cursor: Cursor) -> Iterator[Span]:
    """All strings of an alert: nothing else in it is one."""
    for index, token in enumerate(cursor.tokens):
        if token.token_type is TokenType.STRING:
            shown = shown_url(str(token.text)).replace("\\", "\\\\").replace("'", "\\'")
            yield index, index, f"'{shown}'"


def _without(cursor: Cursor, hidden: list[Span]) -> str:
    """The text with some tokens shown otherwise, and no comments: they may hold what was there before."""
    begins = {first: (last, shown) for first, last, shown in hidden}
    parts: list[str] = []
    index = 0
    while index < len(cursor.tokens):
        if index:
            between = cursor.text[cursor.tokens[index - 1].end + 1 : cursor.tokens[index].start]
            parts.append(between if not between.strip() else "\n" if "\n" in between else " ")
        last, shown = begins.get(index, (index, _written(cursor, cursor.tokens[index])))
        parts.append(shown)
        index = last + 1
    return "".join(parts)


def _written(cursor: Cursor, token: Token) -> str:
    return cursor.text[token.start : token.end + 1]
