"""A recorded run, to be looked at: what `slackwater run FILE --record DIR` has left, as `Watched`.

Frames are read from ``frames.jsonl``, or made from turns and answers where there are none. What is in memory
is where lines begin, and the tide line; frames and answers are read when somebody asks.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from slackwater.errors import StateError
from slackwater.language.statements import ExplainFormat
from slackwater.plan.catalog import Catalog
from slackwater.plan.explain import explain
from slackwater.plan.layout import extend
from slackwater.plan.tables import Plan
from slackwater.runtime.answers import Answer
from slackwater.runtime.batch_times import BatchTimes
from slackwater.runtime.insight import Insight
from slackwater.runtime.json_values import from_micros, time_text
from slackwater.runtime.recording import ANSWERS, TURNS, RecordedTurn, read_header, read_mark
from slackwater.service.answer_lines import AnswerLines
from slackwater.service.api_models import Statistics
from slackwater.service.audit_job import RESULT
from slackwater.service.frame_lines import FrameLines
from slackwater.service.frame_log import FRAMES
from slackwater.service.lines import Lines
from slackwater.service.models import Frame, Knobs, Mode, Moment
from slackwater.service.recorded_sql import RecordedVersions
from slackwater.service.redefined import Redefined, redefined
from slackwater.service.remade import read_turns, remake
from slackwater.service.statistics_log import STATISTICS, StatisticsLines
from slackwater.service.statistics_out import statistics_of
from slackwater.service.watched import Asked, Newest


class Recorded:
    """A recording in a folder; raises StateError where there is none, or nothing in it."""

    mode: Mode = "recorded"

    def __init__(self, root: Path) -> None:
        header = read_header(root) if root.is_dir() else None
        if header is None:
            raise StateError(
                f"there is no recording in {root}; slackwater run FILE --record {root} would make one"
            )
        self.root = root
        self.settings: Mapping[str, Any] = header.get("settings", {})
        self.versions = RecordedVersions(root, header)
        turns, answers = read_mark(root)
        self._turns = Lines(root / TURNS, turns)
        self._answer_file = Lines(root / ANSWERS, answers)
        self.recorded_answers = AnswerLines(self._answer_file, self._redefined)
        self._lock = threading.Lock()
        self._newest: Frame | None = None
        self._explained: dict[tuple[ExplainFormat, str | None], str] = {}
        self._made: Path | None = None
        self._frame_file = Lines(root / FRAMES)
        self._statistics = StatisticsLines(root / STATISTICS)
        self.frame_lines = FrameLines(self._frame_file, root.resolve().name)
        if not len(self.frame_lines):
            self._remake()

    def _redefined(self) -> Redefined:
        turns = read_turns(line for _, line in self._turns.scan())
        return redefined(self.versions, turns, self.recorded_answers.scan)

    def _remake(self) -> None:
        """Make the frames that the recording does not have, in a folder that goes when this one is closed."""
        folder = self._made = Path(tempfile.mkdtemp(prefix="slackwater-open-"))
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        turns = (line for _, line in self._turns.scan())
        remake(folder, turns, self.recorded_answers.scan, self.versions.catalog)
        self._frame_file.close()
        self._frame_file = Lines(folder / FRAMES)
        self.frame_lines = FrameLines(self._frame_file, self.root.resolve().name)
        if not len(self.frame_lines):
            self.close()
            raise StateError(f"there is nothing to be seen in {self.root} yet: no turn came to its end")

    @property
    def has_frames(self) -> bool:
        """Whether frames were recorded; where not, load and capacity are not known."""
        return self._made is None

    @property
    def lost(self) -> int:
        """Frames that cannot be read."""
        return self.frame_lines.lost if self.has_frames else 0

    def close(self) -> None:
        """Let go of the files."""
        for lines in (self._turns, self._answer_file, self._frame_file):
            lines.close()
        self._statistics.close()
        if self._made is not None:
            self._remove()

    # being watched

    def frame(self) -> Frame:
        with self._lock:
            if self._newest is None:
                self._newest = self.frame_lines.newest()
            if self._newest is None:
                raise StateError(f"no frame of the recording in {self.root} can be read; it is damaged")
            return self._newest

    def whole(self) -> bytes:
        return self.frame().model_dump_json().encode()

    @property
    def number(self) -> int:
        return len(self.frame_lines)

    def kept_from(self) -> int:
        return 1

    def frames(self, after: int, limit: int) -> Sequence[bytes]:
        """JSON of the frames that follow number ``after``; a long recording is thinned out (`FrameLines`)."""
        return self.frame_lines.sent(after, limit)

    def moments(self, limit: int) -> Sequence[Moment]:
        return self.frame_lines.moments(limit)

    def catalog(self) -> Catalog:
        return self.versions.last()

    def declaring(self, query: str, version: int | None = None) -> Catalog:
        return self.versions.catalog(version) if version is not None else self.versions.declaring(query)

    def answers(self, query: str, asked: Asked) -> Sequence[Answer]:
        return self.recorded_answers.answers(query, asked)

    def latest(self, query: str, limit: int, search: str = "", until: datetime | None = None) -> Newest:
        return self.recorded_answers.latest(query, limit, search, until)

    def explain(self, format: ExplainFormat, name: str | None) -> str:
        """The plan of the last query set."""
        key = (format, None if name is None else name.lower())
        with self._lock:
            if key not in self._explained:
                self._explained[key] = explain(extend(Plan(), self.catalog()), format, name)
            return self._explained[key]

    def statistics(self, at: datetime | None = None) -> Statistics:
        """What was measured until a time, or until the end; without streams where it was not recorded."""
        return self._statistics.at(at) or statistics_of(Insight())

    def decisions(self, stream: str | None, limit: int) -> Sequence[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        for turn in read_turns(self._turns.backwards()):
            if len(found) >= limit:
                break
            if stream is None or turn.stream.lower() == stream.lower():
                found.append(told(turn))
        return found

    def batch_times(self) -> Mapping[str, BatchTimes]:
        return {}

    def knobs(self) -> Knobs | None:
        return None

    # beside that

    def audit(self) -> dict[str, Any] | None:
        """What an audit of the recording has found, where one was kept beside it."""
        path = self.root / RESULT
        if not path.exists():
            return None
        try:
            report = json.loads(path.read_text())
        except ValueError:
            report = None
        if not isinstance(report, dict) or not isinstance(report.get("columns"), list):
            raise StateError(
                f"{path} is no report of an audit; slackwater audit {self.root} --json {path} writes one"
            )
        return report


def told(turn: RecordedTurn) -> dict[str, Any]:
    """What was decided for a turn, as far as it was recorded."""
    return {
        "at": None if turn.at is None else time_text(from_micros(turn.at)),
        "stream": turn.stream,
        "turn": turn.turn,
        "kind": turn.kind,
        "batch": turn.batch,
        "version": turn.version,
        "watermark": turn.watermark,
        "offsets": dict(turn.offsets),
        "level": turn.level,
        "rates": dict(turn.rates),
        "suspended": list(turn.suspended),
        "read": turn.share,
        "arrived": turn.arrived,
    }
