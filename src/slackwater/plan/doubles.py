"""Which aggregates doubles hold exactly: large whole numbers, decimals, texts and times they do not."""

from __future__ import annotations

import re
from collections.abc import Mapping

from slackwater.language.statements import CreateStream, CreateTable
from slackwater.plan.model import Step

_COLUMN = re.compile(r"(\w+)\.`((?:[^`]|``)+)`")
_CAST = re.compile(r"cast\(.* as (double|float|int|smallint|tinyint)\)", re.IGNORECASE | re.DOTALL)
_DECIMAL = re.compile(r"\d\.\d|\.\d|\d\.(?!\w)")
_HELD = ("INT", "INTEGER", "SMALLINT", "SHORT", "TINYINT", "BYTE", "DOUBLE", "FLOAT", "REAL")


def inexact_in_doubles(step: Step, stream: CreateStream, tables: Mapping[str, CreateTable]) -> str | None:
    """What a query over current values aggregates that doubles do not hold; None where they hold all."""
    types = {("s", c.name): c.type for c in stream.columns}
    for lookup in step.path.lookups:
        types |= {(lookup.alias, c.name): c.type for c in tables[lookup.table.lower()].columns}
    for call in step.calls:
        for argument in call.arguments if call.function != "count" else ():
            if _CAST.fullmatch(argument):
                continue
            kinds = {}
            for alias, name in _COLUMN.findall(argument):
                plain = name.replace("``", "`")
                kinds[plain] = types.get((alias, plain), "TIMESTAMP").upper().split("(")[0].strip()
            wide = next((f"{name} is {kind}" for name, kind in kinds.items() if kind not in _HELD), None)
            if wide is not None:
                return wide
            # 1.5 is a decimal in Spark, and so is what is made of it unless a double is in it too
            if _DECIMAL.search(_COLUMN.sub("", argument)) and "DOUBLE" not in kinds.values():
                return f"{argument} is DECIMAL"
    return None
