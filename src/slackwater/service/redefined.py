"""When the query of a name became another one in a recording: it was dropped, and the name given again."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from slackwater.runtime.answers import Answer
from slackwater.runtime.definitions import Definition, definitions_of
from slackwater.runtime.json_values import to_micros
from slackwater.runtime.recording import RecordedTurn
from slackwater.service.recorded_sql import RecordedVersions
from slackwater.service.remade import times_of

_CREATES = re.compile(r"\s*CREATE\s+(?:QUERY|VIEW)\s+(`[^`]*`|\"[^\"]*\"|\w+)", re.IGNORECASE)
_ALTERS = re.compile(r"\s*ALTER\s", re.IGNORECASE)


@dataclass(frozen=True)
class Redefined:
    """Which query of a name an answer is of."""

    versions: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By name in lower case, of names that were given again: the versions that another one begins with."""
    ends: Sequence[int] = ()
    """How many answers there were after each turn."""
    turns: Sequence[int] = ()
    """The versions that turns ran under."""

    def which(self, name: str, answer: int) -> int:
        """Which of those of a name the answer of a number is of, counted from 0."""
        if name not in self.versions:
            return 0
        turn = min(bisect_right(self.ends, answer), len(self.turns) - 1)
        return bisect_right(self.versions[name], self.turns[turn])

    def last(self, name: str) -> int:
        """The number of the one that had the name last."""
        return len(self.versions.get(name, ()))


def redefined(
    versions: RecordedVersions, turns: Iterable[RecordedTurn], answers: Callable[[], Iterator[Answer]]
) -> Redefined:
    """Looked up in the versions of a recording; turns and ``answers`` in the order in which they were."""
    found = _redefined(versions)
    taken = list(turns) if found else []
    if not taken:
        return Redefined()
    return Redefined(found, _ends(taken, answers), [turn.version for turn in taken])


def _redefined(versions: RecordedVersions) -> dict[str, list[int]]:
    """By query: the versions from which it is another one. To look at texts costs less than to read them."""
    found: dict[str, list[int]] = {}
    gone: dict[str, int] = {}
    """By name that was dropped: the last version that had it."""
    before: frozenset[str] = frozenset()
    for place, number in enumerate(versions.numbers):
        texts = frozenset(t for t in versions.sql(number).split(";\n") if t and not _ALTERS.match(t))
        if place:
            last = versions.numbers[place - 1]
            gone |= dict.fromkeys(map(_name, before - texts), last)
            again = {name: gone[name] for name in map(_name, texts - before) if name in gone}
            if again:
                known: dict[str, Definition] = {}
                for earlier in sorted({*again.values(), last}):
                    known |= _definitions(versions, earlier)
                for name, definition in _definitions(versions, number).items():
                    if known.get(name, definition) != definition:
                        found.setdefault(name, []).append(number)
        before = texts
    return found


def _name(text: str) -> str:
    """What a statement declares; of those that begin otherwise nobody knows, and they are all alike."""
    match = _CREATES.match(text)
    return match[1].strip('`"').lower() if match else ""


def _definitions(versions: RecordedVersions, number: int) -> dict[str, Definition]:
    return {name.lower(): made for name, made in definitions_of(versions.catalog(number)).items()}


def _ends(turns: Sequence[RecordedTurn], answers: Callable[[], Iterator[Answer]]) -> list[int]:
    if all(turn.answers is not None for turn in turns):
        return list(accumulate(turn.answers or 0 for turn in turns))
    # older recordings do not say: the answers of a turn were made before it was over
    emitted = np.fromiter((to_micros(answer.emitted_at) for answer in answers()), np.int64)
    times = times_of(turns, answers)
    ends: list[int] = np.searchsorted(np.maximum.accumulate(emitted), times, side="right").tolist()
    return ends
