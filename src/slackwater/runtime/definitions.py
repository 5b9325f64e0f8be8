"""What makes a query this one and no other: a name may be dropped and created again for another query."""

from __future__ import annotations

from dataclasses import replace

from slackwater.plan.catalog import Catalog
from slackwater.plan.model import Step

Definition = tuple[Step, ...]
"""A step and those that it reads, without contracts: these may be altered."""


def definition(catalog: Catalog, step: Step) -> Definition:
    """What makes a query this one and no other."""
    found: list[Step] = []
    part: Step | None = step
    while part is not None:
        found.append(replace(part, contract=None))
        part = catalog.step_of(part.path.source)
    return tuple(found)


def definitions_of(catalog: Catalog) -> dict[str, Definition]:
    """The definitions of all queries, by name as it is written."""
    return {step.name: definition(catalog, step) for step in catalog.queries.values()}
