"""A pass over a source as SQL text, and the pieces that such texts are made of.

What changes from batch to batch (the watermark, sequence numbers, thresholds) goes in as one array
behind an index that Catalyst cannot fold, so that the generated code stays the same and is
compiled once. ``cast(split('…'))`` is folded to an array, which is passed by reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from sqlglot import exp, parse_one

from slackwater.language.dialect import SparkText
from slackwater.plan.model import Lookup, Path
from slackwater.plan.scope import safe_name
from slackwater.plan.slots import Place, Slot, Slots, operators
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
    numbering: str = ""
    """Where rows are numbered and not all of them kept: what counts them all."""

    def bind(self, view: str, parameters: tuple[int, ...]) -> str:
        """The text for one batch."""
        return _bound(self.sql, view, parameters)

    def bind_numbering(self, view: str, parameters: tuple[int, ...]) -> str:
        """The text that counts the rows of a batch."""
        return _bound(self.numbering, view, parameters)


def _bound(sql: str, view: str, parameters: tuple[int, ...]) -> str:
    numbers = "'" + ",".join(map(str, parameters)) + "'"
    return sql.replace(PARAMETERS, numbers).replace("__VIEW__", f"`{view}`")


@dataclass(frozen=True)
class Compiled:
    """All statements over one source, and the constants of its signatures as views to register."""

    statements: tuple[Statement, ...]
    views: Mapping[str, str]
    emits: Mapping[str, str]
    """Set-valued steps: the rows they deliver."""
    latest: Statement | None = None
    """Reduces the rows to what each key said last, where queries read current values."""


@dataclass(frozen=True)
class Shedding:
    """How the statements of a stream test thresholds; without slots none does.

    ``blocks``: rows come in blocks that were read of the source, the rest being skipped, and partials are
    kept by block.
    """

    slots: Slots = field(default_factory=Slots)
    blocks: bool = False
    tested: bool = True
    """Whether thresholds are tested; a batch that is only measured keeps all its rows."""
    counted: tuple[tuple[Operator, ...], ...] = ()
    """Operators whose rows are counted, each with all that comes before it."""
    bits: Mapping[str, int] = field(default_factory=dict)
    """By slot whose windows may be left out: which bit of a row's ``__need`` says that it is needed."""
    leaves_out: bool = False
    """Whether rows are tested for being needed by a window that is kept."""

    @property
    def need_position(self) -> int:
        """Where in the list of numbers the cells of needs begin: at its end, as there are more or fewer."""
        strata = len(self.slots.stratified) * (1 + FREQUENT_AT_MOST)
        thresholds = self.slots.counters + len(self.slots.sheddable)
        return THRESHOLDS + thresholds + strata + 2 * len(self.slots.sizable)

    def needed(self, path: Path | None) -> str | None:
        """What a row must pass to be in a kept window of a path's steps; None where all rows are needed."""
        bit = self._bit((operators(path), "", None)) if path is not None else None
        return None if bit is None else has_bit(bit)

    def bit(self, table: str, member: int | None) -> int | None:
        """The bit of a signature's member."""
        return self._bit(((), table, member))

    def _bit(self, place: Place) -> int | None:
        slot = self.slots.places.get(place) if self.leaves_out else None
        return self.bits.get(slot.id) if slot is not None else None

    def rows(self, lookups: tuple[Lookup, ...], guards: Mapping[str, str] | None = None) -> str:
        """The rows of a batch with its numbers and what they are needed for, and what lookups bring."""
        return rows_of(lookups, guards, self.need_position if self.leaves_out else None)

    def position(self, slot: Slot | None) -> int:
        """Where in the list of numbers a slot's threshold is."""
        if slot is None:
            return ALWAYS
        return THRESHOLDS + self.slots.counters + self.slots.numbers[slot.id]

    def test(self, slot: Slot | None, keys: tuple[str, ...] = ()) -> str | None:
        """What a row must pass for a slot; None where it sheds nothing.

        In a pass that groups by the slot's ``keys``, frequent groups have one threshold, all others another.
        """
        if slot is None or not self.tested:
            return None
        place = str(self.position(slot))
        if slot.keys and slot.keys == keys:
            place = f"CASE WHEN s.{frequent(slot)} THEN {place} ELSE {self.rare_position(slot)} END"
        return f"s.__u < get(s.__p, s.__i + {place})"

    def sized_test(self, slot: Slot) -> str:
        """The same for rows that may be kept in proportion to their size: u < |v|/τ, where a τ is given."""
        assert slot.summed is not None
        size = f"abs(CAST({slot.summed} AS DOUBLE))"
        by_size = f"s.__u < least({WHOLE}D, {size} / ({self.tau(slot)}) * {WHOLE}D)"
        given = f"get(s.__p, s.__i + {self.tau_position(slot)}) > 0"
        return f"(CASE WHEN {given} THEN {by_size} ELSE {self.test(slot)} END)"

    def tau_position(self, slot: Slot) -> int:
        """Where a slot's τ is, as a numerator and a denominator."""
        strata = len(self.slots.stratified) * (1 + FREQUENT_AT_MOST)
        before = THRESHOLDS + self.slots.counters + len(self.slots.sheddable) + strata
        return before + 2 * [s.id for s in self.slots.sizable].index(slot.id)

    def tau(self, slot: Slot) -> str:
        """A slot's τ, 0 where rows are kept whatever their size."""
        place = self.tau_position(slot)
        return f"CAST(get(s.__p, s.__i + {place}) AS DOUBLE) / get(s.__p, s.__i + {place + 1})"

    def rare_position(self, slot: Slot) -> int:
        """Where a slot's threshold for rare groups is; the hashes of its frequent groups follow it."""
        number = [s.id for s in self.slots.stratified].index(slot.id)
        before = THRESHOLDS + self.slots.counters + len(self.slots.sheddable)
        return before + number * (1 + FREQUENT_AT_MOST)

    def frequent_sql(self, slot: Slot) -> str:
        """Whether a row's group is one of the frequent ones, as an item."""
        first = self.rare_position(slot) + 1
        listed = ", ".join(f"get(s.__p, s.__i + {first + i})" for i in range(FREQUENT_AT_MOST))
        return f"(xxhash64({', '.join(slot.keys)}) IN ({listed})) AS {frequent(slot)}"


