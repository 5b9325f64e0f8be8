"""Texts that are aggregated as if they were numbers: Spark makes NULL of them, and says nothing."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp, parse_one

from slackwater.language.dialect import SparkText
from slackwater.language.statements import CreateStream, CreateTable
from slackwater.plan.model import Step

_ARITHMETIC = (exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div)
_TEXTS = ("STRING", "VARCHAR", "CHAR")


def text_as_number(step: Step, stream: CreateStream, tables: Mapping[str, CreateTable]) -> str | None:
    """A column of texts that an aggregate adds up or weighs by, with the aggregate; None where there is none.

    What is compared, counted or cast is not taken for a number.
    """
    types = {("s", c.name.lower()): c.type for c in stream.columns}
    for lookup in step.path.lookups:
        columns = tables[lookup.table.lower()].columns
        types |= {(lookup.alias, c.name.lower()): c.type for c in columns}
    for call in step.calls:
        for argument in call.arguments if call.function != "count" else ():
            for column in _numbers(parse_one(argument, dialect=SparkText)):
                kind = types.get((column.table, column.name.lower()), "").upper()
                if kind.split("(")[0].strip() in _TEXTS:
                    return f"{call.label} takes {column.name} for a number, and it is {kind}"
    return None


def _numbers(node: exp.Expr) -> list[exp.Column]:
    """The columns that arithmetic alone makes an expression of."""
    if isinstance(node, exp.Column):
        return [node]
    if not isinstance(node, _ARITHMETIC):
        return []
    return [column for child in node.iter_expressions() for column in _numbers(child)]
