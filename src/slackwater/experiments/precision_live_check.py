"""Answers of the live run against what its agents had offered, for as long as they stood."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from slackwater.edge.means import step_of
from slackwater.edge.widths import Bools, Floats, Ints
from slackwater.experiments.precision_live_log import StreamLog, lost, messages, read_logs
from slackwater.experiments.precision_live_queries import QUERIES, Asked, keys
from slackwater.experiments.precision_live_truth import Course, Truth, overlaps

ROUNDING = 1e-9
WRONG_KEPT = 100
TAKING = 5_000_000
"""Within so many microseconds a change is used: until then what was asked before may be."""
_ALTERED = re.compile(r"ALTER QUERY (\w+) WITH PRECISION (\S+)")


@dataclass
class Checked:
    """What was found."""

    answers: int = 0
    met: int = 0
    truths: int = 0
    """What was true from a time on, held against the answer that stood then."""
    unpromised: int = 0
    """Of those, where the answer had no interval."""
    violations: int = 0
    """Answers that are wrong at any time that they stand, wider than they say, or of other rows."""
    missing: int = 0
    """Groups that had a value and no answer, at times of which their query had spoken."""
    excused: int = 0
    """Answers that are wrong only of keys whose rows were late then: nothing is promised of those."""
    wrong: list[dict[str, Any]] = field(default_factory=list)
    """The first answers that are wrong, excused or not, with what was true: enough to find out why."""
    late: int = 0
    lost: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    messages: int = 0
    offered: int = 0
    """Values since the first grant."""
    seconds: float = 0.0
    """From the first grant to the last value."""
    withdrawn: int = 0
    altered: int = 0
    keys: int = 0
    by_sum: int = 0
    """Keys that are told in sums in the end."""
    by_mean: int = 0
    """Keys of which means are told in the end."""
    by_second: list[tuple[int, int]] = field(default_factory=list)
    first: int = 0
    """The second, since the epoch, from which the others are counted."""


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of a group, in the order of their times; of equal times the last one stands."""

    at: Ints
    low: Floats
    """NaN where there is no interval."""
    high: Floats
    met: Bools
    rows: Ints
    emitted: Ints

    @staticmethod
    def made(lines: Sequence[dict[str, Any]]) -> Answers:
        at = np.array([_micros(a["at"]) for a in lines], np.int64)
        order = np.argsort(at, kind="stable")
        low, high = (
            np.array([np.nan if a[name] is None else a[name] for a in lines], np.float64)[order]
            for name in ("low", "high")
        )
        met = np.array([a["met"] for a in lines], bool)[order]
        rows = np.array([a["rows"] for a in lines], np.int64)[order]
        emitted = np.array([_micros(a["emitted_at"]) for a in lines], np.int64)[order]
        return Answers(at[order], low, high, met, rows, emitted)


def checked(folder: Path, url: str, agents: int) -> Checked:
    """Hold all answers against the truth, and the logs against what agents sent and the driver read."""
    truth, logs = Truth.read(folder), read_logs(url)
    # before anything is granted nothing is sent, whatever is offered: that is no saving
    begun = min(e["received"] for log in logs.values() for e in log.entries if e["kind"] == "grants")
    found = Checked(offered=truth.offered(begun), withdrawn=truth.withdrawn)
    found.seconds = (truth.end - begun) / 1e6
    found.messages, found.first, found.by_second = messages(logs)
    for log in logs.values():
        found.late += log.late_rows
        found.keys += len(log.names)
        for how, count in lost(log, truth, folder).items():
            found.lost[how] += count
        for live in log.mirror().belief.live.values():
            found.by_mean += len(live.members) if live.window else 0
            found.by_sum += 0 if live.window else len(live.members)
    changes = _lines(folder / "changes.jsonl")
    found.altered = len(changes)
    by_query: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for line in _lines(folder / "answers.jsonl"):
        by_query[line["query"]][str(line["keys"].get("site", ""))].append(line)
    ends = {q.stream: 0 for q in QUERIES}
    for query in QUERIES:
        for lines in by_query[query.name].values():
            ends[query.stream] = max(ends[query.stream], *(_micros(line["at"]) for line in lines))
    for query in QUERIES:
        groups = {group: Answers.made(lines) for group, lines in by_query[query.name].items()}
        limits = _limits(query, agents, changes)
        check_query(query, agents, truth, logs[query.stream], groups, limits, ends[query.stream], found)
    return found


