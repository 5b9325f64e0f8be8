"""Answers of a recording by query: where they are in its file, so that few are read of many."""

from __future__ import annotations

import json
import re
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from json.encoder import encode_basestring
from typing import Any

import numpy as np
import numpy.typing as npt

from slackwater.errors import SlackwaterError, StateError
from slackwater.runtime.answers import Answer
from slackwater.runtime.json_values import to_micros
from slackwater.service.keys import has_words, in_order, of_group
from slackwater.service.lines import Lines
from slackwater.service.redefined import Redefined
from slackwater.service.watched import Asked, Newest

LOOKED_AT = 200_000
"""Answers of a query among which the newest of each group is looked for."""
_Place = tuple[int, str, tuple[tuple[str, Any], ...]]
"""The place of an answer, its column, and its group."""
Places = npt.NDArray[np.intp]
_NO_TIME = -(2**63)
_QUERY, _COLUMN, _END, _AT = b'{"query":', b',"column":', b',"window_end":', b',"at":'
_KEYS, _VALUE = b',"keys":', b',"value":'
_NOT_WHOLE = re.compile(r"[+-]?(\d{16,}|\d*\.\d*|[\d.]+[eE][+-]?\d+)")


@dataclass
class _Query:
    """Where the answers of one query begin and end, and the times that they are for."""

    starts: array[Any] = field(default_factory=lambda: array("Q"))
    lengths: array[Any] = field(default_factory=lambda: array("I"))
    times: array[Any] = field(default_factory=lambda: array("q"))
    columns: array[Any] = field(default_factory=lambda: array("I"))
    names: dict[bytes, int] = field(default_factory=dict)
    """The columns, as JSON has their names, by number."""
    newest: tuple[int | None, list[_Place], bool] | None = None
    """Up to which time the newest were asked for last, where they are, and whether there may be more of them:
    they are asked for often."""


class AnswerLines:
    """Looks answers up in a file of them. The file is gone through once, when somebody first asks.

    A name may have been given to several queries, one after the other. Who asks for a name is told of the
    last of them alone; who asks for answers until a time, of the last one that had any by then.
    """

    def __init__(self, lines: Lines, redefined: Callable[[], Redefined] = Redefined) -> None:
        self._lines = lines
        self._lock = threading.Lock()
        self._look_up = redefined
        self._redefined: Redefined | None = None
        self._queries: dict[str, list[_Query]] | None = None

    def answers(self, query: str, asked: Asked) -> list[Answer]:
        """The newest answers that fit, oldest first."""
        known = self._of(query, asked.until)
        if known is None:
            return []
        times = np.frombuffer(known.times, np.int64)
        fits = np.ones(len(times), dtype=bool)
        if asked.since is not None:
            fits &= (times == _NO_TIME) | (times >= to_micros(asked.since))
        if asked.until is not None:
            fits &= (times == _NO_TIME) | (times <= to_micros(asked.until))
        if asked.column is not None:
            number = known.names.get(_json(asked.column))
            if number is None:
                return []
            fits &= np.frombuffer(known.columns, np.uint32) == number
        found: list[Answer] = []
        newest = _newest_first(known)
        for place in newest[fits[newest]].tolist():
            line = self._line(known, place)
            if asked.keys and not _may_have(line, asked.keys):
                continue
            answer = self._read(line)
            if of_group(answer.group, asked):
                found.append(answer)
            if len(found) >= asked.limit:
                break
        return found[::-1]

    def latest(self, query: str, limit: int, search: str = "", until: datetime | None = None) -> Newest:
        """The newest answer of every column and group, of those that have some words.

        Of those that came long ago none.
        """
        known = self._of(query, until)
        if known is None:
            return Newest([], 0)
        last = None if until is None else to_micros(until)
        newest = known.newest
        if newest is None or newest[0] != last:
            newest = known.newest = (last, *self._newest(known, last))
        fitting = [place for place, column, keys in newest[1] if has_words(column, keys, search)]
        answers = [self._read(self._line(known, place)) for place in fitting[:limit]]
        return Newest(answers, len(fitting), cut=newest[2])

    def _newest(self, known: _Query, until: int | None) -> tuple[list[_Place], bool]:
        """Where the newest answer of every column and group is, in order; whether some are missing."""
        times = np.frombuffer(known.times, np.int64)
        order = _newest_first(known)
        if until is not None:
            order = order[times[order] <= until]
        columns = [json.loads(name) for name in known.names]
        seen = set[object]()
        found: list[_Place] = []
        for place in order[:LOOKED_AT].tolist():
            line = self._line(known, place)
            group = (known.columns[place], _group_text(line))
            if group not in seen:
                seen.add(group)
                found.append((place, columns[known.columns[place]], tuple(_keys_of(line).items())))
        cut = len(order) > LOOKED_AT and bool(times[order[LOOKED_AT]] == times[order[0]])
        return sorted(found, key=lambda each: (-known.times[each[0]], *in_order(each[1], each[2]))), cut

    def count(self, query: str) -> int:
        """How many answers a query has."""
        known = self._of(query)
        return 0 if known is None else len(known.starts)

    def scan(self) -> Iterator[Answer]:
        """All answers in the order in which they were given."""
        for _, line in self._lines.scan():
            yield self._read(line)

    def scan_last(self) -> Iterator[Answer]:
        """The same without the answers of queries whose names were given to others."""
        with self._lock:
            redefined = self._when()
        for number, (_, line) in enumerate(self._lines.scan()):
            answer = self._read(line)
            name = answer.query.lower()
            if redefined.which(name, number) == redefined.last(name):
                yield answer

    def _line(self, known: _Query, place: int) -> bytes:
        start = known.starts[place]
        return self._lines.between(start, start + known.lengths[place])

    def _read(self, line: bytes) -> Answer:
        try:
            return Answer.from_json(line)
        except (ValueError, KeyError, TypeError, SlackwaterError) as error:
            raise StateError(
                f"{self._lines.path} has a line that is no answer: {error}; the recording is damaged there"
            ) from None

    def _of(self, query: str, until: datetime | None = None) -> _Query | None:
        with self._lock:
            if self._queries is None:
                self._queries = self._index(self._when())
            found = self._queries.get(query.lower(), [])
        if until is None:
            return found[-1] if found else None
        for known in reversed(found):
            if len(known.times) and np.frombuffer(known.times, np.int64).min() <= to_micros(until):
                return known
        return None

    def _when(self) -> Redefined:
        """When names were given to others; looked up once."""
        if self._redefined is None:
            self._redefined = self._look_up()
        return self._redefined

    def _index(self, redefined: Redefined) -> dict[str, list[_Query]]:
        """By name: the queries that have had it."""
        found: dict[str, list[_Query]] = {}
        names: dict[bytes, str] = {}
        for number, (start, line) in enumerate(self._lines.scan()):
            middle = line.find(_COLUMN)
            end = line.find(b',"window_start":', middle)
            if not line.startswith(_QUERY) or middle < 0 or end < 0:
                # no answer of ours; whoever asks for the answers beside it can still have these
                continue
            text = line[len(_QUERY) : middle]
            name = names.get(text)
            if name is None:
                name = names[text] = _name_of(text)
                found.setdefault(name, [_Query() for _ in range(redefined.last(name) + 1)])
            known = found[name][redefined.which(name, number)]
            known.starts.append(start)
            known.lengths.append(len(line))
            known.columns.append(known.names.setdefault(line[middle + len(_COLUMN) : end], len(known.names)))
            known.times.append(_time_of(line, end))
        return found


