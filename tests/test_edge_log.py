"""The hub's log: what is on disk after any kind of end, and what is said of damage."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slackwater.edge import segments
from slackwater.edge.log import Log
from slackwater.errors import StateError


class Kept:
    """A state that is just the list of what was appended, with the log that keeps it."""

    def __init__(
        self, directory: Path, segment_bytes: int = 1 << 20, sync: Callable[[int], None] = os.fsync
    ) -> None:
        self.seen: list[Any] = []
        self.log = Log(directory, freeze=self._freeze, segment_bytes=segment_bytes, sync=sync)
        self.log.recover(lambda state: self.seen.extend(state["seen"]), lambda e: self.seen.append(e["n"]))

    def _freeze(self) -> Callable[[], dict[str, Any]]:
        seen = list(self.seen)
        return lambda: {"seen": seen}

    def add(self, *values: Any, span: int = 1) -> list[int]:
        """Append, each value as an entry, and write them together."""
        positions = []
        for value in values:
            positions.append(self.log.append({"n": value}, span))
            self.seen.append(value)
        pending = self.log.take()
        assert pending is not None
        self.log.write(pending)
        return positions

    def read(self, start: int = 1, to: int = 1 << 40, limit: int = 1 << 20) -> tuple[list[Any], int]:
        entries, following = self.log.read(start, to, limit)
        return [json.loads(entry)["n"] for entry in entries], following


def reopened(kept: Kept, **options: Any) -> Kept:
    kept.log.close()
    return Kept(kept.log.directory, **options)


def newest_segment(directory: Path) -> Path:
    return max(directory.glob("*.log"))


def test_entries_have_positions_from_one_and_come_back_in_order(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    assert kept.add("a", "b") == [1, 2]
    again = reopened(kept)
    assert again.seen == ["a", "b"]
    assert again.add("c") == [3]
    assert again.read() == (["a", "b", "c"], 4)
    assert again.log.identity == kept.log.identity
    again.log.close()


def test_an_entry_of_many_grants_takes_as_many_positions(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    assert kept.add("a") == [1]
    assert kept.add("grants", span=3) == [2]
    assert kept.add("b") == [5]
    kept = reopened(kept)
    assert kept.log.end == 6
    assert kept.read(2) == (["grants", "b"], 6)
    assert kept.read(3) == (["b"], 6), "a position inside an entry: what begins after it"
    kept.log.close()


def test_many_entries_are_written_with_one_fsync(tmp_path: Path) -> None:
    synced: list[int] = []
    kept = Kept(tmp_path, sync=synced.append)
    before = len(synced)
    kept.add(*range(100))
    assert len(synced) == before + 1
    kept.log.close()


def test_nothing_is_read_before_it_is_durable(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.add("a")
    kept.log.append({"n": "b"})
    pending = kept.log.take()
    assert pending is not None
    assert kept.read() == (["a"], 2)
    assert kept.log.durable == 2
    assert kept.log.end == 3
    kept.log.write(pending)
    assert kept.read() == (["a", "b"], 3)
    assert kept.log.waiting_bytes == 0
    kept.log.close()


@pytest.mark.parametrize("left", [1, 9, 30])
def test_a_torn_tail_is_cut_off_with_a_warning(
    tmp_path: Path, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept(tmp_path)
    kept.add("a", "b")
    good = newest_segment(tmp_path).stat().st_size
    kept.log.append({"n": "c" * 40})
    pending = kept.log.take()
    assert pending is not None
    kept.log.write(pending)
    kept.log.close()
    os.truncate(newest_segment(tmp_path), good + left)
    with caplog.at_level(logging.WARNING):
        again = Kept(tmp_path)
    assert again.seen == ["a", "b"]
    assert f"cut off {left} bytes" in caplog.text
    assert again.add("d") == [3], "the position of what was cut off was never acknowledged, and is free"
    again = reopened(again)
    assert again.seen == ["a", "b", "d"]
    again.log.close()


def test_a_tail_whose_pages_came_to_disk_out_of_order_is_cut_off_too(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.add("a")
    good = newest_segment(tmp_path).stat().st_size
    kept.add("b" * 50, "c")
    kept.log.close()
    # of one group commit, the first entry did not reach the disk and the second did
    raw = bytearray(newest_segment(tmp_path).read_bytes())
    raw[good : good + 40] = bytes(40)
    newest_segment(tmp_path).write_bytes(raw)
    again = Kept(tmp_path)
    assert again.seen == ["a"]
    again.log.close()


def test_damage_before_what_was_durable_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.add("a")
    start = newest_segment(tmp_path).stat().st_size
    kept.add("b")
    kept.add("c")
    kept.log.close()
    raw = bytearray(newest_segment(tmp_path).read_bytes())
    raw[start + 12] ^= 1
    newest_segment(tmp_path).write_bytes(raw)
    with pytest.raises(StateError, match=rf"damaged at byte {start}: the entry at position 2 fails"):
        Kept(tmp_path)
    # and the directory is not left locked
    raw[start + 12] ^= 1
    newest_segment(tmp_path).write_bytes(raw)
    again = Kept(tmp_path)
    assert again.seen == ["a", "b", "c"]
    again.log.close()


def test_segments_roll_with_a_snapshot_and_reading_crosses_them(tmp_path: Path) -> None:
    kept = Kept(tmp_path, segment_bytes=200)
    for n in range(30):
        kept.add(n)
    assert len(list(tmp_path.glob("*.log"))) > 3
    assert kept.read() == (list(range(30)), 31)
    assert kept.read(7, 20) == (list(range(6, 19)), 20)
    found, position = [], 1
    while position < 31:
        some, position = kept.read(position, 31, 4)
        assert 0 < len(some) <= 4
        found += some
    assert found == list(range(30))
    again = reopened(kept, segment_bytes=200)
    assert again.seen == list(range(30)), "from the newest snapshot and one segment"
    assert again.read() == (list(range(30)), 31)
    again.log.close()


def test_one_group_commit_may_span_several_segments(tmp_path: Path) -> None:
    kept = Kept(tmp_path, segment_bytes=100)
    kept.add(*range(20))
    kept = reopened(kept, segment_bytes=100)
    assert kept.seen == list(range(20))
    assert kept.read() == (list(range(20)), 21)
    kept.log.close()


def test_forgotten_segments_are_gone_and_a_restart_knows_all_the_same(tmp_path: Path) -> None:
    kept = Kept(tmp_path, segment_bytes=200)
    for n in range(30):
        kept.add(n)
    size = kept.log.size()
    kept.log.forget(20)
    assert 1 < kept.log.begin <= 20, "whole segments only"
    assert kept.log.size() < size
    assert kept.read(20) == (list(range(19, 30)), 31)
    with pytest.raises(
        StateError, match=f"position 1 has been forgotten: the log begins at {kept.log.begin}"
    ):
        kept.read(1)
    kept.log.forget(31)
    again = reopened(kept, segment_bytes=200)
    assert again.seen == list(range(30))
    assert again.log.begin == kept.log.begin
    assert again.add(30) == [31]
    again.log.close()


def test_a_crash_between_snapshot_and_segment_leaves_nothing_behind(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.add("a")
    kept.log.close()
    segments.write_snapshot(tmp_path, 2, {"log": "other", "state": {"seen": ["wrong"]}})
    (tmp_path / "00000000000000000003.partial").write_bytes(b"half")
    again = Kept(tmp_path)
    assert again.seen == ["a"]
    assert len(list(tmp_path.glob("*.snapshot"))) == 1
    assert not list(tmp_path.glob("*.partial"))
    again.log.close()


def test_damage_in_an_older_segment_is_an_error_when_it_is_read(tmp_path: Path) -> None:
    kept = Kept(tmp_path, segment_bytes=200)
    for n in range(30):
        kept.add(n)
    kept.log.close()
    oldest = min(tmp_path.glob("*.log"))
    raw = bytearray(oldest.read_bytes())
    raw[-5] ^= 1
    oldest.write_bytes(raw)
    again = Kept(tmp_path, segment_bytes=200)
    assert again.seen == list(range(30)), "the newest snapshot does not need it"
    with pytest.raises(StateError, match="cannot be read"):
        again.read()
    again.log.close()


def test_a_damaged_snapshot_is_an_error(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.add("a")
    kept.log.close()
    path = next(tmp_path.glob("*.snapshot"))
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(StateError, match=r"snapshot is damaged"):
        Kept(tmp_path)


def test_two_logs_on_one_directory_are_refused(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    with pytest.raises(StateError, match="is in use: another hub"):
        Kept(tmp_path)
    kept = reopened(kept)
    kept.log.close()


def test_a_read_ends_after_its_bytes_but_not_before_one_entry(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.add("x" * 1_000, "y" * 1_000, "z")
    entries, following = kept.log.read(1, 4, 10, max_bytes=10)
    assert len(entries) == 1
    assert following == 2
    kept.log.close()