def check_query(
    query: Asked,
    agents: int,
    truth: Truth,
    log: StreamLog,
    groups: dict[str, Answers],
    limits: Sequence[tuple[int, int, float]],
    end: int,
    found: Checked,
) -> None:
    """Hold the answers of all groups of a query against what they were, up to a time."""
    names = defaultdict(list)
    for name in keys(query.stream, agents):
        if query.chosen(name):
            names[query.group(name)].append(name)
    begun = min((int(answers.at[0]) for answers in groups.values()), default=end)
    for group in sorted(names.keys() | groups.keys()):
        course = Course.made(query, names[group], truth, log.told)
        late = np.array(
            sorted(span for name in names[group] for span in log.late.get(name, ())), np.int64
        ).reshape(-1, 2)
        if group not in groups:
            found.missing += bool(len(course.at)) and int(course.at[0]) < end
            continue
        answers = groups[group]
        found.answers += len(answers.at)
        found.met += int(answers.met.sum())
        for wrong in _judged(query, course, answers, limits, (begun, end), found):
            excused = bool(overlaps(late, np.array([wrong["time"]]), query.window)[0])
            excused &= wrong["why"] in ("outside", "rows")
            found.excused += excused
            found.violations += not excused
            if len(found.wrong) < WRONG_KEPT:
                found.wrong.append({"query": query.name, "group": group, **wrong, "excused": excused})


def _judged(
    query: Asked,
    course: Course,
    answers: Answers,
    limits: Sequence[tuple[int, int, float]],
    span: tuple[int, int],
    found: Checked,
) -> Iterator[dict[str, Any]]:
    """Each answer that is wrong, once, at the first time that it is."""
    begun, end = span
    # what was true changes at these times only; a mean is spoken of at the ends of steps
    if query.window:
        step = step_of(query.window)
        changes = np.arange(-(-begun // step) * step, end + 1, step)
    else:
        changes = course.at[(course.at >= begun) & (course.at <= end)]
    standing = np.searchsorted(answers.at, changes, "right") - 1
    times = np.concatenate([answers.at, changes[standing >= 0]])
    which = np.concatenate([np.arange(len(answers.at)), standing[standing >= 0]])
    now, rows = course(times)
    true = course.over(times, query.window) if query.window else now
    low, high, met = answers.low[which], answers.high[which], answers.met[which]
    slip = ROUNDING * np.maximum(1.0, np.abs(np.nan_to_num(true)))
    silent = np.isnan(low) & ~met
    # a window that is not known whole speaks of the part that is
    silent |= (query.window > 0) & ~met
    said_nothing = np.isnan(low) & met
    inside = (low - slip <= true) & (true <= high + slip)
    outside = ~silent & ~np.where(said_nothing, np.isnan(true), inside)
    own = np.arange(len(which)) < len(answers.at)
    other_rows = own & met & (answers.rows[which] != rows)
    wide = own & met & (high - low > _allowed(limits, answers.emitted[which]))
    sure = ~course.uncertain(times, query.window)
    found.truths += len(times)
    found.unpromised += int(silent.sum())
    before = changes[standing < 0]
    value, _ = course(before)
    found.missing += bool((~np.isnan(value)).any()) and not query.window
    seen: set[int] = set()
    for why, bad in (("outside", outside & sure), ("rows", other_rows & sure), ("wide", wide)):
        for place in np.flatnonzero(bad).tolist():
            answer = int(which[place])
            if answer not in seen:
                seen.add(answer)
                told = {"low": float(low[place]), "high": float(high[place]), "true": float(true[place])}
                counted = {"rows": int(answers.rows[answer]), "true_rows": int(rows[place])}
                when = {"at": int(answers.at[answer]), "time": int(times[place])}
                yield {"why": why, **told, **counted, **when, "met": bool(met[place])}


def _limits(query: Asked, agents: int, changes: list[dict[str, Any]]) -> list[tuple[int, int, float]]:
    """Constraints, in order: from when they may be in use, and from when none before is."""
    limits = [(0, 0, query.width(agents))]
    for change in changes:
        altered = _ALTERED.match(change["sql"])
        if altered is not None and altered[1] == query.name:
            limits.append((change["began"], change["done"] + TAKING, float(altered[2])))
    return limits


def _allowed(limits: Sequence[tuple[int, int, float]], emitted: Ints) -> Floats:
    """The widest that answers may be which were made at some times.

    >>> _allowed([(0, 0, 8.0), (10, 12, 4.0)], np.array([9, 11, 12])).tolist()
    [8.0, 8.0, 4.0]
    """
    allowed = np.zeros(len(emitted))
    for place, (first, _, width) in enumerate(limits):
        over = limits[place + 1][1] if place + 1 < len(limits) else np.iinfo(np.int64).max
        allowed = np.where((emitted >= first) & (emitted < over), np.maximum(allowed, width), allowed)
    return allowed


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _micros(text: str) -> int:
    """Whole microseconds since the epoch of a time as answers have it."""
    return int(np.datetime64(text.removesuffix("Z").removesuffix("+00:00"), "us").astype(np.int64))