EXACT = Shedding()
FREQUENT_AT_MOST = 16
"""Groups that are told from the rest: one comparison each for every row."""


def frequent(slot: Slot) -> str:
    """The column that says whether a row's group is a frequent one."""
    return f"__frequent_{slot.id}"


def since() -> str:
    return "s.__t >= get(s.__p, s.__i)"


def pane(width: int) -> str:
    return f"CASE WHEN {since()} THEN s.__t - pmod(s.__t, {width}) END"


def has_bit(bit: int) -> str:
    return f"(s.__need & {1 << bit}L) != 0"


def need_of(at: str, numbers: str, index: str, position: int) -> str:
    """The bits of the cell that a time or number falls into; all of them where there is no cell for it.

    From the position on, the numbers are where the cells begin, how wide they are, and their bits.
    """
    base, width = (f"get({numbers}, {index} + {position + place})" for place in (0, 1))
    # a cell that is far out is none: the number of it must fit an index
    cell = f"cast(least(({at} - {base}) div {width}, 1000000000L) as int)"
    bits = f"get({numbers}, {index} + {position + 2} + {cell})"
    return f"CASE WHEN {at} >= {base} THEN coalesce({bits}, -1L) ELSE -1L END"


def rows_of(
    lookups: tuple[Lookup, ...], guards: Mapping[str, str] | None = None, needs: int | None = None
) -> str:
    """The rows of a batch with its numbers, and what lookups bring to them.

    ``guards`` are tests by lookup that a row must pass to be looked up at all; ``needs`` is where in the list
    of numbers it is said which times are needed.
    """
    parameters = f"cast(split({PARAMETERS}, ',') as array<bigint>)"
    text = f"SELECT *, {parameters} AS __p, coalesce(cast(__t & 0 as int), 0) AS __i FROM __VIEW__"
    if needs is not None:
        text = f"SELECT *, {need_of('__t', '__p', '__i', needs)} AS __need FROM ({text})"
    text = f"({text}) s"
    for lookup in lookups:
        table = safe_name(lookup.table)
        guard = (guards or {}).get(lookup.alias)
        on = lookup.on if guard is None else _guarded(lookup, guard)
        text += f" LEFT JOIN (SELECT *, true AS __hit FROM `{table}`) {lookup.alias} ON {on}"
    return text


@cache
def _guarded(lookup: Lookup, guard: str) -> str:
    """A lookup's condition that looks nothing up for rows which fail a test: their key is NULL.

    A test beside the keys would come after the lookup, since an outer join may not drop rows before it.

    >>> _guarded(Lookup("t", "l_t_1", "l_t_1.`a` = s.`x` AND l_t_1.`b` = 2", ("a", "b"), True), "s.ok")
    'l_t_1.`a` = CASE WHEN s.ok THEN s.`x` END AND l_t_1.`b` = 2'
    """
    tree = parse_one(lookup.on, dialect=SparkText)
    test = parse_one(guard, dialect=SparkText)
    for equality in list(tree.find_all(exp.EQ)):
        for side in (equality.left, equality.right):
            tables = {column.table for column in side.find_all(exp.Column)}
            if tables and lookup.alias not in tables:
                side.replace(exp.Case(ifs=[exp.If(this=test.copy(), true=side.copy())]))
    return tree.sql(dialect=SparkText)


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
    return order.get(replace(path, apart=""), (*path.lookups, *path.predicates))


def aggregate(
    column: Column, test: str | None, x: str | None, *, sampled: bool = False, tau: str | None = None
) -> str:
    """A partial as SQL, over the argument (or 1) of the rows that pass the test.

    FILTER is half as costly in generated code as a CASE around the argument. Where the column is
    ``sampled``, what its variance needs comes with it; also for rows kept in proportion to their size, where
    there may be a ``tau``.
    """
    where = "" if test is None or test == "true" else f" FILTER (WHERE {test})"
    value = x if x is not None else "1"
    items = {column.id: column.template, **(companions(column) if sampled else {})}
    if tau is not None and column.template.startswith("sum("):
        number = "cast({x} as double)"
        weighed = f"greatest(abs({number}), {tau})"
        chance = f"coalesce(least(1D, abs({number}) / ({tau})), 1D)"
        items[f"{column.id}_z"] = f"sum(sign({number}) times {weighed})"
        items[f"{column.id}_y"] = f"sum({weighed} times {weighed} times (1D - {chance}))"
        # how many rows there are and their squares, by their chance: large ones are kept more often
        items[f"{column.id}_c"] = f"sum({weighed} / abs({number}))"
        items[f"{column.id}_w"] = f"sum({weighed} times abs({number}))"
    return ", ".join(f"{_filtered(t, value, where)} AS {name}" for name, t in items.items())


def _filtered(template: str, value: str, where: str) -> str:
    """A template over a value; each aggregate of a product is filtered, ``times`` multiplies within one."""
    calls = [call.replace("{x}", value) + where for call in template.split(" * ")]
    return " * ".join(calls).replace(" times ", " * ")


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
