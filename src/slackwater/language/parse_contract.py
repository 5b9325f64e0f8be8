"""``WITH <contract>``: the words after a query that say what its reader tolerates."""

from __future__ import annotations

import difflib
import re
from dataclasses import replace

from sqlglot.tokenizer_core import TokenType

from slackwater.errors import LanguageError
from slackwater.language.contracts import Contract, Drift, Error, Exact, Fill, Precision, Standing, Subset
from slackwater.language.tokens import Cursor

CONTRACT_WORDS = ("EXACT", "ERROR", "SUBSET", "PRECISION", "DRIFT")
STANDING_WORDS = ("WEIGHT", "PRIORITY")
STATEMENT_WORDS = ("CREATE", "ALTER", "DROP", "EXPLAIN")
_FURTHER_WORDS = {
    "EXACT": STANDING_WORDS,
    "ERROR": ("CONFIDENCE", *STANDING_WORDS),
    "SUBSET": ("GAP", "FILL", *STANDING_WORDS),
    "PRECISION": ("IMMEDIATE",),
    "DRIFT": ("BELIEF", "EXTRAPOLATE"),
}
"""The words that may follow each contract, in their order; IMMEDIATE in ALTER QUERY only."""


def parse_contract(cursor: Cursor) -> tuple[Contract | None, Standing]:
    """The contract at the cursor, to the end of the statement.

    WEIGHT and PRIORITY may stand alone; they then go to the contract the query gets by default.
    """
    at = cursor.position()
    if cursor.word in STANDING_WORDS:
        standing = _standing(cursor)
        _end(cursor, None)
        return None, standing
    word = cursor.choose(CONTRACT_WORDS, "after WITH")
    try:
        contract = _PARSERS[word](cursor)
        if isinstance(contract, Exact | Error | Subset):
            standing = _standing(cursor)
            contract = replace(contract, weight=standing.weight, priority=standing.priority)
        elif cursor.word in STANDING_WORDS:
            raise cursor.error(
                f"{cursor.word} does not go with {word}",
                hint=f"{word} is a promise that load does not weaken, so there is nothing to weigh; "
                "WEIGHT and PRIORITY go with EXACT, ERROR and SUBSET",
            )
    except ValueError as error:
        raise cursor.error(str(error), at=at) from None
    _end(cursor, word)
    return contract, Standing()


def _exact(cursor: Cursor) -> Contract:
    return Exact()


def _error(cursor: Cursor) -> Contract:
    # a word that is nearly one of those that may follow is told from them at the end
    bound = 0.05 if cursor.done or _near(cursor.word, "ERROR") else cursor.percent("the error", "5%")
    confidence = cursor.percent("the confidence", "95%") if cursor.accept("CONFIDENCE") else 0.95
    return Error(bound, confidence)


def _subset(cursor: Cursor) -> Contract:
    cursor.expect("GAP", "after SUBSET, then the most answers that may be missing in a row")
    gap = cursor.integer("the gap")
    fill: Fill | None = None
    if cursor.accept("FILL"):
        fill = "linear" if cursor.choose(("LINEAR", "LAST"), "after FILL") == "LINEAR" else "last"
    return Subset(gap, fill)


def _precision(cursor: Cursor) -> Contract:
    joined = re.fullmatch(r"([0-9.]+)[A-Z]+", cursor.word)
    if joined is not None:
        raise cursor.error(
            f"expected the width of the interval (a number), found {cursor.found()}",
            hint=_plain_width(joined.group(1)),
        )
    width = cursor.decimal("the width of the interval")
    if cursor.word in ("%", "PERCENT"):
        raise cursor.error(
            "PRECISION is a width in the unit of the column, not a share", hint=f"write PRECISION {width}"
        )
    return Precision(float(width), immediate=cursor.accept("IMMEDIATE"))


def _plain_width(number: str) -> str:
    return f"PRECISION is a width in the unit of the column, which is not named: write PRECISION {number}"


def _drift(cursor: Cursor) -> Contract:
    bound = cursor.decimal("the drift")
    relative = cursor.accept("%")
    belief = cursor.percent("the belief", "95%") if cursor.accept("BELIEF") else 0.95
    return Drift(
        float(bound.scaleb(-2) if relative else bound),
        relative,
        belief,
        extrapolate=cursor.accept("EXTRAPOLATE"),
    )


_PARSERS = {"EXACT": _exact, "ERROR": _error, "SUBSET": _subset, "PRECISION": _precision, "DRIFT": _drift}


def _standing(cursor: Cursor) -> Standing:
    weight, priority = 1.0, None
    while not cursor.done and cursor.word in STANDING_WORDS:
        if cursor.accept("WEIGHT"):
            weight = cursor.number("the weight")
        else:
            cursor.accept("PRIORITY")
            priority = cursor.integer("the priority")
    return _validated(cursor, weight, priority)


def _validated(cursor: Cursor, weight: float, priority: int | None) -> Standing:
    try:
        return Standing(weight=weight, priority=priority)
    except ValueError as error:
        raise cursor.error(str(error)) from None


def _end(cursor: Cursor, contract: str | None) -> None:
    if not cursor.done:
        raise _unexpected(cursor, contract)


def _unexpected(cursor: Cursor, contract: str | None) -> LanguageError:
    return cursor.error(f"unexpected {cursor.found()} after the contract", hint=_instead(cursor, contract))


def _near(word: str, contract: str | None) -> str | None:
    """The word that may follow a contract (without one: WEIGHT and PRIORITY) and is most like another."""
    words = STANDING_WORDS if contract is None else _FURTHER_WORDS[contract]
    return next(iter(difflib.get_close_matches(word, words, n=1)), None)


def _immediate(cursor: Cursor) -> bool:
    """Whether IMMEDIATE may stand in this statement."""
    return cursor.tokens[0].text.upper() == "ALTER"


def _instead(cursor: Cursor, contract: str | None) -> str:
    """What to write where a contract should have ended."""
    word = cursor.word
    next_one = "a contract ends the statement: put ; before the next one"
    if word in STATEMENT_WORDS:
        return next_one
    if word in CONTRACT_WORDS:
        return "a query has one contract" if contract else f"{word} comes first, then WEIGHT and PRIORITY"
    before = cursor.tokens[cursor.index - 1]
    if contract == "DRIFT" and word == "PERCENT" and before.token_type is TokenType.NUMBER:
        return f"write {before.text}%"
    near = _near(word, contract)
    if near == "IMMEDIATE" and not _immediate(cursor):
        return "PRECISION d ends CREATE QUERY; IMMEDIATE goes with ALTER QUERY"
    if near is not None and near != word:
        return f"did you mean {near}?"
    if near is not None and contract is not None:
        return f"each once and in this order: {', '.join((contract, *_FURTHER_WORDS[contract]))}"
    for other in _FURTHER_WORDS:
        elsewhere = _near(word, other)
        if elsewhere is not None:
            return f"{elsewhere} goes with {other}"
    if contract is None or difflib.get_close_matches(word, STATEMENT_WORDS):
        return next_one
    if contract == "PRECISION" and before.token_type is TokenType.NUMBER:
        further = "; IMMEDIATE may follow it" if _immediate(cursor) else ""
        return _plain_width(before.text) + further
    return f"{contract} may be followed by {' and '.join(_FURTHER_WORDS[contract])}, or by ;"
