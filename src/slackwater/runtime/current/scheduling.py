"""The evaluations of a tick, of all queries of a stream together: which run, and which are missed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from slackwater.planners.deferring import ItemLoad, Rules, evaluate_every, leaving
from slackwater.planners.evaluations import affordable
from slackwater.runtime.current.deferred import DeferredQuery
from slackwater.runtime.current.extremes import said_by
from slackwater.runtime.current.item import DeferredItem
from slackwater.runtime.current.tick import Tick, bound_of
from slackwater.statistics.diffusion import Floats
from slackwater.statistics.series import LONG_BEFORE, Ints

SAMPLE = 2_000
"""Groups from which it is judged how long an item's evaluations wait."""


@dataclass(frozen=True)
class _Due:
    query: DeferredQuery
    item: DeferredItem
    rows: Ints
    cost: Floats


def run_due(
    queries: Sequence[DeferredQuery], tick: Tick, rules: Rules, clock: Callable[[], float]
) -> tuple[float, float]:
    """Evaluate what is due at a tick, as far as the budget goes.

    An evaluation falls on the last tick at or before its time (footnote 1 of the paper). Where the average
    over an interval counts, the last tick that is answered from the cache does: it is followed by the next.
    Gives the seconds that it costs by the rules, and what the evaluations took by the clock.
    """
    waiting = []
    spent = took = 0.0
    for query in queries:
        for item in query.items:
            item.grow(query.matrix.size)
            if name_of(query, item) in rules.every:
                began = clock()
                spent += _run_every(query, item, tick, rules)
                took += clock() - began
                continue
            query.replan(item, tick)
            averaged = tick.manner.average and item.move is None
            rows = np.flatnonzero(item.due < tick.now + (1 if averaged else tick.gap))
            spent += rules.costs.look * len(item.due)
            kept = item.soon_forgotten(tick)
            if len(kept):
                spent += float(query.costs(item, tick, rules.costs, kept).sum())
                began = clock()
                query.evaluate(item, tick, kept)
                took += clock() - began
                rows = np.setdiff1d(rows, kept, assume_unique=True)
            if len(rows):
                waiting.append(_Due(query, item, rows, query.costs(item, tick, rules.costs, rows)))
    left = None if rules.budget is None else max(0.0, rules.budget - spent)
    running = _affordable(waiting, tick, left)
    began = clock()
    for due in running:
        due.query.evaluate(due.item, tick, due.rows)
        spent += float(due.cost.sum())
    return spent, took + clock() - began


def _affordable(waiting: Sequence[_Due], tick: Tick, budget: float | None) -> Sequence[_Due]:
    """What of all that is due runs; the rest is counted as missed."""
    total = sum(float(due.cost.sum()) for due in waiting)
    if budget is None or total <= budget:
        return waiting
    cost = np.concatenate([due.cost for due in waiting])
    ahead, drift, variance = [], [], []
    for due in waiting:
        item, rows = due.item, due.rows
        # queries of different units are compared by how far they drift in bounds of their own
        bound = np.maximum(bound_of(due.query.contract, item.value[rows]), 1e-300)
        ahead.append(np.maximum((item.due[rows] - tick.now).astype(np.float64) / 1e6, -1e9))
        drift.append(item.drift[rows] / bound)
        variance.append(item.variance[rows] / bound / bound)
    run = affordable(np.concatenate(ahead), np.concatenate(drift), np.concatenate(variance), cost, budget)
    chosen = np.zeros(len(cost), bool)
    chosen[run] = True
    edges = np.cumsum([len(due.rows) for due in waiting])[:-1]
    running = []
    for due, mine in zip(waiting, np.split(chosen, edges), strict=True):
        due.item.missed += int((~mine).sum())
        due.item.late[due.rows[~mine]] = True
        if mine.any():
            running.append(_Due(due.query, due.item, due.rows[mine], due.cost[mine]))
    return running


def _run_every(query: DeferredQuery, item: DeferredItem, tick: Tick, rules: Rules) -> float:
    """Evaluate all groups of an item, and deliver those that have left their bound."""
    everything = np.arange(query.matrix.size)
    entries = float(query.matrix.lengths() @ query.reads(item, tick, everything))
    value, known = said_by(query.matrix, query.asked(item, tick, everything))
    cached = item.value
    if query.contract.extrapolate and item.move is None:
        cached = cached + item.drift * np.maximum((tick.now - item.at) / 1e6, 0.0)
    with np.errstate(invalid="ignore"):
        left = np.abs(value - cached) > bound_of(query.contract, item.value)
    fresh = item.due <= tick.now
    silent = query.matrix.rows_with(tick.silent) if tick.silent.any() else np.zeros(len(left), bool)
    item.look(everything, known, silent, tick)
    changed = (np.isnan(value) != np.isnan(item.value)) | (silent & fresh)
    # what is due only because time has passed is known to be right
    woken = item.due == LONG_BEFORE
    rows = np.flatnonzero(left | changed | woken)
    if len(rows):
        query.evaluate(item, tick, rows, learns=False)
    cost = float(query.costs(item, tick, rules.costs, rows).sum())
    return cost + rules.costs.entry * entries + rules.costs.look * len(value)


def name_of(query: DeferredQuery, item: DeferredItem) -> str:
    return f"{query.step.name.lower()}/{item.output.name}"


def items_for_every(queries: Sequence[DeferredQuery], gap: float, rules: Rules) -> tuple[str, ...]:
    """The items that are better evaluated at every tick than deferred."""
    found = []
    for query in queries:
        for item in query.items:
            known = np.flatnonzero(~np.isnan(item.variance))
            if not len(known):
                continue
            load = _load(query, item, known[:: max(1, len(known) // SAMPLE)], gap)
            name = name_of(query, item)
            if evaluate_every(load, gap, rules.costs, name in rules.every):
                found.append(name)
    return tuple(found)


def _load(query: DeferredQuery, item: DeferredItem, rows: Ints, gap: float) -> ItemLoad:
    """What an item costs, by a sample of its groups."""
    wait = np.maximum(item.due[rows] - item.at[rows], 0).astype(np.float64) / 1e6
    groups, entries = len(item.value), query.matrix.entries / max(1, query.matrix.size)
    move, bound = item.move, bound_of(query.contract, item.value[rows])
    follows = query.contract.extrapolate and move is None
    moves = leaving(bound, np.zeros(len(rows)) if follows else item.drift[rows], item.variance[rows])
    if move is None:
        return ItemLoad(groups, entries, wait, moves)
    if move.size is None:
        passed = np.minimum(moves, (1 - query.contract.belief) / np.maximum(wait, gap))
        # each look reads what came since the one before
        return ItemLoad(groups, entries, wait, passed, 1 + float(np.mean(np.maximum(wait / gap, 1.0))), 2.0)
    # with what leaves the window an extreme changes too, no more often than it is looked at
    window = 1 + move.size / 1e6 / gap
    return ItemLoad(groups, entries, wait, np.minimum(moves, 1 / np.maximum(wait, gap)), window, window)
