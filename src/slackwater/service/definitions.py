"""Whether the query of a name is still the one it was: it may have been dropped and created as another."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from slackwater.plan.catalog import Catalog
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.board import places_by_query
from slackwater.runtime.definitions import Definition, definition, definitions_of


@dataclass
class Definitions:
    """The queries of the newest catalog that was taken."""

    _catalog: Catalog | None = None
    _known: dict[str, Definition] = field(default_factory=dict)

    def take(self, catalog: Catalog) -> list[str]:
        """Take what is declared now: the names of queries that are no more, or are others than before."""
        if catalog is self._catalog:
            return []
        known = definitions_of(catalog)
        gone = [name for name, was in self._known.items() if known.get(name) != was]
        self._catalog, self._known = catalog, known
        return gone

    def own(self, catalog: Catalog, batches: Iterable[AnswerBatch]) -> Iterator[AnswerBatch]:
        """Of answers that were made under a catalog those whose queries are still the same."""
        if catalog is self._catalog:
            yield from batches
            return
        same = {
            step.name
            for step in catalog.queries.values()
            if self._known.get(step.name) == definition(catalog, step)
        }
        for batch in batches:
            yield from _of(batch, same)


def _of(batch: AnswerBatch, names: Collection[str]) -> Iterator[AnswerBatch]:
    """The part of a batch that is of some queries."""
    if all(name in names for name in batch.queries):
        yield batch
        return
    parts: list[tuple[str, Any]] = [(n, places) for n, places in places_by_query(batch) if n in names]
    for name, places in parts:
        yield replace(batch.take(list(places)), query=name)
