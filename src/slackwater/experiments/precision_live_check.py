"""Answers of the live run against what its agents had offered."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from slackwater.edge.coordinator_link import CoordinatorLink, Entry
from slackwater.edge.messages import Declared
from slackwater.experiments.precision_live_agents import COUNTS, OFFERED, SITES, host
from slackwater.runtime.answers import Answer
from slackwater.runtime.bounds.mirror import Mirror

TOLERANCE = 1_000_000
ROUNDING = 1e-9
WRONG_KEPT = 100


@dataclass
class Checked:
    """What was found."""

    answers: int = 0
    met: int = 0
    violations: int = 0
    excused: int = 0
    """Answers that say ``met`` at a time whose messages were late: nothing is promised of those."""
    wrong: list[dict[str, Any]] = field(default_factory=list)
    """The first answers that are wrong, excused or not, with what was true: enough to find out why."""
    late: int = 0
    lost: int = 0
    messages: int = 0
    offered: int = 0
    by_second: list[tuple[int, int]] = field(default_factory=list)
    first: int = 0
    """The second, since the epoch, from which the others are counted."""


class Truth:
    """What each host was at any time."""

    def __init__(self, folder: Path) -> None:
        self.times: dict[int, list[int]] = defaultdict(list)
        self.values: dict[int, list[float]] = defaultdict(list)
        self.count = 0
        for file in sorted(folder.glob("truth-*.txt")):
            before: dict[int, str] = {}
            for line in file.read_text(encoding="utf-8").splitlines():
                parts = line.split()
                if len(parts) != 4:
                    # its process was killed
                    continue
                kind, number = parts[0], int(parts[2])
                if kind == COUNTS and before.get(number) == OFFERED:
                    self.times[number][-1] = int(parts[1])
                else:
                    self.count += 1
                    self.times[number].append(int(parts[1]))
                    self.values[number].append(float(parts[3]))
                before[number] = kind

    def at(self, number: int, time: int) -> float | None:
        place = bisect_right(self.times[number], time) - 1
        return self.values[number][place] if place >= 0 else None

    def all_at(self, time: int, agents: int) -> list[float | None]:
        return [self.at(n, time) for n in range(agents)]


def checked(folder: Path, url: str, answers: Path, agents: int) -> Checked:
    """Hold all answers against the truth, and the log against the numbers of its batches."""
    truth, entries = Truth(folder), _log(url)
    found = Checked(offered=truth.count)
    late = _late(entries)
    found.late = len(late)
    found.lost = _missing(entries) + _astray(entries, truth, agents)
    found.messages, found.first, found.by_second = _messages(entries)
    limits = {"total": 2.0 * agents, "mean": 2.0, "rx": 4.0 * agents / 10, "top": 40.0, "half": 60.0}
    with answers.open(encoding="utf-8") as lines:
        for line in lines:
            answer = Answer.from_json(line)
            found.answers += 1
            if not answer.met:
                continue
            found.met += 1
            assert answer.at is not None
            at = round(answer.at.timestamp() * 1e6)
            expected = _expected(answer, truth.all_at(at, agents), agents)
            if expected is None:
                continue
            low, high = float(str(answer.low)), float(str(answer.high))
            slip = ROUNDING * max(1.0, abs(expected))
            right = low - slip <= expected <= high + slip and high - low <= limits[answer.column]
            if right:
                continue
            excused = any(first <= at <= received for first, received in late)
            found.excused += excused
            found.violations += not excused
            if len(found.wrong) < WRONG_KEPT:
                said = {"column": answer.column, "group": str(answer.group), "low": low, "high": high}
                found.wrong.append({**said, "true": expected, "at": at, "excused": excused})
    return found


def _expected(answer: Answer, values: list[float | None], agents: int) -> float | None:
    """The true value; None where not all of its hosts had spoken."""
    chosen = range(agents)
    if answer.column == "rx":
        chosen = range(int(str(answer.group["site"]).removeprefix("site")), agents, SITES)
    if answer.column == "half":
        chosen = range(min(20, agents))
    own = [values[n] for n in chosen]
    known = [v for v in own if v is not None]
    if len(known) < len(own) or answer.rows != len(own):
        return None
    if answer.column == "top":
        return max(known)
    total = float(np.sum(known))
    if answer.column == "mean":
        return total / len(known)
    return total / 2 if answer.column == "half" else total


def _log(url: str) -> list[Entry]:
    declared = Declared(("host", "site"), ("rx",), ("text", "text"))
    with CoordinatorLink(url, "load", declared) as link:
        welcome = link.connect()
        found: list[Entry] = []
        place = welcome.begin
        while place < welcome.position:
            part, place = link.read(place, welcome.position)
            found += part
    return found


def _late(entries: list[Entry]) -> list[tuple[int, int]]:
    """When rows were true that the hub had later than the tolerance: from when to when nobody could know."""
    return [
        (at, entry["received"])
        for entry in entries
        if entry["kind"] == "batch"
        for at in entry["at"]
        if entry["received"] > at + TOLERANCE
    ]


def _missing(entries: list[Entry]) -> int:
    """Batches that are not in the log though later ones of the same process are, or that are there twice."""
    numbers: dict[tuple[str, int], list[int]] = defaultdict(list)
    life: dict[str, int] = defaultdict(int)
    incarnation: dict[str, str] = {}
    for entry in entries:
        if entry["kind"] == "joined" and incarnation.get(entry["agent"]) != entry["incarnation"]:
            incarnation[entry["agent"]] = entry["incarnation"]
            life[entry["agent"]] += 1
        if entry["kind"] == "batch":
            numbers[entry["agent"], life[entry["agent"]]].append(entry["number"])
    return sum(seen != list(range(1, len(seen) + 1)) for seen in numbers.values())


def _astray(entries: list[Entry], truth: Truth, agents: int) -> int:
    """Hosts whose last value is not in the bound that the whole log leaves."""
    mirror = Mirror(1, TOLERANCE)
    for entry in entries:
        mirror.take(entry)
    end = max(entry["received"] for entry in entries) + 10 * TOLERANCE
    for _ in mirror.advance(end):
        """Only the end matters."""
    belief = mirror.belief
    last = max(times[-1] for times in truth.times.values())
    half = belief.widths(slice(None), last) / 2
    astray = 0
    for number, name in enumerate(mirror.names):
        value = truth.at(int(name[0][1:]), last)
        assert tuple(name) == host(int(name[0][1:]))
        if (
            value is None
            or not abs(belief.centre[number] - value) <= half[number] * (1 + ROUNDING) + ROUNDING
        ):
            astray += belief.slope[number] == 0
    return astray + agents - len(mirror.names)


def _messages(entries: list[Entry]) -> tuple[int, int, list[tuple[int, int]]]:
    """Rows, grants and acknowledgements, in all; the first second, and by second since then."""
    by_second: dict[int, int] = defaultdict(int)
    for entry in entries:
        if entry["kind"] == "batch":
            told = len(entry["key"]) + len((entry.get("narrowed") or {}).get("position", ()))
            by_second[entry["received"] // 1_000_000] += told
        elif entry["kind"] == "grants":
            by_second[entry["received"] // 1_000_000] += len(entry["key"])
    if not by_second:
        return 0, 0, []
    first = min(by_second)
    seconds = [(s - first, by_second.get(s, 0)) for s in range(first, max(by_second) + 1)]
    return sum(by_second.values()), first, seconds
