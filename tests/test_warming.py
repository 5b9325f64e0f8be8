"""How much time batches leave for texts that are run ahead of need. No session runs here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from slackwater.runtime.warming import ROOM, SILENT, Warming


def answered(stream: str, seconds: float) -> Any:
    return SimpleNamespace(decision=SimpleNamespace(stream=stream), seconds=seconds)


def test_a_stream_that_has_ended_takes_no_time_from_the_others() -> None:
    nothing_rules: Any = SimpleNamespace(ruler=None)
    executor: Any = None
    warming = Warming(nothing_rules, executor, lambda: 0.0)
    warming.after(answered("P", 0.25))
    warming.after(answered("q", 0.5))
    warming.after(answered("P", 0.125))
    assert warming.room(1.0) == pytest.approx(ROOM - 0.625)
    warming.end("p")
    assert warming.room(1.0) == pytest.approx(ROOM - 0.5)


def test_a_stream_that_has_fallen_silent_takes_no_time_either() -> None:
    nothing_rules: Any = SimpleNamespace(ruler=None)
    executor: Any = None
    now = [0.0]
    warming = Warming(nothing_rules, executor, lambda: now[0])
    warming.after(answered("cold", 8.0))
    assert warming.room(1.0) < 0
    now[0] = SILENT + 0.5
    warming.after(answered("p", 0.25))
    assert warming.room(1.0) == pytest.approx(ROOM - 0.25)
