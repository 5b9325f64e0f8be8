"""What is copied of a run at the end of a turn, and tokens, audits and sliders beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slackwater.errors import SlackwaterError
from slackwater.planners.decision import Decision
from slackwater.runtime.clocks import Clocks
from slackwater.service.capture import DECISIONS, RATES, Capture, told
from slackwater.terminal.serve import VARIABLE, Serve, kept_token
from test_service_shown import answers

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class Engine:
    """As much of an engine as a capture asks for; it counts how often its load was looked at."""

    def __init__(self) -> None:
        self.board = SimpleNamespace(listeners=[])
        self.observers: list[Any] = []
        self.decided: dict[str, Decision] = {}
        self.bounds: dict[str, Any] = {}
        self.version = 1
        self.looked = 0
        self.takes: float = 0.0
        self.time = 0.0

    @property
    def load(self) -> Any:
        """Nothing governs it: there is no glimpse to be had."""
        self.looked += 1
        self.time += self.takes
        return SimpleNamespace(ruler=None)

    def turn(self, number: int, *batches: Any, stream: str = "p", **decided: Any) -> None:
        for batch in batches:
            for listen in self.board.listeners:
                listen(batch)
        self.decided[stream] = Decision(stream, number, "batch", 1, 0, batch=number, **decided)
        for observe in self.observers:
            observe(self)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def capture(engine: Engine) -> Capture:
    found = Capture(Clocks(lambda: engine.time, lambda: BEGAN))
    found.watch(engine)  # type: ignore[arg-type]
    return found


def test_answers_are_given_out_once_their_turn_has_ended(engine: Engine, capture: Capture) -> None:
    first, second = answers([1]), answers([2])
    engine.board.listeners[0](first)
    assert capture.take() == [], "the turn may yet be undone"
    engine.turn(1, second)
    assert capture.take() == [(1, first), (1, second)]
    assert capture.take() == []


def test_decisions_are_kept_once_and_told_newest_first(engine: Engine, capture: Capture) -> None:
    engine.turn(1)
    for observe in engine.observers:
        observe(engine)
    engine.turn(1, stream="Other")
    engine.turn(2)
    assert [(d["stream"], d["turn"]) for d in capture.newest(None, 10)] == [("p", 2), ("Other", 1), ("p", 1)]
    assert [d["turn"] for d in capture.newest("P", 10)] == [2, 1]
    assert [d["turn"] for d in capture.newest("other", 10)] == [1]
    assert len(capture.newest(None, 2)) == 2
    for number in range(3, DECISIONS + 50):
        engine.turn(number)
    assert len(capture.newest(None, 10_000)) == DECISIONS


def test_decisions_with_many_rates_are_kept_for_less_long(engine: Engine, capture: Capture) -> None:
    rates = dict.fromkeys(map(str, range(RATES // 10)), 0.5)
    for number in range(1, 30):
        engine.turn(number, thresholds=rates)
    assert [d["turn"] for d in capture.newest(None, 1_000)] == list(range(29, 19, -1))
    assert capture.newest(None, 1)[0]["rates"] == rates
    for number in range(30, 90):
        engine.turn(number)
    assert len(capture.newest(None, 1_000)) == 70


def test_a_copy_that_takes_long_is_made_seldom(engine: Engine, capture: Capture) -> None:
    engine.turn(1)
    engine.turn(2)
    assert engine.looked == 1, "not more often than twice a second"
    engine.time, engine.takes = 0.6, 0.1
    engine.turn(3)
    assert engine.looked == 2
    engine.time = 0.6 + 4.9
    engine.turn(4)
    assert engine.looked == 2, "fifty times as long as it took"
    engine.time = 0.6 + 5.1
    engine.turn(5)
    assert engine.looked == 3


def test_long_lists_of_a_decision_are_told_as_their_lengths() -> None:
    schedule = {"queries": {"a": {"out": [1], "shut": []}, "b": {"out": [], "shut": []}, "c": {"shut": [2]}}}
    decision = Decision(
        "p", 1, "batch", 1, 0, blocks=(1, 2, 3), share=0.3, schedule=schedule, suspended=("d",)
    )
    said = told(decision, "2026-01-01T00:00:00Z")
    assert (said["blocks"], said["read"], said["leaves_out_windows"]) == (3, 0.3, ["a", "c"])
    assert said["suspended"] == ["d"]


def test_a_token_that_is_made_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    made = kept_token(tmp_path)
    file = tmp_path / "service.token"
    assert len(made) >= 32
    assert file.stat().st_mode & 0o777 == 0o600
    assert kept_token(tmp_path) == made == file.read_text().strip()


def test_a_kept_token_that_others_could_read_is_theirs_no_more(tmp_path: Path) -> None:
    file = tmp_path / "service.token"
    file.write_text("written-by-somebody-else\n")
    file.chmod(0o644)
    assert kept_token(tmp_path) != "written-by-somebody-else"
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("\n")
    assert len(kept_token(tmp_path)) >= 32, "an empty one is none"


def test_the_token_of_the_user_counts_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert Serve().given() is None
    monkeypatch.setenv(VARIABLE, "of-the-environment")
    assert Serve().given() == "of-the-environment"
    file = tmp_path / "token"
    file.write_text("of-the-token-file\n")
    assert Serve(token_file=file).given() == "of-the-token-file"


@pytest.mark.parametrize(
    "text", ["", "short", "with a blank inside it", "schlüssel-mit-umlaut", "a\ttab-in-the-token"]
)
def test_a_poor_token_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    for serve, where in ((Serve(token_file=file), f"--token-file {file}"), (Serve(), VARIABLE)):
        monkeypatch.setenv(VARIABLE, text)
        with pytest.raises(
            SlackwaterError, match="expected a token of at least 16 plain characters"
        ) as refused:
            serve.given()
        assert str(refused.value).startswith(f"{where}: ")
        assert not text or text not in str(refused.value), "it is not to be shown"


def test_a_token_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(SlackwaterError, match=r"--token-file .*gone: No such file or directory"):
        Serve(token_file=tmp_path / "gone").given()
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe" * 20)
    with pytest.raises(SlackwaterError, match=r"--token-file .*binary: "):
        Serve(token_file=binary).given()


def test_elsewhere_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(SlackwaterError, match=r"--host 0\.0\.0\.0: others can reach this address"):
        Serve("0.0.0.0").listen()
    monkeypatch.setenv(VARIABLE, "a-token-of-the-tests")
    Serve("0.0.0.0", 0).listen().close()
    Serve(port=0).listen().close()
