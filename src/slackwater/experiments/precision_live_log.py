"""What the hubs' logs of the live run say: who was told when, what came late, what is missing, messages."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from slackwater.edge.coordinator_link import CoordinatorLink, Entry
from slackwater.edge.messages import Declared
from slackwater.experiments.precision_live_queries import STREAMS, TOLERANCE, Key
from slackwater.experiments.precision_live_truth import Truth
from slackwater.runtime.bounds.mirror import Mirror

ROUNDING = 1e-9
DECLARED = Declared(("host", "site", "port"), ("rx",), ("text", "text", "whole"))


@dataclass
class StreamLog:
    """The log of one stream, and who it is about."""

    stream: str
    entries: list[Entry]
    names: dict[int, Key] = field(default_factory=dict)
    """Keys by the hub's numbers."""
    members: dict[int, list[int]] = field(default_factory=dict)
    """By the key of a sum: the numbers of what is in it."""
    told: dict[Key, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The times of rows that told a key, by itself or in a sum."""
    late: dict[Key, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """When rows were true that the hub had later than the tolerance: from when to when nobody could know."""
    rows: int = 0
    late_rows: int = 0

    def __post_init__(self) -> None:
        of_sum: dict[int, list[int]] = {}
        for entry in self.entries:
            if entry["kind"] == "sums":
                for place, members in enumerate(entry["members"]):
                    of_sum[entry["position"] + place] = members
            elif entry["kind"] == "keys":
                for name, number in zip(entry["keys"], entry["numbers"], strict=True):
                    if isinstance(name, dict):
                        self.members[number] = of_sum[name["sum"]]
                    else:
                        self.names[number] = (name[0], name[1], name[2])
        for entry in self.entries:
            if entry["kind"] == "batch":
                self._note(entry)
        for times in self.told.values():
            times.sort()

    def _note(self, entry: Entry) -> None:
        received = entry["received"]
        for number, at in zip(entry["key"], entry["at"], strict=True):
            self.rows += 1
            self.late_rows += received > at + TOLERANCE
            for name in self._keys(number):
                self.told[name].append(at)
                if received > at + TOLERANCE:
                    self.late[name].append((at, received))

    def _keys(self, number: int) -> Iterator[Key]:
        for member in self.members.get(number, [number]):
            yield self.names[member]

    def lives(self) -> dict[str, list[list[Entry]]]:
        """By agent: the batches of each of its processes, in order."""
        found: dict[str, dict[str, list[Entry]]] = defaultdict(dict)
        for entry in self.entries:
            if entry["kind"] == "joined":
                found[entry["agent"]].setdefault(entry["incarnation"], [])
            if entry["kind"] == "batch":
                # a process joins before it sends, and no other of its agent does after that
                list(found[entry["agent"]].values())[-1].append(entry)
        return {agent: list(lives.values()) for agent, lives in found.items()}

    def mirror(self) -> Mirror:
        """What a coordinator believes that has read all of it."""
        mirror = Mirror(1, TOLERANCE)
        for entry in self.entries:
            mirror.take(entry)
        for _ in mirror.advance(max(entry["received"] for entry in self.entries) + 10 * TOLERANCE):
            """Only the end matters."""
        return mirror


def read_logs(url: str) -> dict[str, StreamLog]:
    return {stream: StreamLog(stream, _log(url, stream)) for stream in STREAMS}


def _log(url: str, stream: str) -> list[Entry]:
    with CoordinatorLink(url, stream, DECLARED) as link:
        welcome = link.connect()
        found: list[Entry] = []
        place = welcome.begin
        while place < welcome.position:
            part, place = link.read(place, welcome.position)
            found += part
    return found


def lost(log: StreamLog, truth: Truth, folder: Path) -> dict[str, int]:
    """What was handed to the hub and did not get where it should, or got there twice, by how it was found.

    Batches whose numbers are missing in the log or there twice; rows that agents which ended well say they
    have sent, against those in the log; rows in the log against those that the driver says it has read; and
    keys or sums whose last value is not in the bound that the whole log leaves.
    """
    missing = unsent = 0
    for agent, lives in log.lives().items():
        numbers = [[batch["number"] for batch in batches] for batches in lives]
        missing += sum(seen != list(range(1, len(seen) + 1)) for seen in numbers)
        if (log.stream, agent) in truth.handed:
            rows = sum(len(batch["key"]) for batch in lives[-1])
            unsent += abs(rows - truth.handed[log.stream, agent])
    read = json.loads((folder / "read.json").read_text(encoding="utf-8"))
    unread = abs(log.rows - read.get(log.stream, 0))
    return {"batches": missing, "rows": unsent, "unread": unread, "astray": _astray(log, truth)}


def _astray(log: StreamLog, truth: Truth) -> int:
    """Keys and sums whose last value is not in the bound that the whole log leaves."""
    mirror = log.mirror()
    belief = mirror.belief
    last = truth.end
    half = belief.widths(slice(None), last) / 2
    astray = 0
    for number in range(belief.size):
        live = belief.live.get(number)
        if (
            not np.isfinite(half[number])
            or belief.slope[number]
            or (number not in log.names and live is None)
        ):
            continue
        if live is not None and live.window:
            continue
        members = [number] if live is None else live.members.tolist()
        values = [truth.value(log.stream, log.names[m], last) for m in members]
        there = [v for v in values if v is not None]
        if not there or not belief.here[number]:
            astray += bool(there) != bool(belief.here[number] and not np.isnan(belief.value[number]))
            continue
        off = abs(belief.centre[number] - sum(there))
        astray += not off <= half[number] * (1 + ROUNDING) + ROUNDING * (1 + abs(sum(there)))
    return astray + sum(stream == log.stream for stream, _ in truth.names()) - len(log.names)


def messages(logs: dict[str, StreamLog]) -> tuple[int, int, list[tuple[int, int]]]:
    """Rows, grants, acknowledgements, orders of sums: in all, the first second, and by second since then."""
    by_second: dict[int, int] = defaultdict(int)
    for entry in (entry for log in logs.values() for entry in log.entries):
        told = 0
        if entry["kind"] == "batch":
            told = len(entry["key"]) + len((entry.get("narrowed") or {}).get("position", ()))
        elif entry["kind"] == "grants":
            told = len(entry["key"])
        elif entry["kind"] == "sums":
            told = len(entry["members"]) + len(entry["dropped"])
        by_second[entry["received"] // 1_000_000] += told
    if not by_second:
        return 0, 0, []
    first = min(by_second)
    seconds = [(s - first, by_second.get(s, 0)) for s in range(first, max(by_second) + 1)]
    return sum(by_second.values()), first, seconds
