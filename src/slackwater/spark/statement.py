"""A pass over a source as SQL text, and the pieces that such texts are made of.

What changes from batch to batch (the watermark, sequence numbers, thresholds) goes in as one array
behind an index that Catalyst cannot fold, so that the generated code stays the same and is
compiled once. ``cast(split('…'))`` is folded to an array, which is passed by reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slackwater.plan.model import Lookup, Path
from slackwater.plan.scope import safe_name
from slackwater.plan.slots import Slot, Slots
from slackwater.plan.tables import Column, Table
from slackwater.plan.tree import Operator

PARAMETERS = "'__PARAMETERS__'"
"""Stands for the list of numbers of a batch."""
WATERMARK, FIRST_NUMBER, ALWAYS = 0, 1, 2
"""Where in the list the watermark, the first sequence number and a threshold that all rows pass are."""
THRESHOLDS = 3
"""From here on: the thresholds that are counted, then one for each slot."""
WHOLE = 2**53
"""Thresholds and ``__u`` are whole numbers below it: a rate of 1."""
BASE = "__base"
"""Name of the statement that only counts what arrived."""


@dataclass(frozen=True)
class Statement:
    """One pass over a source. ``columns`` are the partials it fills, in order."""

    table: str
    sql: str
    columns: tuple[str, ...] = ()
    counts: bool = False
    """Whether it also counts what arrived (``__arrived``, ``__readable``, ``__latest``)."""

    def bind(self, view: str, parameters: tuple[int, ...]) -> str:
        """The text for one batch."""
        numbers = "'" + ",".join(map(str, parameters)) + "'"
        return self.sql.replace(PARAMETERS, numbers).replace("__VIEW__", f"`{view}`")


@dataclass(frozen=True)
class Compiled:
    """All statements over one source, and the constants of its signatures as views to register."""

    statements: tuple[Statement, ...]
    views: Mapping[str, str]
    emits: Mapping[str, str]
    """Set-valued steps: the rows they deliver."""


@dataclass(frozen=True)
class Shedding:
    """How the statements of a stream test thresholds; without slots none does.

    ``blocks``: rows come in blocks that were read of the source, the rest being skipped, and partials are
    kept by block.
    """

    slots: Slots = field(default_factory=Slots)
    blocks: bool = False
    counted: tuple[tuple[Operator, ...], ...] = ()
    """Operators whose rows are counted, each with all that comes before it."""

    def position(self, slot: Slot | None) -> int:
        """Where in the list of numbers a slot's threshold is."""
        if slot is None:
            return ALWAYS
        return THRESHOLDS + self.slots.counters + self.slots.numbers[slot.id]

    def test(self, slot: Slot | None) -> str | None:
        """What a row must pass for a slot; None where it sheds nothing."""
        return None if slot is None else f"s.__u < get(s.__p, s.__i + {self.position(slot)})"


EXACT = Shedding()


def since() -> str:
    return "s.__t >= get(s.__p, s.__i)"


def pane(width: int) -> str:
    return f"CASE WHEN {since()} THEN s.__t - pmod(s.__t, {width}) END"


def rows_of(lookups: tuple[Lookup, ...], guards: Mapping[str, str] | None = None) -> str:
    """The rows of a batch with its numbers, and what lookups bring to them.

    ``guards`` are tests by lookup that a row must pass to be looked up at all.
    """
    parameters = f"cast(split({PARAMETERS}, ',') as array<bigint>)"
    text = f"(SELECT *, {parameters} AS __p, coalesce(cast(__t & 0 as int), 0) AS __i FROM __VIEW__) s"
    for lookup in lookups:
        table = safe_name(lookup.table)
        guard = (guards or {}).get(lookup.alias)
        on = lookup.on if guard is None else f"{guard} AND {lookup.on}"
        text += f" LEFT JOIN (SELECT *, true AS __hit FROM `{table}`) {lookup.alias} ON {on}"
    return text


def condition(operators: tuple[Operator, ...], *before: str | None) -> str:
    """The condition that a row passes all operators, and before them whatever else is to be tested."""
    tests = [b for b in before if b is not None]
    for operator in operators:
        if isinstance(operator, Lookup):
            if operator.inner:
                tests.append(f"{operator.alias}.__hit")
        else:
            tests.append(f"({operator})")
    return " AND ".join(tests) or "true"


def lookups_of(columns: tuple[Column, ...]) -> tuple[Lookup, ...]:
    return tuple(dict.fromkeys(k for c in columns if c.path is not None for k in c.path.lookups))


def keys_of(table: Table) -> list[str]:
    keys = [f"{sql} AS k{i}" for i, sql in enumerate(table.keys)]
    return keys + [f"{sql} AS v{i}" for i, sql in enumerate(table.values)]


def key_names(table: Table) -> list[str]:
    return [f"k{i}" for i in range(len(table.keys))] + [f"v{i}" for i in range(len(table.values))]


def in_order(path: Path, order: Mapping[Path, tuple[Operator, ...]]) -> tuple[Operator, ...]:
    """The operators of a path as its tree has them."""
    return order.get(path, (*path.lookups, *path.predicates))


def aggregate(column: Column, test: str | None, x: str | None, *, sampled: bool = False) -> str:
    """A partial as SQL, over the argument (or 1) of the rows that pass the test.

    FILTER is half as costly in generated code as a CASE around the argument. Where the column is
    ``sampled``, what its variance needs comes with it.
    """
    where = "" if test is None or test == "true" else f" FILTER (WHERE {test})"
    value = x if x is not None else "1"
    items = {column.id: column.template, **(companions(column) if sampled else {})}
    return ", ".join(
        f"{' * '.join(call.replace('{x}', value) + where for call in template.split(' * '))} AS {name}"
        for name, template in items.items()
    )


def companions(column: Column) -> dict[str, str]:
    """What a partial needs beside it to tell its variance: templates by name.

    >>> [name[-2:] for name in companions(Column(None, None, "s.`x`", "sum({x})", "sum"))]
    ['_n', '_q', '_l', '_h']
    """
    if column.template.startswith("sum("):
        return {
            f"{column.id}_n": "count({x})",
            f"{column.id}_q": "sum(pow(cast({x} as double), 2D))",
            f"{column.id}_l": "min(cast({x} as double))",
            f"{column.id}_h": "max(cast({x} as double))",
        }
    if column.merge == "m2":
        number = "cast({x} as double)"
        return {
            f"{column.id}_3": f"skewness({number})",
            f"{column.id}_4": f"kurtosis({number})",
            f"{column.id}_l": f"min({number})",
            f"{column.id}_h": f"max({number})",
        }
    return {}
