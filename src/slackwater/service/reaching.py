"""Functions of Spark that reach beyond the rows they are given: who may only look may not have them called.

That a text is analysed is enough for some of them: to say of what type ``reflect`` is, Spark loads the class.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from sqlglot.tokenizer_core import TokenType

from slackwater.language.tokens import tokenize

_JAVA = frozenset(("reflect", "java_method", "try_reflect"))
_FILES = frozenset(
    (
        "from_avro",
        "to_avro",
        "schema_of_avro",
        "from_protobuf",
        "to_protobuf",
        "input_file_name",
        "input_file_block_start",
        "input_file_block_length",
        "python_worker_logs",
    )
)
"""They say where files are, or take the name of one that describes messages."""
_OWNER = frozenset(("current_user", "session_user", "user"))
_NAMES = frozenset(("identifier",))
"""What it gives is a name, of a function too, that stands nowhere in the text."""
_WITHOUT_CALL = frozenset(("current_user", "session_user"))
"""They need no parentheses."""
REACHING = _JAVA | _FILES | _OWNER | _NAMES


def reaching(sql: str) -> str | None:
    """The first such function that a text calls, by its name; quoted and qualified ones too.

    >>> reaching("SELECT `Reflect` ('a')"), reaching("SELECT system.builtin.try_reflect('a', 'b')")
    ('reflect', 'try_reflect')
    >>> reaching("SELECT reflect, 'reflect(1)' AS user FROM p -- reflect(1)") is None
    True
    """
    return next(_called(sql), None)


def _called(sql: str) -> Iterator[str]:
    tokens = [(t.token_type, str(t.text).lower()) for t in tokenize(sql)]
    for (kind, word), (following, _) in pairwise([*tokens, (TokenType.SEMICOLON, "")]):
        if kind is TokenType.STRING or word not in REACHING:
            continue
        bare = word in _WITHOUT_CALL and kind is not TokenType.IDENTIFIER
        if bare or following is TokenType.L_PAREN:
            yield word
