"""The items of a query that are of its groups alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from slackwater.plan.model import Output, Step
from slackwater.runtime.expressions import evaluate as expression

BySpark = Callable[[Step, pa.Table, Sequence[Output]], pa.Table]


def named_groups(step: Step, groups: Sequence[pa.Array], by_spark: BySpark) -> dict[str, pa.Array] | None:
    """Such items for all groups, given by their keys, by Spark where only it can; None: there are none."""
    plain = [output for output in step.outputs if not output.aggregated]
    columns = {f"k{i}": column for i, column in enumerate(groups)}
    if not plain or not columns:
        return None
    made = {output.name: expression(output.sql, columns) for output in plain}
    rest = [output for output in plain if made[output.name] is None]
    if rest:
        found = by_spark(step, pa.table(columns), rest)
        made |= {output.name: found[f"o{i}"].combine_chunks() for i, output in enumerate(rest)}
    return {name: column for name, column in made.items() if column is not None}
