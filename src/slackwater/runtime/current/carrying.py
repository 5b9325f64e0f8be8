"""A query that goes on under another contract: what it has said so far is not lost."""

from __future__ import annotations

from dataclasses import replace

from slackwater.plan.model import Step
from slackwater.plan.panes import AFTER_ALL
from slackwater.runtime.current.deferred import DeferredQuery
from slackwater.runtime.current.exact import ExactQuery
from slackwater.runtime.current.history import History
from slackwater.statistics.series import LONG_BEFORE


def same_but_contract(one: Step, other: Step) -> bool:
    """Whether two steps say the same, whatever their readers are promised."""
    return replace(one, contract=None) == replace(other, contract=None)


def carry(
    before: ExactQuery | DeferredQuery, after: ExactQuery | DeferredQuery, history: History | None
) -> None:
    """Let a query go on from another one of the same text: its groups, its cached answers, its extremes."""
    after.matrix.groups, after.known_from = before.matrix.groups, before.known_from
    if isinstance(after, DeferredQuery):
        _to_deferred(before, after, history)
    elif isinstance(before, ExactQuery):
        after.moving = before.moving
    else:
        _to_exact(before, after, history)


def _to_deferred(before: ExactQuery | DeferredQuery, after: DeferredQuery, history: History | None) -> None:
    if isinstance(before, DeferredQuery):
        for item, old in zip(after.items, before.items, strict=True):
            item.load(old.to_arrays())
            if before.contract != after.contract:
                item.due[:] = LONG_BEFORE
        return
    for item in after.items:
        item.grow(before.matrix.size)
        for moving in before.moving:
            if item.move == moving.move and moving.count:
                last = int(moving.time[moving.count - 1])
                item.value[:] = moving.extremes(last)[: len(item.value)]
                if item.landmarks is not None and history is not None:
                    # what can be read again is, so that rows which come late may still change it
                    item.landmarks.begin(moving.settled(history.reach)[: len(item.value)])


def _to_exact(before: DeferredQuery, after: ExactQuery, history: History | None) -> None:
    """What was deferred has its past in the values of the keys; a landmark's also in what was answered."""
    if not after.moving or history is None:
        return
    times, values = history.window(int(LONG_BEFORE), AFTER_ALL)
    after.remember(before.matrix, times, values)
    for moving in after.moving:
        for item in before.items:
            if item.move == moving.move and item.landmarks is not None:
                moving.begin(item.landmarks.settled(history.reach))
