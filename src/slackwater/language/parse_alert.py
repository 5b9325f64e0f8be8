"""``CREATE ALERT name ON query WHEN column > limit TO 'url'``: who is told when an answer goes too far.

``TO 'url'`` may stand before ``WHEN`` too.
"""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from slackwater.errors import Position
from slackwater.language.statements import Certainty, Comparison, CreateAlert, Source
from slackwater.language.tokens import Cursor
from slackwater.language.urls import why_no_webhook

COMPARISONS: dict[str, Comparison] = {">": ">", ">=": ">=", "<": "<", "<=": "<="}
CERTAINTIES: dict[str, Certainty] = {"CERTAINLY": "certainly", "POSSIBLY": "possibly"}


def parse_alert(cursor: Cursor, sql: str, source: Source) -> CreateAlert:
    """The statement after its first two words."""
    name = cursor.name("the name of the alert")
    cursor.expect("ON", f"after CREATE ALERT {name}, then the name of a query")
    places: dict[str, Position] = {"query": cursor.position()}
    query = cursor.name("the name of a query")
    urls = _urls(cursor) if cursor.accept("TO") else []
    before = "the address" if urls else f"ON {query}"
    cursor.expect("WHEN", f"after {before}, then a condition such as bytes > 1e9")
    places["column"] = cursor.position()
    column = cursor.name("a column of the query")
    comparison = _comparison(cursor, column)
    begin = cursor.index
    limit = cursor.decimal("the limit")
    written = "".join(str(token.text) for token in cursor.tokens[begin : cursor.index])
    if cursor.word in ("%", "PERCENT"):
        raise cursor.error(
            "a limit is in the unit of the column, not a share",
            hint=f"write {column} {comparison} and a number",
        )
    if cursor.word == "::":
        raise cursor.error("a limit is a number and nothing more", hint=f"write {written}")
    certainty: Certainty = "certainly"
    condition = f"{column} {comparison} {written}"
    if not cursor.done and cursor.word != "TO":
        word = cursor.choose((*CERTAINTIES, *(() if urls else ("TO",))), f"after {condition}")
        certainty = CERTAINTIES[word]
    if urls and not cursor.done:
        hint = "the address stands before WHEN; name further ones there" if cursor.word == "TO" else ""
        raise cursor.error(
            f"unexpected {cursor.found()} after the condition", hint=hint or "put ; before the next statement"
        )
    if not urls:
        cursor.expect("TO", f"after {condition}, then the address of a webhook")
        urls = _urls(cursor)
    if not cursor.done:
        raise cursor.error(
            f"unexpected {cursor.found()} after the address",
            hint="AND 'another address' may follow; else put ; before the next statement",
        )
    return CreateAlert(
        sql, source, name, query, column, comparison, limit, certainty, tuple(urls), written, places
    )


def _comparison(cursor: Cursor, column: str) -> Comparison:
    found = COMPARISONS.get(cursor.word)
    if found is None:
        hint = ""
        if cursor.word in ("=", "==", "<>", "!="):
            hint = "an interval is hardly ever one number: say beyond which limit the alert is raised"
        elif cursor.word == "(":
            hint = "name a column of the query by its name after AS, in back quotes where it has none"
        raise cursor.error(
            f"expected {' or '.join(COMPARISONS)} after WHEN {column}, found {cursor.found()}", hint=hint
        )
    cursor.index += 1
    return found


def _urls(cursor: Cursor) -> list[str]:
    urls = [_url(cursor)]
    while cursor.accept("AND"):
        at = cursor.position()
        urls.append(_url(cursor))
        if urls[-1] in urls[:-1]:
            raise cursor.error("this address is named twice", at=at, hint="leave one of them out")
    return urls


def _url(cursor: Cursor) -> str:
    at = cursor.position()
    token = cursor.token
    bare = token is not None and token.token_type is not TokenType.STRING
    if bare and cursor.word in ("HTTP", "HTTPS"):
        raise cursor.error("an address is written in single quotes", hint="write TO 'http://…'")
    url = cursor.string("the address of a webhook")
    why = why_no_webhook(url)
    if why:
        raise cursor.error(why, at=at, hint="write TO 'http://host/path' or TO 'https://host/path'")
    return url
