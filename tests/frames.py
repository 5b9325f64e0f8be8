"""Frames and recordings made by hand, for tests of what is looked at later."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from slackwater.runtime.answers import Answer, How
from slackwater.runtime.journal import write_json
from slackwater.runtime.recording import ANSWERS, FORMAT, HEADER, MARK, TURNS, RecordedTurn, version_file
from slackwater.service.models import Frame, Point, QueryFrame, StreamFrame

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
SQL = """CREATE STREAM p (ts TIMESTAMP, size INT, port INT) USING scripted TIMESTAMP BY ts;
CREATE QUERY web AS SELECT COUNT(*) AS n, AVG(size) AS mean FROM p WHERE port = 80
  GROUP BY window(ts, '1 second') WITH ERROR 5%;
CREATE QUERY ports AS SELECT port, SUM(size) AS bytes FROM p GROUP BY port, window(ts, '1 second') WITH ERROR 5%;
"""


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def point(second: float, value: float | None = 1.0, *, half: float = 0.0, how: str = "exact") -> Point:
    low, high = (None, None) if value is None else (value - half, value + half)
    return Point(at=at(second), value=value, low=low, high=high, how=how, met=True, rate=1.0)


def query(name: str, points: Sequence[Point] = (), **more: Any) -> QueryFrame:
    fields: dict[str, Any] = {
        "stream": "p",
        "contract": "ERROR 5%",
        "kind": "windows",
        "slide_seconds": 1.0 if more.get("kind", "windows") == "windows" else None,
        "columns": ["n"],
        "answers": len(points),
        "groups": 0,
        "how": "exact",
        "met": True,
        "rate": 1.0,
        "error": 0.0,
        "expected_error": None,
        "load": None,
        "suspended": False,
        "missed": 0,
        "evaluated": 0,
        "column": "n",
        "keys": {},
        "last_text": "1",
        "points": list(points),
    }
    return QueryFrame(name=name, **{**fields, **more})


def stream(name: str = "p", **more: Any) -> StreamFrame:
    fields: dict[str, Any] = {
        "state": "running",
        "batch": 1,
        "rows": 100,
        "rows_per_second": 50.0,
        "lag_seconds": 0.5,
        "batch_seconds": 0.2,
        "late": 0,
        "unreadable": 0,
        "watermark": START,
        "progress": None,
        "kept": 1.0,
        "level": 0.0,
    }
    return StreamFrame(name=name, **{**fields, **more})


def frame(number: int, queries: Iterable[QueryFrame] = (), *, whole: bool = False, **more: Any) -> Frame:
    fields: dict[str, Any] = {
        "at": at(number),
        "mode": "live",
        "phase": "running",
        "version": 1,
        "message": "",
        "load": 1.0,
        "kept_load": 0.8,
        "capacity": 0.9,
        "level": 0.25,
        "streams": [stream()],
        "dropped": [],
        "agents": [],
        "alerts": [],
    }
    return Frame(number=number, whole=whole, queries=list(queries), **{**fields, **more})


def answer(name: str, second: float, value: Any = 10, *, half: float = 0.0, **more: Any) -> Answer:
    fields: dict[str, Any] = {
        "column": "n",
        "window_start": at(second - 1),
        "window_end": at(second),
        "low": value if not half else value - half,
        "high": value if not half else value + half,
        "confidence": 0.95 if half else 1.0,
        "how": "sampled" if half else "exact",
        "rate": 0.5 if half else 1.0,
        "met": True,
        "emitted_at": at(second + 0.2),
    }
    return Answer(query=name, value=value, **{**fields, **more})


def suspended(name: str, second: float) -> Answer:
    how: How = "suspended"
    return answer(name, second, None, low=None, high=None, how=how, met=False, rate=0.0)


def turn(number: int, second: float | None, **more: Any) -> RecordedTurn:
    micros = int(START.timestamp() * 1e6)
    fields: dict[str, Any] = {
        "step": number,
        "stream": "p",
        "turn": number,
        "kind": "batch",
        "version": 1,
        "batch": number - 1,
        "watermark": micros,
        "closed": micros + int((second if second is not None else number) * 1e6),
        "latest": None,
        "arrived": 100,
        "at": None if second is None else micros + int((second + 0.3) * 1e6),
        "has_rows": True,
        "level": 0.5,
    }
    return RecordedTurn(**{**fields, **more})


def recording(
    folder: Path,
    *,
    turns: Sequence[RecordedTurn] = (),
    answers: Sequence[Answer] = (),
    sql: str = SQL,
    **header: Any,
) -> Path:
    """A recording as a recorder leaves it, without rows."""
    version_file(folder, 1).parent.mkdir(parents=True)
    version_file(folder, 1).write_text(sql)
    said = {"format": FORMAT, "state": "s", "settings": {"salt": 1}, "functions": [], **header}
    write_json(folder / HEADER, said)
    (folder / TURNS).write_text("".join(f"{t.to_json_line()}\n" for t in turns))
    (folder / ANSWERS).write_text("".join(f"{a.to_json_line()}\n" for a in answers))
    (folder / MARK).write_text(json.dumps({"turns": len(turns), "answers": len(answers)}))
    return folder


def write_frames(path: Path, frames: Iterable[Frame]) -> None:
    path.write_text("".join(f"{f.model_dump_json()}\n" for f in frames))
