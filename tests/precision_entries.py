"""Entries of a hub's log, made by hand, and a mirror that has taken some."""

from __future__ import annotations

from typing import Any

from precision_world import BEGIN, SECOND
from slackwater.runtime.bounds.mirror import Mirror

PERIOD = 10 * SECOND


def batch(position: int, agent: str, rows: list[tuple[int, int, float]], **more: Any) -> dict[str, Any]:
    """A batch of rows (key, time, value) of one column."""
    received = more.pop("received", max((r[1] for r in rows), default=0))
    fields = {"key": [r[0] for r in rows], "at": [r[1] for r in rows], "values": [[r[2]] for r in rows]}
    return (
        {
            "position": position,
            "kind": "batch",
            "agent": agent,
            "number": position,
            "received": received,
            "sent": received,
        }
        | fields
        | more
    )


def grant(
    position: int, start: int, width: float | None, *, key: int = 0, shrink: float = 0.0, period: int = PERIOD
) -> dict[str, Any]:
    fields = {
        "key": [key],
        "column": [0],
        "width": [width],
        "start": [start],
        "shrink": [shrink],
        "period": [period],
    }
    return {"position": position, "kind": "grants", "received": start, **fields}


def ack(position: int, agent: str, granted: int, at: int, **more: Any) -> dict[str, Any]:
    return batch(position, agent, [], received=at, narrowed={"position": [granted], "at": [at]}, **more)


def life(
    position: int, kind: str, agent: str, at: int, incarnation: str = "one", **more: Any
) -> dict[str, Any]:
    return {
        "position": position,
        "kind": kind,
        "agent": agent,
        "received": at,
        "incarnation": incarnation,
        "since": at,
        **more,
    }


def keys(position: int, agent: str, at: int, numbers: list[int]) -> dict[str, Any]:
    names = [[f"h{n}"] for n in numbers]
    return {
        "position": position,
        "kind": "keys",
        "agent": agent,
        "received": at,
        "keys": names,
        "numbers": numbers,
    }


T = [BEGIN + n * SECOND for n in range(200)]


def bounded_mirror(*more: dict[str, Any]) -> Mirror:
    """One agent with two keys of one column, width 4 in use, and what comes after position 10."""
    mirror = Mirror(1, SECOND)
    begun = [
        life(1, "joined", "x", T[0], keys=0),
        keys(2, "x", T[0], [0, 1]),
        grant(3, T[1], 4.0, key=0),
        grant(4, T[1], 4.0, key=1),
        batch(5, "x", [(0, T[2], 10.0), (1, T[2], 20.0)], narrowed={"position": [3, 4], "at": [T[2], T[2]]}),
    ]
    for entry in (*begun, *more):
        mirror.take(entry)
    return mirror


def advanced(mirror: Mirror, time: int) -> list[int]:
    return [at for at, _ in mirror.advance(time)]
