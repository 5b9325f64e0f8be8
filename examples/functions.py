"""Functions for functions.sql: one Python function, two aggregates.

slackwater run examples/functions.sql --import examples/functions.py
"""

from __future__ import annotations

from typing import Any

from slackwater import UserAggregate


def subnet(address: str | None) -> str | None:
    """The first three numbers of an address: ``10.0.3`` of ``10.0.3.17``."""
    return None if address is None else address.rpartition(".")[0]


def widen(state: list[int], value: int | None) -> list[int]:
    """A state [least, largest], empty at first, with one more value; NULL changes nothing."""
    if value is None:
        return state
    return [min(state[0], value), max(state[1], value)] if state else [value, value]


def join(left: list[int], right: list[int]) -> list[int]:
    """The state of two stretches of rows."""
    return [min(left[0], right[0]), max(left[1], right[1])] if left and right else left or right


def rise(state: dict[str, Any], value: int | None) -> dict[str, Any]:
    """How many values in a row have each been larger than the one before."""
    if value is None:
        return state
    run = state["run"] + 1 if state["last"] is not None and value > state["last"] else 1
    return {"last": value, "run": run, "longest": max(state["longest"], run)}


def register(session: Any) -> None:
    """Called once, before the queries are read."""
    session.function("subnet", subnet, "STRING")
    session.aggregate(
        "span",
        UserAggregate(
            init=list,
            incr=widen,
            merge=join,
            final=lambda state: state[1] - state[0] if state else None,
            returns="BIGINT",
        ),
    )
    session.aggregate(
        "longest_rise",
        UserAggregate(
            init=lambda: {"last": None, "run": 0, "longest": 0},
            incr=rise,
            final=lambda state: state["longest"],
            returns="BIGINT",
        ),
    )
