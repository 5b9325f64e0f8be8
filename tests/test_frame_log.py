"""Frames laid on each other, and the log of them: kills, full disks, runs that go on, and how much is written."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from frames import at, frame, point, query
from slackwater.service.folding import fold, joined, moment_of
from slackwater.service.frame_log import FRAMES, FrameLog
from slackwater.service.models import Frame


def logged(folder: Path) -> list[Frame]:
    return [Frame.model_validate_json(line) for line in (folder / FRAMES).read_bytes().splitlines()]


def data(made: Frame) -> bytes:
    return made.model_dump_json().encode()


def names(made: Frame) -> list[str]:
    return [q.name for q in made.queries]


def seconds(made: Frame, name: str = "a") -> list[float]:
    return [(p.at - at(0)).total_seconds() for q in made.queries if q.name == name for p in q.points]


# --- folding --------------------------------------------------------------------------------------


def test_a_change_is_laid_on_what_was_there() -> None:
    before = frame(1, [query("a", [point(1)]), query("b", [point(1)])], whole=True)
    after = fold(before, frame(2, [query("a", [point(2)], answers=2)]))
    assert after.whole
    assert (after.number, names(after)) == (2, ["a", "b"])
    assert (seconds(after, "a"), seconds(after, "b")) == ([1, 2], [1])
    assert after.queries[0].answers == 2


def test_a_whole_frame_leaves_out_what_it_does_not_name() -> None:
    before = frame(1, [query("a", [point(1)]), query("b")], whole=True)
    after = fold(before, frame(2, [query("a", [point(2)])], whole=True))
    assert names(after) == ["a"]
    assert seconds(after) == [1, 2]


def test_only_the_newest_points_stay() -> None:
    state = None
    for number in range(1, 8):
        state = fold(state, frame(number, [query("a", [point(number)])], whole=number == 1), 3)
    assert state is not None
    assert seconds(state) == [5, 6, 7]
    assert seconds(fold(state, frame(8, [query("a", [point(8)])]), 0)) == []


def test_a_point_replaces_the_one_of_its_time_and_takes_its_place() -> None:
    before = frame(1, [query("a", [point(1), point(2), point(3)])], whole=True)
    after = fold(before, frame(2, [query("a", [point(2, 7.0)])]))
    assert seconds(after) == [1, 2, 3]
    assert after.queries[0].points[1].value == 7.0


@pytest.mark.parametrize("other", [{"column": "m"}, {"keys": {"port": 53}}])
def test_points_of_another_series_are_not_joined(other: dict[str, Any]) -> None:
    before = frame(1, [query("a", [point(1)])], whole=True)
    assert seconds(fold(before, frame(2, [query("a", [point(2)], **other)]))) == [2]


def test_a_query_that_is_dropped_and_made_again_has_no_points_of_the_one_before() -> None:
    before = frame(1, [query("a", [point(1)]), query("b")], whole=True)
    again = frame(2, [query("a", [point(2)])], dropped=["a"])
    assert seconds(fold(before, again)) == [2]
    # the same when the two changes have been put together, in either order of joining and folding
    gone = frame(2, dropped=["a"])
    back = frame(3, [query("a", [point(3)])])
    one = joined(gone, back, 10)
    assert seconds(fold(before, one)) == seconds(fold(fold(before, gone), back)) == [3]
    assert "b" in names(fold(before, one))


def test_two_changes_are_one_that_does_the_same() -> None:
    before = frame(1, [query("a", [point(1)]), query("b", [point(1)]), query("c")], whole=True)
    first = frame(2, [query("a", [point(2)])], dropped=["c"])
    second = frame(3, [query("a", [point(3)]), query("d")], dropped=["b"])
    one = joined(first, second, 10)
    assert not one.whole
    assert (names(one), one.dropped) == (["a", "d"], ["c", "b"])
    assert fold(before, one) == fold(fold(before, first), second)


def test_what_is_joined_with_a_whole_frame_is_whole() -> None:
    whole = frame(1, [query("a", [point(1)]), query("b")], whole=True)
    change = frame(2, [query("a", [point(2)])])
    assert names(joined(whole, change, 10)) == ["a", "b"]
    assert joined(whole, change, 10).whole
    late = joined(change, frame(3, [query("a", [point(3)])], whole=True), 10)
    assert late.whole
    assert (names(late), seconds(late)) == (["a"], [2, 3])


def test_the_moment_of_a_frame() -> None:
    moment = moment_of(frame(4, load=2.0, level=0.5))
    assert (moment.number, moment.load, moment.capacity, moment.level) == (4, 2.0, 0.9, 0.5)
    assert (moment.rows_per_second, moment.lag_seconds) == (50.0, 0.5)
    assert moment_of(frame(4, streams=[])).lag_seconds is None


# --- the log --------------------------------------------------------------------------------------


def test_the_first_line_and_every_sixtieth_are_whole(tmp_path: Path) -> None:
    log = FrameLog(tmp_path)
    log.append(data(frame(1, [query("a"), query("b")])))
    for number in range(2, 130):
        log.append(data(frame(number, [query("a", [point(number)])])))
    lines = logged(tmp_path)
    assert [line.number for line in lines] == list(range(1, 130))
    assert [line.number for line in lines if line.whole] == [1, 61, 121]
    assert names(lines[60]) == ["a", "b"]
    assert seconds(lines[60]) == [61], "a whole line has no points that are in lines before it"


def test_points_that_are_known_are_not_written_again(tmp_path: Path) -> None:
    log = FrameLog(tmp_path)
    log.append(data(frame(1, [query("a", [point(1), point(2)])], whole=True)))
    log.append(data(frame(2, [query("a", [point(1), point(2), point(3)])], whole=True)))
    # another series begins anew, whatever its times are
    log.append(data(frame(3, [query("a", [point(1), point(2)], column="m")])))
    # and so does a query of the same name, where a frame drops it and makes it again
    log.append(data(frame(4, [query("a", [point(1)], column="m")], dropped=["a"])))
    log.append(data(frame(5, [query("a", [point(1), point(2)], column="m")])))
    assert [seconds(line) for line in logged(tmp_path)] == [[1, 2], [3], [1, 2], [1], [2]]


def test_a_query_that_a_whole_frame_leaves_out_begins_anew(tmp_path: Path) -> None:
    log = FrameLog(tmp_path)
    log.append(data(frame(1, [query("a", [point(5)])], whole=True)))
    log.append(data(frame(2, [query("b")], whole=True)))
    log.append(data(frame(3, [query("a", [point(3)])])))
    assert [seconds(line) for line in logged(tmp_path)] == [[5], [], [3]]


def test_a_run_that_goes_on_goes_on_counting(tmp_path: Path) -> None:
    first = FrameLog(tmp_path)
    for number in (1, 2, 3):
        first.append(data(frame(number, [query("a")])))
    second = FrameLog(tmp_path)
    for number in (1, 2):
        second.append(data(frame(number, [query("a")])))
    lines = logged(tmp_path)
    assert [line.number for line in lines] == [1, 2, 3, 4, 5]
    assert [line.whole for line in lines] == [True, False, False, True, False]


@pytest.mark.parametrize(
    "cut", [b'{"number":4,"at":"2026', b"not a frame\n", b"\x00\x00\x00", b'{"number":"x"}\n' * 3]
)
def test_what_a_kill_has_left_is_passed_over(tmp_path: Path, cut: bytes) -> None:
    log = FrameLog(tmp_path)
    for number in (1, 2, 3):
        log.append(data(frame(number, [query("a")])))
    with (tmp_path / FRAMES).open("ab") as file:
        file.write(cut)
    FrameLog(tmp_path).append(data(frame(1, [query("a")])))
    lines = (tmp_path / FRAMES).read_bytes().splitlines()
    last = Frame.model_validate_json(lines[-1])
    assert (last.number, last.whole) == (4, True)
    assert len(lines) == 4 + cut.count(b"\n")


def test_a_long_line_is_found_to_its_beginning(tmp_path: Path) -> None:
    many = [query(f"q{n}", [point(1)]) for n in range(400)]
    FrameLog(tmp_path).append(data(frame(7, many, whole=True)))
    assert (tmp_path / FRAMES).stat().st_size > 2**17
    FrameLog(tmp_path).append(data(frame(1, [query("a")])))
    assert [line.number for line in logged(tmp_path)] == [7, 8]


def test_a_full_disk_is_told_and_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = FrameLog(tmp_path)
    log.append(data(frame(1, [query("a", [point(1)])], whole=True)))
    write, full = os.write, True

    def some(descriptor: int, view: Any) -> int:
        if full:
            write(descriptor, bytes(view[:10]))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, view)

    monkeypatch.setattr(os, "write", some)
    log.append(data(frame(2, [query("a", [point(2)])])))
    assert "No space left" in log.trouble
    assert str(log.path) in log.trouble
    log.append(data(frame(3, [query("a", [point(3)])])))
    full = False
    log.append(data(frame(4, [query("a", [point(4)])])))
    assert log.trouble == ""
    lines = logged(tmp_path)
    assert [line.number for line in lines] == [1, 4]
    assert seconds(lines[1]) == [2, 3, 4]


def test_a_file_that_is_taken_away_is_begun_again(tmp_path: Path) -> None:
    log = FrameLog(tmp_path)
    log.append(data(frame(1, [query("a", [point(1)]), query("b")], whole=True)))
    log.append(data(frame(2, [query("a", [point(2)])])))
    (tmp_path / FRAMES).unlink()
    log.append(data(frame(3, [query("a", [point(3)])])))
    [line] = logged(tmp_path)
    assert (line.number, line.whole, names(line)) == (3, True, ["a", "b"])


def test_beyond_its_allowance_frames_are_put_together(tmp_path: Path) -> None:
    many = [query(f"q{n}") for n in range(20)]
    size = len(data(frame(1, many)))
    log = FrameLog(tmp_path, at_once=3 * size, per_second=size // 10)
    for number in range(1, 201):
        log.append(data(frame(number, [query(f"q{n}", [point(number)]) for n in range(20)])))
    lines = logged(tmp_path)
    written = (tmp_path / FRAMES).stat().st_size
    assert written < 3 * size + 200 * size // 10 + 3 * size
    assert 5 < len(lines) < 40
    assert max(len(q.points) for line in lines for q in line.queries) == 8
    log.flush()
    last = logged(tmp_path)[-1]
    assert (last.number, seconds(last, "q0")[-1]) == (200, 200)


def test_nothing_is_written_where_nothing_came(tmp_path: Path) -> None:
    log = FrameLog(tmp_path)
    log.flush()
    assert not (tmp_path / FRAMES).exists()
