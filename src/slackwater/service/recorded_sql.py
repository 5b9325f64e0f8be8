"""The query sets of a recording, read without the Python functions that the run had."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, islice
from pathlib import Path
from typing import Any

from slackwater.errors import SlackwaterError, StateError
from slackwater.language.aggregates import UserAggregate
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.runtime.recording import version_file

_TRIES = 256


class RecordedVersions:
    """Catalogs by the number of their version; each is read once."""

    def __init__(self, root: Path, header: Mapping[str, Any]) -> None:
        self._root = root
        self._header = header
        self._catalogs: dict[int, Catalog] = {}
        found = (path.stem for path in (root / "versions").glob("*.sql"))
        self.numbers = sorted(int(stem) for stem in found if stem.isdigit())
        if not self.numbers:
            raise StateError(f"there is nothing to be seen in {root} yet: no turn came to its end")

    def sql(self, number: int) -> str:
        """The statements of a version; of the last one before it where it has been lost."""
        there = [known for known in self.numbers if known <= number] or self.numbers[:1]
        return version_file(self._root, there[-1]).read_text()

    def catalog(self, number: int) -> Catalog:
        """The query set of a version."""
        if number not in self._catalogs:
            self._catalogs[number] = self._read(self.sql(number))
        return self._catalogs[number]

    def last(self) -> Catalog:
        """The query set at the end of the run."""
        return self.catalog(self.numbers[-1])

    def declaring(self, query: str) -> Catalog:
        """The last query set that has a query; the very last one where none has."""
        for number in reversed(self.numbers):
            # to look at the text costs less than to read it
            if query.lower() in self.sql(number).lower() and query.lower() in self.catalog(number).queries:
                return self.catalog(number)
        return self.last()

    def _read(self, sql: str) -> Catalog:
        problem: SlackwaterError | None = None
        for functions in islice(self._functions(), _TRIES):
            try:
                return Catalog.from_sql(sql, functions, kept=True)
            except SlackwaterError as error:
                problem = problem or error
        raise StateError(f"the SQL of the recording in {self._root} cannot be read: {problem}")

    def _functions(self) -> Iterator[Functions]:
        """What the functions of the run may have been: older recordings do not say which are aggregates."""
        names = [str(name) for name in self._header.get("functions", ())]
        facts = self._header.get("aggregates")
        if facts is not None:
            aggregates = {name: _unknown(**said) for name, said in facts.items()}
            yield Functions(frozenset(names) - aggregates.keys(), aggregates)
            return
        for count in range(len(names) + 1):
            for chosen in combinations(names, count):
                yield Functions(frozenset(names) - set(chosen), {name: _unknown() for name in chosen})


def _unknown(*, returns: str = "DOUBLE", merges: bool = True, scalable: bool = True) -> UserAggregate:
    """An aggregate of which only the name and its kind are known: it can be planned, and not be run."""

    def absent(*_: Any) -> Any:
        raise StateError("the functions of a recorded run are not there when it is only looked at")

    return UserAggregate(
        init=absent,
        incr=absent,
        final=absent,
        merge=absent if merges else None,
        scalable=scalable,
        returns=returns,
    )
