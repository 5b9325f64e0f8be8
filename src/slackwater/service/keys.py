"""Group keys as frames have them, and as they are asked for: by texts, in an address."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

from slackwater.runtime.json_values import exact_text, json_text
from slackwater.service.watched import Asked

Group = Iterable[tuple[str, Any]]
"""The keys of a group by name."""
_SAFE = 2**53 - 1
"""The largest whole number up to which JavaScript has all of them."""


def plain_key(value: Any) -> Any:
    """A group key as frames have it: a text where JSON has none, or JavaScript would read another number.

    >>> plain_key(80), plain_key(2**53 + 1), plain_key(1.0), plain_key(None), plain_key([1, "a"])
    (80, '9007199254740993', '1.0', None, '[1,"a"]')
    """
    if isinstance(value, int) and abs(value) > _SAFE:
        return str(value)
    return value if isinstance(value, str | int | bool) or value is None else json_text(value).strip('"')


def plain_keys(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a group as JSON has them."""
    return {name: plain_key(value) for name, value in keys.items()}


def has_words(column: str, keys: Group, search: str) -> bool:
    """Whether each word of a search is in a column and its group, in any case.

    >>> [has_words("n", [("host", "Rome"), ("port", 80)], s) for s in ("rome 8", "HOST=rome", "", "oslo")]
    [True, True, True, False]
    >>> has_words("n", [("host", None)], "host=null")
    True
    """
    if not search:
        return True
    texts = [f"{name}={'NULL' if value is None else plain_key(value)}" for name, value in keys]
    text = " ".join((column, *texts)).lower()
    return all(word in text for word in search.lower().split())


def in_order(column: str, keys: Group) -> tuple[object, ...]:
    """By what columns and groups are put in order: numbers by their size, NULL before all.

    >>> sorted([[("k", "b")], [("k", 80)], [("k", None)], [("k", 443)]], key=lambda keys: in_order("n", keys))
    [[('k', None)], [('k', 80)], [('k', 443)], [('k', 'b')]]
    """
    return *(_rank(value) for _, value in keys), column


def _rank(value: Any) -> tuple[int, float, str]:
    if value is None:
        return 0, 0.0, ""
    # of more digits than a double has the texts are compared, which are of one length then
    if isinstance(value, int | float | Decimal) and not math.isnan(value):
        return 1, float(value), str(value)
    return 2, 0.0, value if isinstance(value, str) else json_text(value)


def conditions_of(asked: Asked) -> dict[str, Callable[[Any], bool]]:
    """By group key: whether a value is the one that is asked for."""
    apart = asked.nulls is not None
    texts = {name: partial(is_key, text=text, apart=apart) for name, text in (asked.keys or {}).items()}
    return {**texts, **dict.fromkeys(asked.nulls or (), _is_null)}


def of_group(keys: Mapping[str, Any], asked: Asked) -> bool:
    """Whether a group is the one that is asked for."""
    return all(name in keys and fits(keys[name]) for name, fits in conditions_of(asked).items())


def is_key(value: Any, text: str, apart: bool = False) -> bool:
    """Whether a group key is the one that a text asks for; unless told apart, nothing stands for NULL too.

    Numbers that are not whole by their type are compared as numbers: 1.0 is asked for as 1, too.

    >>> is_key("a", "a"), is_key(80, "80"), is_key(None, ""), is_key(1.0, "1"), is_key("1.0", "1")
    (True, True, True, True, False)
    >>> is_key("", ""), is_key(None, "", apart=True), is_key(1.0, "sNaN")
    (True, False, False)
    """
    if value is None:
        return text == "" and not apart
    if isinstance(value, str):
        return value == text
    return exact_text(value) == text or (isinstance(value, float | Decimal) and _is_number(value, text))


def _is_null(value: Any) -> bool:
    return value is None


def _is_number(value: float | Decimal, text: str) -> bool:
    try:
        asked = Decimal(text)
    except InvalidOperation:
        return False
    if asked.is_nan():
        # one that signals cannot even be compared
        return False
    # of a decimal every digit counts; a double is whatever double the text is nearest to
    return value == asked if isinstance(value, Decimal) else value == float(asked)
