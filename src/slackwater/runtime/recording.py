"""A recorded run on disk: all that an audit needs to run it again without shedding anything.

::

    recording.json                 what was run: settings, functions, where its state is
    versions/00000001.sql          the query set, one file for each version that a turn ran under
    tables/services/               stored tables as they were looked up in
    batches/packets/000000000000/  every row of a batch as it arrived, before anything was shed
    turns.jsonl                    one line for each turn: kind, batch, watermark, level
    answers.jsonl                  all answers
    mark.json                      how much of the last two is of turns that came to their end
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from slackwater.errors import SlackwaterError, StateError
from slackwater.plan.functions import Functions
from slackwater.plan.scope import safe_name
from slackwater.planners.decision import TurnKind
from slackwater.runtime.answers import Answer

FORMAT = 1
HEADER = "recording.json"
MARK = "mark.json"
TURNS = "turns.jsonl"
ANSWERS = "answers.jsonl"


@dataclass(frozen=True, kw_only=True)
class RecordedTurn:
    """One turn of one stream."""

    step: int
    stream: str
    turn: int
    kind: TurnKind
    version: int
    batch: int | None
    offsets: Mapping[str, Any] = field(default_factory=dict)
    watermark: int
    """Rows of the batch below it were late. For a tick or the end: where the watermark was moved to."""
    closed: int
    """The watermark after the turn: up to where windows were closed."""
    latest: int | None
    """The largest event time that the run had seen by then."""
    arrived: int
    at: int | None = None
    """When it was carried out, by the clock of the machine; older recordings do not say."""
    answers: int | None = None
    """How many it gave; older recordings do not say."""
    has_rows: bool
    level: float = 0.0
    share: float = 1.0
    rates: Mapping[str, float] = field(default_factory=dict)
    suspended: tuple[str, ...] = ()
    since: Mapping[str, int] = field(default_factory=dict)
    """Where windows of each step may begin, in turns that took a new version: it depends on what was kept."""

    def to_json_line(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> RecordedTurn:
        fields = json.loads(line)
        return cls(**{**fields, "suspended": tuple(fields["suspended"])})


def rows_folder(root: Path, stream: str, batch: int) -> Path:
    """Where the rows of a batch are."""
    return root / "batches" / safe_name(stream.lower()) / f"{batch:012d}"


def table_folder(root: Path, table: str) -> Path:
    """Where a stored table is."""
    return root / "tables" / safe_name(table.lower())


def version_file(root: Path, number: int) -> Path:
    """Where the SQL of a version is."""
    return root / "versions" / f"{number:08d}.sql"


def check_recording_folder(root: Path) -> None:
    """Refuse a folder that holds something else: a recording would mix with it."""
    if not root.exists():
        return
    if not root.is_dir() or (any(root.iterdir()) and not (root / HEADER).exists()):
        raise StateError(
            f"{root} is there and holds something else than a recording; "
            "give --record a folder that is new, empty or this run's own"
        )


def read_header(root: Path) -> dict[str, Any] | None:
    """What a recording says of itself; None where there is none."""
    path = root / HEADER
    if not path.exists():
        return None
    try:
        header: dict[str, Any] = json.loads(path.read_text())
        found = header["format"]
    except (ValueError, KeyError, TypeError):
        raise StateError(f"{path} cannot be read: it is no recording of slackwater's") from None
    if found != FORMAT:
        raise StateError(
            f"the recording in {root} has format {found}, this version reads {FORMAT}; "
            "use the version that wrote it"
        )
    return header


def read_mark(root: Path) -> tuple[int, int]:
    """How many lines of turns and of answers belong to turns that came to their end."""
    path = root / MARK
    if not path.exists():
        return 0, 0
    try:
        mark = json.loads(path.read_text())
        return int(mark["turns"]), int(mark["answers"])
    except (ValueError, KeyError, TypeError):
        raise StateError(
            f"{path} cannot be read: it says how much of the recording is whole; "
            f"the run that made it, gone on with --record {root}, writes it anew"
        ) from None


@dataclass(frozen=True)
class Recording:
    """What a run has left: read back for an audit."""

    root: Path
    settings: Mapping[str, Any]
    functions: tuple[str, ...]
    turns: tuple[RecordedTurn, ...]
    versions: Mapping[int, str]
    """SQL by number."""
    recorded_answers: int

    @classmethod
    def open(cls, root: Path) -> Recording:
        """Raises StateError where there is no recording, or not all of it."""
        header = read_header(root) if root.is_dir() else None
        if header is None:
            raise StateError(
                f"there is no recording in {root}; slackwater run FILE --record {root} would make one"
            )
        lines, answers = read_mark(root)
        path = root / TURNS
        kept: list[str] = []
        if path.exists():
            with path.open() as file:
                kept = list(islice(file, lines))
        if len(kept) < lines or not kept:
            lost = f"{TURNS} has {len(kept)} of {lines} turns" if lines else "no turn came to its end"
            raise StateError(f"the recording in {root} cannot be replayed: {lost}")
        turns = tuple(map(RecordedTurn.from_json, kept))
        numbers = dict.fromkeys(turn.version for turn in turns)
        missing = [n for n in numbers if not version_file(root, n).exists()]
        if missing:
            raise StateError(
                f"the recording in {root} cannot be replayed: there is no {version_file(root, missing[0])}"
            )
        versions = {n: version_file(root, n).read_text() for n in numbers}
        return cls(root, header["settings"], tuple(header["functions"]), turns, versions, answers)

    def check_functions(self, functions: Functions) -> None:
        """Raise where a function that the run used has not been registered."""
        there = set(function_names(functions))
        missing = [name for name in self.functions if name not in there]
        if missing:
            raise StateError(
                f"the recorded run had functions that are not registered here: {', '.join(missing)}; "
                "give the audit the same --import as the run"
            )

    def answers(self) -> Iterator[Answer]:
        """The answers of all turns that came to their end, in order."""
        path = self.root / ANSWERS
        if not path.exists():
            raise StateError(f"the recording in {self.root} has lost its answers: there is no {path}")
        with path.open("rb") as file:
            for number, line in enumerate(islice(file, self.recorded_answers), 1):
                try:
                    yield Answer.from_json(line)
                except (ValueError, KeyError, TypeError, SlackwaterError) as error:
                    raise StateError(f"{path}, line {number} is no answer: {error}") from None


def function_names(functions: Functions) -> list[str]:
    """All registered functions and aggregates, in lower case."""
    return sorted({*functions.scalars, *functions.aggregates})


def aggregate_facts(functions: Functions) -> dict[str, dict[str, object]]:
    """By name of a user's aggregate: what a plan needs to know of it, to be shown without its code."""
    return {
        name: {"returns": a.returns, "merges": a.merge is not None, "scalable": a.scalable}
        for name, a in sorted(functions.aggregates.items())
    }
