"""A cursor over the tokens of a SQL text that knows where it is and complains well."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from functools import cache
from itertools import zip_longest

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from slackwater.errors import LanguageError, Position
from slackwater.language.dialect import SparkText
from slackwater.language.durations import spelt_out, unit_micros


@cache
def _dialect() -> SparkText:
    return SparkText()


def position_at(text: str, offset: int) -> Position:
    """Line and column, from 1, of an offset into a text."""
    before = text[:offset]
    return Position(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1, offset)


def tokenize(text: str, file: str = "") -> list[Token]:
    """The tokens of a text in Spark's SQL, ``window(`` being a call and no clause."""
    try:
        tokens = _dialect().tokenize(text)
    except TokenError:
        raise LanguageError(
            "the text ends inside a string, comment or quoted name",
            text=text,
            file=file,
            position=position_at(text, len(text.rstrip())),
            hint="close every ' and ` and every /* comment",
        ) from None
    calls = []
    for token, following in zip_longest(tokens, tokens[1:]):
        if (
            token.token_type is TokenType.WINDOW
            and following is not None
            and following.token_type is TokenType.L_PAREN
        ):
            token = Token(
                TokenType.VAR, token.text, line=token.line, col=token.col, start=token.start, end=token.end
            )
        calls.append(token)
    return calls


class Cursor:
    """Walks the tokens of one statement."""

    def __init__(self, tokens: Sequence[Token], text: str, file: str = "") -> None:
        self.tokens = tokens
        self.text = text
        self.file = file
        self.index = 0

    @property
    def done(self) -> bool:
        return self.index >= len(self.tokens)

    @property
    def token(self) -> Token | None:
        return None if self.done else self.tokens[self.index]

    @property
    def word(self) -> str:
        """The present token in upper case; empty at the end and for strings."""
        token = self.token
        if token is None or token.token_type is TokenType.STRING:
            return ""
        return str(token.text).upper()

    def position(self) -> Position:
        """Where the present token starts, or just after the last one."""
        token = self.token
        if token is not None:
            return position_at(self.text, token.start)
        return position_at(self.text, self.tokens[-1].end + 1 if self.tokens else 0)

    def error(self, message: str, *, hint: str = "", at: Position | None = None) -> LanguageError:
        return LanguageError(
            message, text=self.text, position=at or self.position(), hint=hint, file=self.file
        )

    def found(self) -> str:
        token = self.token
        return "the end of the statement" if token is None else repr(self.text[token.start : token.end + 1])

    def accept(self, *words: str) -> bool:
        """Step over the given words if they come next, all of them or none."""
        # sqlglot makes one token of some pairs (GROUP BY, IF EXISTS is two): compare joined text.
        start = self.index
        for wanted in words:
            if self.word != wanted:
                self.index = start
                return False
            self.index += 1
        return True

    def expect(self, word: str, context: str) -> None:
        if not self.accept(word):
            raise self.error(f"expected {word} {context}, found {self.found()}")

    def choose(self, words: Sequence[str], context: str) -> str:
        """Step over one of the words and return it."""
        word = self.word
        if word in words:
            self.index += 1
            return word
        near = difflib.get_close_matches(word, words, n=1)
        hint = f"did you mean {near[0]}?" if near else ""
        raise self.error(f"expected {' or '.join(words)} {context}, found {self.found()}", hint=hint)

    def name(self, what: str) -> str:
        """A plain or back-quoted name."""
        token = self.token
        if (
            token is None
            or token.token_type in (TokenType.STRING, TokenType.NUMBER)
            or not (
                token.token_type is TokenType.IDENTIFIER or token.text[:1].isalpha() or token.text[:1] == "_"
            )
        ):
            raise self.error(f"expected {what}, found {self.found()}")
        if not token.text.strip(". "):
            # nobody could ask for it: in an address such a name means another place, or none
            raise self.error(
                f"expected {what}, found {self.found()}", hint="a name has more than dots and blanks"
            )
        self.index += 1
        return str(token.text)

    def string(self, what: str) -> str:
        token = self.token
        if token is None or token.token_type is not TokenType.STRING:
            raise self.error(f"expected {what} in single quotes, found {self.found()}")
        self.index += 1
        return str(token.text)

    def number(self, what: str) -> float:
        return float(self.decimal(what))

    def decimal(self, what: str) -> Decimal:
        """A number just as it is written: a hundredth of a float would not be the nearest one."""
        sign = -1 if self.accept("-") else 1
        token = self.token
        if token is None or token.token_type is not TokenType.NUMBER:
            raise self.error(f"expected {what} (a number), found {self.found()}")
        try:
            found = Decimal(token.text)
            # not a product: that would round to the digits of the context
            found = found.copy_negate() if sign < 0 else found
        except InvalidOperation:
            raise self.error(f"expected {what} (a number), found {self.found()}") from None
        if math.isinf(float(found)):
            raise self.error(f"expected {what} (a number below 1.8e308), found {self.found()}")
        self.index += 1
        return found

    def integer(self, what: str) -> int:
        at = self.position()
        value = self.number(what)
        if value != int(value):
            raise self.error(f"expected {what} (a whole number), found {value:g}", at=at)
        return int(value)

    def percent(self, what: str, usual: str) -> float:
        """A share written with its sign: ``5%`` is 0.05; ``usual`` is one to show as an example."""
        value = self.decimal(what)
        if not self.accept("%"):
            # a share or a percentage was meant; what is refused with its sign too is not offered
            meant = [f"{percent.normalize():f}%" for percent in (value * 100, value) if 0 < percent < 100]
            raise self.error(
                f"expected % after {what}, found {self.found()}",
                hint=f"write {' or '.join(meant) or f'a percentage such as {usual}'}",
            )
        return float(value.scaleb(-2))

    def duration(self, what: str) -> int:
        """A length of time such as ``2 SECONDS``, in microseconds."""
        at = self.position()
        token = self.token
        # Spark's own literals have such suffixes: 1s is a SMALLINT
        apart = spelt_out(self.text[token.start : token.end + 1]) if token is not None else None
        if apart is not None:
            raise self.error(
                f"expected {what} as a number and a unit, found {self.found()}", hint=f"write {apart}"
            )
        amount = self.number(f"{what}, such as 2 SECONDS")
        if amount < 0:
            raise self.error(f"{what} cannot be below 0", at=at)
        at = self.position()
        unit = self.name("a unit of time after the number")
        micros = unit_micros(unit)
        if micros is None:
            raise self.error(
                f"{unit!r} is not a unit of fixed length",
                at=at,
                hint="use MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS",
            )
        return round(amount * micros)

    def until(self, stop: int) -> Sequence[Token]:
        """The tokens from here to index ``stop``, stepping over them."""
        taken = self.tokens[self.index : stop]
        self.index = stop
        return taken

    def closing(self) -> int:
        """The index of the parenthesis that closes the one before the cursor."""
        depth = 1
        for index in range(self.index, len(self.tokens)):
            if self.tokens[index].token_type is TokenType.L_PAREN:
                depth += 1
            elif self.tokens[index].token_type is TokenType.R_PAREN:
                depth -= 1
                if depth == 0:
                    return index
        raise self.error("a parenthesis is opened here and never closed", at=self._before())

    def _before(self) -> Position:
        return position_at(self.text, self.tokens[max(0, self.index - 1)].start)