def _name_of(text: bytes) -> str:
    """A name as it stands in a line, in lower case."""
    try:
        return str(json.loads(text)).lower()
    except ValueError:
        return text.decode(errors="replace").lower()


def _time_of(line: bytes, after: int) -> int:
    """The end of the window or the time that an answer is for, in microseconds; times have a fixed form."""
    for name in (_END, _AT):
        place = line.find(name, after) + len(name)
        if line[place : place + 1] == b'"':
            try:
                text = line[place + 1 : line.index(b'"', place + 1)].decode()
                return to_micros(datetime.fromisoformat(text))
            except ValueError:
                return _NO_TIME
    return _NO_TIME


def _newest_first(known: _Query) -> Places:
    """The places of answers by the times that they are for: those of a turn are written in no order."""
    return np.argsort(np.frombuffer(known.times, np.int64), kind="stable")[::-1]


def _json(text: str) -> bytes:
    return encode_basestring(text).encode()


def _may_have(line: bytes, keys: Mapping[str, str]) -> bool:
    """Whether a line has the texts of some keys somewhere: most have not, and need not be read."""
    # a text stands there as JSON has it, a list as it is; a double may be written in several ways
    texts = [text for text in keys.values() if not _NOT_WHOLE.fullmatch(text)]
    return all(_json(text)[1:-1] in line or text.encode() in line for text in texts)


def _group_text(line: bytes) -> bytes:
    """What of a line is the same for all answers of a group."""
    start = line.find(_KEYS)
    if line.count(_VALUE) == 1:
        return line[start : line.find(_VALUE)]
    # a key or a value with fields of its own has one of that name
    return repr(Answer.from_json(line).keys).encode()


def _keys_of(line: bytes) -> dict[str, Any]:
    """The group of an answer; nothing else of the line is read."""
    if line.count(_VALUE) != 1:
        return Answer.from_json(line).group
    found: dict[str, Any] = json.loads(line[line.find(_KEYS) + len(_KEYS) : line.find(_VALUE)])
    return found
