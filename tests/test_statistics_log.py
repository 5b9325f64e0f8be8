"""What was measured, beside a recording: written now and then, read back by time, through kills and damage."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from frames import at
from slackwater.runtime.insight import Insight, StreamInsight
from slackwater.service.api_models import Statistics
from slackwater.service.statistics_log import STATISTICS, StatisticsLines, StatisticsLog
from slackwater.service.statistics_out import statistics_of


def known(level: float) -> Statistics:
    stream = StreamInsight("p", 3, 1000.0, 500.0, (), (), (), level, 1.0, 2.0, 0.5, {})
    return statistics_of(Insight((stream,), 1.5))


def levels(folder: Path, *seconds: float) -> list[float | None]:
    lines = StatisticsLines(folder / STATISTICS)
    found = [lines.at(at(second)) for second in seconds]
    lines.close()
    return [None if one is None else one.streams[0].level for one in found]


def test_it_is_as_it_was_at_a_time(tmp_path: Path) -> None:
    log = StatisticsLog(tmp_path)
    for second, level in ((10, 0.1), (20, 0.2), (30, 0.3)):
        log.append(at(second), known(level))
    assert levels(tmp_path, 9.9, 10, 19.9, 20, 29, 30, 3_000) == [None, 0.1, 0.1, 0.2, 0.2, 0.3, 0.3]
    assert StatisticsLines(tmp_path / STATISTICS).at(None) == known(0.3)
    assert StatisticsLines(tmp_path / "nothing").at(None) is None


def test_what_has_not_changed_is_not_written_again(tmp_path: Path) -> None:
    log = StatisticsLog(tmp_path)
    for second in range(5):
        log.append(at(second), known(0.5))
    assert len((tmp_path / STATISTICS).read_bytes().splitlines()) == 1


def test_it_is_looked_at_every_other_second_and_less_often_where_it_is_long(tmp_path: Path) -> None:
    log = StatisticsLog(tmp_path, at_once=1_000, per_second=100)
    size = 0
    for half_second in range(1_200):
        now = at(half_second / 2)
        if log.due(now):
            log.append(now, known(half_second / 1_000))
            size = (tmp_path / STATISTICS).stat().st_size
    lines = (tmp_path / STATISTICS).read_bytes().splitlines()
    longest = max(map(len, lines)) + 1
    # ten minutes at a hundred bytes a second, and what was free
    assert 0.9 * 60_000 < size <= 1_000 + 60_000 + longest
    assert size / longest < 600 / 2
    quick = StatisticsLog(tmp_path / "quick")
    (tmp_path / "quick").mkdir()
    written = [n for n in range(20) if quick.due(at(n / 2)) and quick.append(at(n / 2), known(n)) is None]
    assert written == list(range(0, 20, 4))


def test_a_clock_that_is_set_back_stops_nothing(tmp_path: Path) -> None:
    log = StatisticsLog(tmp_path)
    log.append(at(3_600), known(0.1))
    assert not log.due(at(3_601))
    assert log.due(at(10))
    log.append(at(10), known(0.2))
    assert not log.due(at(11))
    assert log.due(at(12))


@pytest.mark.parametrize("left", [b'{"at":1,"stati', b"x" * 200_000, b""])
def test_a_run_that_goes_on_cuts_off_what_a_kill_has_left(tmp_path: Path, left: bytes) -> None:
    StatisticsLog(tmp_path).append(at(1), known(0.1))
    with (tmp_path / STATISTICS).open("ab") as file:
        file.write(left)
    assert levels(tmp_path, 5) == [0.1]
    StatisticsLog(tmp_path).append(at(2), known(0.2))
    assert levels(tmp_path, 1, 5) == [0.1, 0.2]
    assert len((tmp_path / STATISTICS).read_bytes().splitlines()) == 2


def test_lines_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    log = StatisticsLog(tmp_path)
    for second in (1, 2, 3, 4):
        log.append(at(second), known(second / 10))
    first, second, third, fourth = (tmp_path / STATISTICS).read_bytes().splitlines(keepends=True)
    damaged = third.replace(b'"streams":[', b'"streams":[1,')
    (tmp_path / STATISTICS).write_bytes(first + b"\x00\x00 nothing\n" + damaged + fourth[:-9])
    assert levels(tmp_path, 1, 2, 3, 9) == [0.1] * 4


def test_what_cannot_be_written_is_told_and_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    log = StatisticsLog(folder)
    log.append(at(1), known(0.1))
    assert str(folder / STATISTICS) in log.trouble
    assert log.due(at(1) + timedelta(milliseconds=1))
    folder.mkdir()
    log.append(at(2), known(0.2))
    assert log.trouble == ""
    assert levels(folder, 9) == [0.2]
