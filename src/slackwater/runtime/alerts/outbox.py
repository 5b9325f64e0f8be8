"""Events on disk until every webhook has taken them.

The events of a step are one file, which is there before the step is committed. A kill leaves both or neither:
files of steps that no commit knows are deleted. What a webhook has taken is noted in a second file beside it;
a note that is lost in a kill means that an event is sent twice, with the same id. Both files go when nobody
waits for any of their events.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slackwater.errors import StateError
from slackwater.runtime.alerts.events import Event
from slackwater.runtime.journal import sync

DONE = "-"
"""Noted of an event that nobody waits for any more."""

Addresses = Mapping[str, Sequence[str]]
"""By alert, in lower case: where its events go."""


@dataclass(eq=False)
class Kept:
    """An event in the outbox, and the addresses that have it."""

    step: int
    number: int
    event: Event
    taken: set[str] = field(default_factory=set)
    """Marks of addresses."""
    attempts: dict[str, int] = field(default_factory=dict)
    """By address: how often it has been tried since the run was started."""


class Outbox:
    """The events that are owed to webhooks; those who call it see to it that one does so at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._steps: dict[int, dict[int, Kept]] = {}
        """By step and number: events that somebody waits for still."""

    def open(self, step: int) -> list[Kept]:
        """All that is owed after the last committed step, oldest first."""
        self._steps = {}
        if not self._folder.exists():
            return []
        for path in self._folder.glob("*.tmp"):
            path.unlink()
        for path in sorted(self._folder.glob("*.jsonl")):
            number = int(path.stem)
            if number > step:
                self._remove(number)
            else:
                self._steps[number] = self._read(number)
        return [kept for listed in self._steps.values() for kept in listed.values()]

    def write(self, step: int, events: Sequence[Event]) -> None:
        """Put the events of a step on disk, in place of those that an earlier try has left."""
        path = self._path(step)
        if not events:
            if self._folder.exists() and path.exists():
                self._remove(step)
            return
        self._folder.mkdir(exist_ok=True)
        temporary = path.with_name(path.name + ".tmp")
        with open(temporary, "wb") as file:
            file.writelines(f"{event.text}\n".encode() for event in events)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync(self._folder)
        # the folder itself may be new
        sync(self._folder.parent)

    def admit(self, step: int, events: Sequence[Event]) -> list[Kept]:
        """The events of a step that is committed: from now on they are owed."""
        if events:
            self._steps[step] = {n: Kept(step, n, event) for n, event in enumerate(events)}
        return list(self._steps.get(step, {}).values())

    def took(self, kept: Kept, url: str, owed: Sequence[str]) -> None:
        """Note that an address has an event, or does not get it; ``owed`` are all that it is meant for."""
        kept.taken.add(mark_of(url))
        if all(mark_of(other) in kept.taken for other in owed):
            self.discard(kept)
        else:
            self._note(kept, mark_of(url))

    def discard(self, kept: Kept) -> None:
        """Nobody waits for an event any more."""
        listed = self._steps.get(kept.step, {})
        listed.pop(kept.number, None)
        if listed:
            self._note(kept, DONE)
        else:
            self._remove(kept.step)

    def _note(self, kept: Kept, mark: str) -> None:
        # not synced: a note that is lost costs a second delivery, and nothing else
        with open(self._taken(kept.step), "a", encoding="utf-8") as file:
            file.write(f"{kept.number} {mark}\n")

    def _read(self, step: int) -> dict[int, Kept]:
        path = self._path(step)
        try:
            # texts in an event may hold what else ends lines, such as U+2028
            lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
            kept = {n: Kept(step, n, Event.from_line(line.decode())) for n, line in enumerate(lines)}
        except (ValueError, KeyError) as error:
            raise StateError(
                f"the events of alerts in {path} cannot be read: {error}; "
                "delete the file to go on without them, or start over with --fresh"
            ) from error
        taken = self._taken(step)
        noted = taken.read_text(encoding="utf-8", errors="replace") if taken.exists() else ""
        for line in noted.split("\n"):
            number, _, mark = line.partition(" ")
            # a kill may have cut the last line off
            if number.isdecimal() and int(number) in kept:
                kept[int(number)].taken.add(mark)
        return {n: one for n, one in kept.items() if DONE not in one.taken}

    def _remove(self, step: int) -> None:
        # the events first: notes without events are nothing, events without notes would be sent again
        self._path(step).unlink(missing_ok=True)
        self._taken(step).unlink(missing_ok=True)
        self._steps.pop(step, None)

    def _path(self, step: int) -> Path:
        return self._folder / f"{step:012d}.jsonl"

    def _taken(self, step: int) -> Path:
        return self._folder / f"{step:012d}.taken"


def mark_of(url: str) -> str:
    """What an address is noted under: it may hold secrets."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]
