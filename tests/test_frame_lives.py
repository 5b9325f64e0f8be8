"""The frames of a run that stops and goes on: nothing that is known of it is lost on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frames import frame, point, query
from slackwater.service.folding import fold, joined
from slackwater.service.frame_lines import FrameLines
from slackwater.service.frame_log import FRAMES
from slackwater.service.lines import Lines
from slackwater.service.models import Frame
from test_service_definitions import Run, sums
from test_service_shown import answers


def names(made: Frame) -> list[str]:
    return [q.name for q in made.queries]


def values(made: Frame) -> dict[str, list[Any]]:
    return {q.name: [p.value for p in q.points] for q in made.queries}


def logged(folder: Path) -> list[Frame]:
    return [Frame.model_validate_json(line) for line in (folder / FRAMES).read_bytes().splitlines()]


@pytest.mark.parametrize(("before", "after"), [("", "r"), ("r", ""), ("r", "r")])
def test_a_run_that_a_frame_does_not_name_is_no_other(before: str, after: str) -> None:
    first = frame(1, [query("a", [point(1)]), query("b", [point(1)])], whole=True, run=before)
    second = frame(2, [query("a", [point(2)])], run=after)
    for made in (fold(first, second), joined(first, second, 10)):
        assert names(made) == ["a", "b"]
        assert made.run == "r", "what is known of it stays known"
        assert [p.at for p in made.queries[0].points] == [point(1).at, point(2).at]
    changes = joined(first.model_copy(update={"whole": False}), second, 10)
    assert (names(changes), changes.run, changes.whole) == (["a", "b"], "r", False)


def test_of_another_run_nothing_is_taken_over() -> None:
    first = frame(1, [query("a", [point(1)]), query("b", [point(1)])], whole=True, run="one")
    second = frame(2, [query("a", [point(2)])], run="two")
    changes = first.model_copy(update={"whole": False})
    for made in (fold(first, second), joined(first, second, 10), joined(changes, second, 10)):
        assert (names(made), made.run) == (["a"], "two")
        assert [p.at for p in made.queries[0].points] == [point(2).at]


def test_two_lives_of_a_run_keep_all_queries_and_points(tmp_path: Path) -> None:
    for second in (1, 11):
        run = Run(sums("busy", "calm", "quiet"), tmp_path)
        # one of them says something early and no more, one never does
        run.turn(1, answers([-second], second, "calm"))
        for more in range(3):
            run.turn(1, answers([second + more], second + more, "busy"))
            run.live.advance()
        run.live.stop()
    lines = logged(tmp_path)
    whole = [line for line in lines if line.whole]
    assert [names(line) for line in whole] == [["busy", "calm", "quiet"]] * 2
    assert {line.run for line in lines} == {"r"}
    kept = {"busy": [1, 2, 3, 11, 12, 13], "calm": [-1, -11], "quiet": []}
    state: Frame | None = None
    for line in lines:
        state = fold(state, line)
    assert state is not None
    assert values(state) == kept
    found = FrameLines(Lines(tmp_path / FRAMES)).newest()
    assert found is not None
    assert values(found) == kept


def test_the_second_whole_line_of_a_long_life_has_all_queries(tmp_path: Path) -> None:
    run = Run(sums("busy", "calm", "quiet"), tmp_path)
    run.turn(1, answers([-1], 1, "calm"))
    for second in range(70):
        run.turn(1, answers([second], second, "busy"))
        run.live.advance()
    run.live.stop()
    first, second_whole = [line for line in logged(tmp_path) if line.whole]
    assert names(first) == names(second_whole) == ["busy", "calm", "quiet"]
    assert second_whole.queries[1].last_text == "-1"
