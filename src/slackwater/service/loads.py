"""Which part of the load is each query's: what operators cost, shared by those whose rows pass them."""

from __future__ import annotations

from collections.abc import Sequence

from slackwater.runtime.insight import Insight, OperatorInsight, StreamInsight


def query_loads(insight: Insight) -> dict[str, float]:
    """By query: executor seconds of a batch as it is now. Together they are what is kept of the load."""
    found: dict[str, float] = {}
    for stream in insight.streams:
        if stream.measured:
            found.update(_of_stream(stream))
    return found


def operator_seconds(stream: StreamInsight) -> list[float]:
    """By operator: executor seconds of a batch, after the shedders before it."""
    kept: list[float] = []
    seconds = []
    for operator in stream.operators:
        above = kept[operator.parent] if operator.parent >= 0 else 1.0
        kept.append(above * (1.0 if operator.passes is None else operator.passes))
        rows = (1.0 if operator.rows_in is None else operator.rows_in) * kept[-1] * stream.size * stream.share
        seconds.append((operator.seconds or 0.0) * rows)
    return seconds


def _of_stream(stream: StreamInsight) -> dict[str, float]:
    below = _below(stream.operators)
    found = {query.query: 0.0 for query in stream.queries}
    if not found:
        return {}
    for seconds, queries in zip(operator_seconds(stream), below, strict=True):
        # an operator that leads nowhere is everybody's
        owners = queries or list(found)
        for name in owners:
            if name in found:
                found[name] += seconds / len(owners)
    # what no operator has, each pass of Spark for one, is shared alike
    rest = stream.kept_load - sum(found.values())
    if rest > 0:
        return {name: own + rest / len(found) for name, own in found.items()}
    scale = stream.kept_load / sum(found.values()) if sum(found.values()) else 0.0
    return {name: own * scale for name, own in found.items()}


def _below(operators: Sequence[OperatorInsight]) -> list[list[str]]:
    """By operator: the queries whose rows pass it."""
    found = [list(operator.queries) for operator in operators]
    for place in range(len(operators) - 1, 0, -1):
        if operators[place].parent >= 0:
            found[operators[place].parent] += found[place]
    return [list(dict.fromkeys(names)) for names in found]
