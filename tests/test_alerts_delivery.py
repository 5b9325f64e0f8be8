"""Events reach their webhooks at least once and in order, whatever becomes of either side."""

from __future__ import annotations

import base64
import logging
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from alert_turns import NOW, Turns, alert, answers, catalog_of
from slackwater.errors import StateError
from slackwater.runtime.alerts.lanes import LONGEST_S, RETRY_AFTER_AT_MOST_S, Lane
from slackwater.runtime.alerts.outbox import Outbox
from slackwater.runtime.alerts.webhook import Outcome, Webhook, retry_seconds
from slackwater.runtime.clocks import Clocks
from waiting import wait_for
from webhook_server import Got, Reply, free_port, receiving


@dataclass
class Clock:
    """Time that goes on when it is told to."""

    passed: float = 0.0
    clocks: Clocks = field(init=False)

    def __post_init__(self) -> None:
        self.clocks = Clocks(lambda: self.passed, self.now)

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.passed)


class Always(random.Random):
    """Jitter that is none: the longest time that may come."""

    def uniform(self, a: float, b: float) -> float:
        return b


def raised(turns: Turns, *values: int) -> None:
    """One event for each value: it is raised by odd ones, and cleared by even ones in between."""
    for value in values:
        end = 10 * (turns.step + 1)
        assert len(turns.turn(answers([value if value % 2 else -value], ends=end))) == 1


def manual(folder: Path, url: str, clock: Clock | None = None, **options: Any) -> Turns:
    clocks = (clock or Clock()).clocks
    catalog = catalog_of(alert("bytes > 0", url=url, also=options.pop("also", "")))
    return Turns(folder, catalog, clocks=clocks, rng=Always(), **options)


@contextmanager
def threaded(folder: Path, *alerts: str, **options: Any) -> Iterator[Turns]:
    turns = Turns(folder, catalog_of(*alerts), **options)
    turns.alerts.start()
    try:
        yield turns
    finally:
        turns.alerts.stop(0)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "alerts").iterdir())


# --- what is sent --------------------------------------------------------------------------------


def test_a_webhook_gets_the_event_with_its_id_and_the_outbox_is_empty(tmp_path: Path) -> None:
    with receiving() as receiver:
        turns = manual(tmp_path, f"{receiver.url}?token=t")
        (event,) = turns.turn(answers([11], [12], how="sampled"))
        assert turns.status().waiting == 1
        assert turns.alerts.delivery.deliver() == 1
        (got,) = receiver.got
    assert got.event == {**event, "attempt": 1}
    assert got.path == "/hook?token=t"
    assert got.headers["Idempotency-Key"] == event["id"]
    assert got.headers["Content-Type"] == "application/json"
    assert "Authorization" not in got.headers
    assert {
        "low",
        "high",
        "confidence",
        "how",
        "keys",
        "window_start",
        "at",
        "emitted_at",
    } <= got.event.keys()
    assert (turns.status().waiting, turns.status().trouble) == (0, "")
    assert left(tmp_path) == []
    assert turns.alerts.delivery.deliver() == 0


def test_user_and_password_go_as_a_header(tmp_path: Path) -> None:
    with receiving() as receiver:
        turns = manual(tmp_path, receiver.url.replace("http://", "http://ann:se%40same@"))
        raised(turns, 1)
        turns.alerts.delivery.deliver()
        (got,) = receiver.got
    assert base64.b64decode(got.headers["Authorization"].removeprefix("Basic ")) == b"ann:se@same"
    assert got.headers["Host"] == f"127.0.0.1:{receiver.port}"


@pytest.mark.parametrize("protocol", ["HTTP/1.0", "HTTP/1.1"])
def test_many_events_come_in_order_and_share_a_connection_where_it_is_kept(
    tmp_path: Path, protocol: str
) -> None:
    with receiving(lambda got: Reply(200, body=b"thanks"), protocol=protocol) as receiver:
        turns = manual(tmp_path, receiver.url)
        raised(turns, *range(1, 21))
        assert turns.alerts.delivery.deliver() == 20
        assert [abs(value) for value in receiver.values] == list(range(1, 21))
        assert receiver.connections == (1 if protocol == "HTTP/1.1" else 20)


def test_a_connection_that_was_closed_meanwhile_is_no_failure() -> None:
    with receiving(lambda got: Reply(closes=True)) as receiver:
        webhook = Webhook(receiver.url)
        assert [webhook.post(b"{}", str(number)).kind for number in range(3)] == ["taken"] * 3
        assert receiver.connections == 3
        webhook.close()


# --- what is not taken ---------------------------------------------------------------------------


def test_a_failing_webhook_is_tried_again_ever_more_slowly(tmp_path: Path) -> None:
    clock = Clock()
    with receiving(lambda got: Reply(503)) as receiver:
        turns = manual(tmp_path, receiver.url, clock)
        raised(turns, 1, 2)
        deliver = turns.alerts.delivery.deliver
        assert deliver() == 1
        assert turns.status().trouble == f"http://127.0.0.1:{receiver.port} answered 503 Service Unavailable"
        for wait in (1, 2, 4, 8):
            clock.passed += wait - 0.01
            assert deliver() == 0
            clock.passed += 0.01
            assert deliver() == 1
        assert turns.status().trouble.endswith("5 times in a row")
        assert [got.event["attempt"] for got in receiver.got] == [1, 2, 3, 4, 5]
        assert len({got.headers["Idempotency-Key"] for got in receiver.got}) == 1, "order is kept"
        receiver.answer = lambda got: Reply()
        clock.passed += 16
        assert deliver() == 2, "with the first one taken the next follows at once"
        assert [got.event["state"] for got in receiver.got[-2:]] == ["raised", "cleared"]
        assert receiver.got[-1].event["attempt"] == 1
        assert turns.status().trouble == ""


def test_the_longest_wait_is_some_minutes_and_scattered() -> None:
    lane, rng = Lane("http://h", Webhook("http://h")), random.Random(1)
    waits = []
    for _ in range(200):
        lane.failed(Outcome("later", "answered 500"), 0.0, 0.0, rng)
        waits.append(lane.due)
    assert all(LONGEST_S / 2 <= wait <= LONGEST_S for wait in waits[20:])
    assert max(waits[20:]) - min(waits[20:]) > LONGEST_S / 4
    assert waits[0] <= 1.0


@pytest.mark.parametrize(
    ("reply", "wait", "said"),
    [
        (Reply(500), 1, "answered 500"),
        (Reply(408), 1, "answered 408"),
        (Reply(429, {"Retry-After": "120"}), 120, "answered 429"),
        (Reply(503, {"Retry-After": "Thu, 01 Jan 2026 00:01:30 GMT"}), 90, "answered 503"),
        (Reply(503, {"Retry-After": "99999999"}), RETRY_AFTER_AT_MOST_S, "answered 503"),
        (Reply(503, {"Retry-After": "soon"}), 1, "answered 503"),
        (Reply(400), LONGEST_S, "answered 400"),
        (Reply(404), LONGEST_S, "answered 404"),
        (Reply(410), LONGEST_S, "answered 410"),
        (Reply(301, {"Location": "/elsewhere"}), LONGEST_S, "redirects are not followed"),
        (Reply(307, {"Location": "/elsewhere"}), LONGEST_S, "redirects are not followed"),
        (Reply(raw=b"what?\r\n\r\n"), 1, "no HTTP"),
    ],
)
def test_what_is_not_taken_is_tried_again_when_it_may_help(
    tmp_path: Path, reply: Reply, wait: float, said: str
) -> None:
    clock = Clock()
    with receiving(lambda got: reply) as receiver:
        turns = manual(tmp_path, receiver.url, clock)
        raised(turns, 1)
        assert turns.alerts.delivery.deliver() == 1
        assert said in turns.status().trouble
        clock.passed = wait - 0.01
        assert turns.alerts.delivery.deliver() == 0
        receiver.answer = lambda got: Reply()
        clock.passed = wait
        assert turns.alerts.delivery.deliver() == 1
        assert turns.status().waiting == 0
        assert {got.path for got in receiver.got} == {"/hook"}


def test_an_event_that_is_refused_holds_up_its_alert_and_no_other(tmp_path: Path) -> None:
    clock = Clock()

    def refuses(got: Got) -> Reply:
        return Reply(413 if got.event["alert"] == "a" else 204)

    with receiving(refuses) as receiver:
        wanted = alert("bytes > 0", url=receiver.url), alert("bytes > 5", name="b", url=receiver.url)
        turns = Turns(tmp_path, catalog_of(*wanted), clocks=clock.clocks, rng=Always())
        deliver = turns.alerts.delivery.deliver
        # both alerts have an event of each
        for number, value in enumerate((7, -8, 9)):
            assert len(turns.turn(answers([value], ends=10 + 10 * number))) == 2
        deliver()
        clock.passed = 1.0
        deliver()
        told = [(got.event["alert"], got.event["value"]) for got in receiver.got]
        assert told == [("a", 7), ("b", 7), ("b", -8), ("b", 9)]
        assert (turns.status("a").waiting, turns.status("b").waiting) == (3, 0)
        assert turns.status("a").trouble.endswith("answered 413 Request Entity Too Large")
        assert turns.status("b").trouble == ""
        assert (turns.status("a").failed, turns.status("b").failed) == (1, 0)
        clock.passed = LONGEST_S - 0.01
        assert deliver() == 0
        clock.passed = LONGEST_S
        assert deliver() == 1, "the same one again"
        assert turns.status("a").trouble.endswith("2 times in a row")
        receiver.answer = lambda got: Reply()
        clock.passed = 2 * LONGEST_S
        assert deliver() == 3
        assert [got.event["value"] for got in receiver.got[-3:]] == [7, -8, 9], "in order"
        assert (turns.status("a").waiting, turns.status("a").trouble) == (0, "")


def several(folder: Path, url: str, clock: Clock, limits: dict[str, int], **options: Any) -> Turns:
    """Alerts at one address, each raised above its own limit."""
    wanted = [alert(f"bytes > {limit}", name=name, url=url) for name, limit in limits.items()]
    return Turns(folder, catalog_of(*wanted), clocks=clock.clocks, rng=random.Random(3), **options)


def test_many_that_are_refused_for_long_leave_others_their_turn(tmp_path: Path) -> None:
    clock = Clock()
    limits = {f"a{n}": 0 for n in range(10)} | {"b": 5}
    with receiving(lambda got: Reply(204 if got.event["alert"] == "b" else 400)) as receiver:
        turns = several(tmp_path, receiver.url, clock, limits)
        turns.turn(answers([1]))
        for second in range(0, 7_200, 5):
            clock.passed = second
            turns.alerts.delivery.deliver()
        asked = len(receiver.got)
        assert 10 * 7_200 / LONGEST_S <= asked <= 20 * 7_200 / LONGEST_S + 10
        turns.turn(answers([9], ends=20))
        began = clock.passed
        while turns.status("b").waiting:
            clock.passed += 1
            assert clock.passed < began + 40
            turns.alerts.delivery.deliver()
        assert receiver.got[-1].event["alert"] == "b"


def test_a_run_that_ends_waits_for_those_that_are_taken_and_for_none_that_is_refused(tmp_path: Path) -> None:
    clock = Clock()
    with receiving(lambda got: Reply(400 if got.event["alert"] == "a" else 204)) as receiver:
        turns = several(tmp_path, receiver.url, clock, {"a": 0, "b": 5})
        delivery = turns.alerts.delivery
        turns.turn(answers([9]))
        assert not delivery.drain(0), "both may be taken"
        delivery.deliver()
        assert not delivery.drain(0), "one was refused, the other may be taken"
        clock.passed = 40
        delivery.deliver()
        assert (turns.status("a").waiting, turns.status("b").waiting) == (1, 0)
        assert delivery.drain(0), "what is refused is not waited for"


def test_of_too_many_the_oldest_is_dropped_whoever_is_tried(tmp_path: Path) -> None:
    clock = Clock()
    replies = {"a": 400, "b": 503}
    with receiving(lambda got: Reply(replies[got.event["alert"]])) as receiver:
        turns = several(tmp_path, receiver.url, clock, {"a": 0, "b": 50}, at_most=3)
        raised(turns, 1, 2, 3)
        turns.alerts.delivery.deliver()
        clock.passed = 40
        # one of the other alert, which is tried and stays to be tried again
        assert [e["alert"] for e in turns.turn(answers([99], ends=100))] == ["b"]
        turns.alerts.delivery.deliver()
        assert (turns.status("a").lost, turns.status("b").lost) == (1, 0)
        assert (turns.status("a").waiting, turns.status("b").waiting) == (2, 1)
        turns.turn(answers([-1], ends=110))
        assert (turns.status("a").lost, turns.status("b").lost) == (3, 0)


def test_an_alert_that_is_dropped_while_it_is_refused_leaves_no_trouble_behind(tmp_path: Path) -> None:
    clock = Clock()
    both = catalog_of()

    def refuses(got: Got) -> Reply:
        if len(receiver.got) == 1:
            turns.change(both)
        return Reply(400)

    with receiving(refuses) as receiver:
        turns = manual(tmp_path, receiver.url, clock)
        declared = turns.catalog
        raised(turns, 1)
        turns.alerts.delivery.deliver()
        clock.passed = LONGEST_S
        turns.alerts.delivery.deliver()
        assert len(receiver.got) == 2
        turns.change(declared)
        assert (turns.status().trouble, turns.status().waiting) == ("", 0)


def test_an_address_that_refuses_all_is_asked_ever_more_slowly(tmp_path: Path) -> None:
    clock = Clock()
    with receiving(lambda got: Reply(404)) as receiver:
        wanted = [alert("bytes > 0", name=f"a{n}", url=receiver.url) for n in range(4)]
        turns = Turns(tmp_path, catalog_of(*wanted), clocks=clock.clocks, rng=Always())
        turns.turn(answers([1]))
        asked = []
        for second in range(20):
            clock.passed = second
            asked += [second] * turns.alerts.delivery.deliver()
        assert asked == [0, 1, 3, 7]
        assert [got.event["alert"] for got in receiver.got] == ["a0", "a1", "a2", "a3"]


@pytest.mark.parametrize("text", ["", "-1", "1.5", "never", "²", "Thu, 99 Jan 2026 00:01:30 GMT"])
def test_a_retry_after_that_cannot_be_read_is_none(text: str) -> None:
    assert retry_seconds(text, NOW) == 0.0


def test_a_webhook_that_is_not_there_and_then_is(tmp_path: Path) -> None:
    clock, port = Clock(), free_port()
    turns = manual(tmp_path, f"http://127.0.0.1:{port}/hook", clock)
    raised(turns, 1, 2)
    assert turns.alerts.delivery.deliver() == 1
    assert "could not be reached: Connection refused" in turns.status().trouble
    with receiving(port=port) as receiver:
        clock.passed = 1
        assert turns.alerts.delivery.deliver() == 2
        assert receiver.values == [1, -2]


def test_a_name_that_nobody_has_is_trouble_and_no_error(tmp_path: Path) -> None:
    turns = manual(tmp_path, "http://nobody.invalid/hook")
    raised(turns, 1)
    assert turns.alerts.delivery.deliver() == 1
    assert turns.status().trouble.startswith("http://nobody.invalid could not be reached")


@pytest.mark.parametrize(
    ("url", "port"), [("http://[::1]/hook", 80), ("https://[::1]/hook", 443), ("http://[::1]:8/hook", 8)]
)
def test_the_port_is_not_looked_for_in_an_address(
    url: str, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    def connect(place: tuple[str, int], *_: object) -> None:
        asked.append(place)
        raise OSError("no way there")

    monkeypatch.setattr("http.client.socket.create_connection", connect)
    assert Webhook(url).post(b"{}", "1").kind == "later"
    assert asked == [("::1", port)]


def test_a_webhook_that_does_not_answer_in_time_has_failed(tmp_path: Path) -> None:
    with receiving(lambda got: Reply(hangs=True)) as receiver:
        turns = manual(tmp_path, receiver.url, timeout=0.2)
        raised(turns, 1)
        assert turns.alerts.delivery.deliver() == 1
        assert turns.status().trouble.endswith("did not answer in time")


def test_https_is_spoken_and_what_is_none_is_trouble(tmp_path: Path) -> None:
    with receiving() as receiver:
        turns = manual(tmp_path, receiver.url.replace("http:", "https:"))
        raised(turns, 1)
        assert turns.alerts.delivery.deliver() == 1
        assert "could not be reached" in turns.status().trouble
        assert not receiver.got


def test_nothing_secret_is_logged_or_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with receiving(lambda got: Reply(500)) as receiver, caplog.at_level(logging.DEBUG):
        secret = receiver.url.replace("http://", "http://ann:sesame@") + "/T0/path-secret?token=open"
        turns = manual(tmp_path, secret, at_most=1)
        raised(turns, 1, 2, 3)
        turns.alerts.delivery.deliver()
        receiver.answer = lambda got: Reply()
        shown = repr(turns.alerts.status())
    assert "500" in caplog.text
    assert "dropped" in caplog.text
    for text in (caplog.text, turns.status().trouble):
        assert not [word for word in ("sesame", "ann", "path-secret", "token", "open") if word in text]
    assert not [word for word in ("sesame", "path-secret", "token", "open") if word in shown]


# --- too much ------------------------------------------------------------------------------------


def test_an_outbox_that_overflows_drops_the_oldest_and_counts_them(tmp_path: Path) -> None:
    clock, port = Clock(), free_port()
    with receiving() as other:
        url = f"http://127.0.0.1:{port}/hook"
        turns = manual(tmp_path, url, clock, also=other.url, at_most=3)
        for value in range(1, 8):
            raised(turns, value)
            turns.alerts.delivery.deliver()
        assert [abs(v) for v in other.values] == list(range(1, 8)), "nobody else loses any"
    assert (turns.status().waiting, turns.status().lost) == (3, 4)
    assert "4 events were dropped, since too many waited" in turns.status().trouble
    turns = turns.restarted()
    assert turns.status().waiting == 3, "what was dropped stays dropped"
    with receiving(port=port) as receiver:
        turns.alerts.delivery.deliver()
        # the first was under way when others were dropped
        assert [abs(v) for v in receiver.values] == [5, 6, 7]
    assert left(tmp_path) == []


# --- kills and changes ---------------------------------------------------------------------------


def test_a_run_that_goes_on_sends_what_was_not_taken_and_no_more(tmp_path: Path) -> None:
    port = free_port()
    with receiving() as receiver:
        turns = manual(tmp_path, receiver.url, also=f"http://127.0.0.1:{port}/hook")
        ids = [e["id"] for e in turns.turn(answers([1, -2, 3], ends=[10, 20, 30]))]
        turns.alerts.delivery.deliver()
        assert len(receiver.got) == 3
        turns = turns.restarted()
        assert turns.status().waiting == 3
        with receiving(port=port) as second:
            assert turns.alerts.delivery.deliver() == 3
            assert [got.headers["Idempotency-Key"] for got in second.got] == ids
        assert len(receiver.got) == 3
    assert left(tmp_path) == []


def test_a_note_that_is_cut_off_means_a_second_delivery_with_the_same_id(tmp_path: Path) -> None:
    with receiving() as receiver:
        turns = manual(tmp_path, receiver.url, also=f"http://127.0.0.1:{free_port()}/hook")
        (event,) = turns.turn(answers([1]))
        turns.alerts.delivery.deliver()
        (note,) = (tmp_path / "alerts").glob("*.taken")
        note.write_text(note.read_text()[:-9])
        turns.restarted().alerts.delivery.deliver()
        assert [got.headers["Idempotency-Key"] for got in receiver.got] == [event["id"]] * 2


def test_events_of_a_step_that_no_commit_knows_are_not_sent(tmp_path: Path) -> None:
    with receiving() as receiver:
        turns = manual(tmp_path, receiver.url)
        assert turns.turn(answers([1]), commit=False)
        turns = turns.restarted()
        assert turns.alerts.delivery.deliver() == 0
        assert left(tmp_path) == []
        assert turns.turn(answers([1]))
        assert turns.alerts.delivery.deliver() == 1
        assert receiver.values == [1]


def test_what_waits_goes_to_where_the_alert_points_now(tmp_path: Path) -> None:
    with receiving() as receiver:
        turns = manual(tmp_path, f"http://127.0.0.1:{free_port()}/wrong")
        raised(turns, 1, 2)
        turns.alerts.delivery.deliver()
        turns.change(catalog_of(alert("bytes > 0", url=receiver.url)))
        assert turns.alerts.delivery.deliver() == 2
        assert receiver.values == [1, -2]
        assert turns.status().trouble == ""
    assert left(tmp_path) == []


def test_what_a_dropped_alert_had_to_tell_is_told_nobody(tmp_path: Path) -> None:
    clock = Clock()
    with receiving(lambda got: Reply(500)) as receiver:
        turns = manual(tmp_path, receiver.url, clock)
        raised(turns, 1, 2)
        turns.alerts.delivery.deliver()
        turns.change(catalog_of())
        receiver.answer = lambda got: Reply()
        clock.passed = 1_000
        assert turns.alerts.delivery.deliver() == 0
        turns.change(catalog_of(alert("bytes > 0", url=receiver.url)))
        assert turns.alerts.delivery.deliver() == 0, "nor by another of its name"
        assert left(tmp_path) == []


def test_a_disk_that_takes_no_note_holds_up_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    both = [alert("bytes > 0"), alert("bytes > 0", name="b", url="http://127.0.0.1:9/b")]
    turns = Turns(tmp_path, catalog_of(*both))
    turns.turn(answers([1]))
    assert [turns.status(name).waiting for name in ("a", "b")] == [1, 1]

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Outbox, "_note", full)
    turns.change(catalog_of(both[1]))
    assert turns.status("b").waiting == 1, "it waits as before"
    assert "cannot note that nobody waits for an event: No space left on device" in caplog.text
    monkeypatch.undo()
    assert turns.restarted().status("b").waiting == 1


def test_an_outbox_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    turns = manual(tmp_path, "http://127.0.0.1:9/")
    raised(turns, 1)
    (path,) = (tmp_path / "alerts").glob("*.jsonl")
    path.write_text("{nonsense\n")
    with pytest.raises(StateError, match="delete the file to go on without them"):
        turns.restarted()


def test_group_keys_with_any_end_of_a_line_survive_a_restart(tmp_path: Path) -> None:
    hosts = ["a\u2028b", "a\u2029b", "a\x85b", "a\x1cb", "a\nb", "ä"]
    with receiving() as receiver:
        declared = catalog_of(alert("bytes > 0", on="q", url=receiver.url))
        turns = Turns(tmp_path, declared, clocks=Clock().clocks)
        assert len(turns.turn(answers([1] * len(hosts), query="q", hosts=hosts))) == len(hosts)
        turns = turns.restarted()
        assert turns.status().waiting == len(hosts)
        assert turns.alerts.delivery.deliver() == len(hosts)
        assert sorted(got.event["keys"]["host"] for got in receiver.got) == sorted(hosts)
    assert left(tmp_path) == []


def test_what_nobody_has_thought_of_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    with receiving() as receiver:
        turns = manual(tmp_path, receiver.url, clock)
        raised(turns, 1)
        with monkeypatch.context() as patch:
            patch.setattr(Webhook, "_post", _fails)
            assert turns.alerts.delivery.deliver() == 1
        said = f"http://127.0.0.1:{receiver.port} met with an unexpected RuntimeError"
        assert turns.status().trouble == said
        with monkeypatch.context() as patch:
            patch.setattr(turns.alerts.delivery.outbox, "took", _fails)
            clock.passed = 1
            assert turns.alerts.delivery.deliver() == 1
        assert turns.status().trouble == said
        raised(turns, 2)
        clock.passed = 2
        assert turns.alerts.delivery.deliver() == 1
        assert (receiver.values, turns.status().trouble) == ([1, -2], "")


def _fails(*given: object) -> None:
    raise RuntimeError("sesame")


# --- threads -------------------------------------------------------------------------------------


def test_a_slow_webhook_holds_up_no_other_and_no_turn(tmp_path: Path) -> None:
    with receiving(lambda got: Reply(hangs=True)) as slow, receiving() as quick:
        both = [alert("bytes > 0", url=slow.url), alert("bytes > 0", name="b", url=quick.url)]
        with threaded(tmp_path, *both) as turns:
            for value in range(1, 31):
                began = time.monotonic()
                turns.turn(answers([value if value % 2 else -value], ends=10 * value))
                assert time.monotonic() - began < 5
            wait_for(lambda: len(quick.got) == 30, seconds=30)
            assert [abs(v) for v in quick.values] == list(range(1, 31))
            assert len(slow.got) <= 1
            wait_for(lambda: turns.status("b").waiting == 0, seconds=30)
            assert turns.status("a").waiting == 30
            began = time.monotonic()
        assert time.monotonic() - began < 5, "what hangs is broken off"


def test_an_event_that_was_broken_off_is_sent_again_by_the_next_run(tmp_path: Path) -> None:
    with receiving(lambda got: Reply(hangs=True)) as receiver:
        with threaded(tmp_path, alert("bytes > 0", url=receiver.url)) as turns:
            raised(turns, 1)
            wait_for(lambda: len(receiver.got) == 1, seconds=30)
        receiver.answer = lambda got: Reply()
        again = turns.restarted()
        again.alerts.start()
        wait_for(lambda: again.status().waiting == 0, seconds=30)
        again.alerts.stop()
    first, second = receiver.got
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]


def test_threads_go_when_there_is_nothing_to_send_and_come_back(tmp_path: Path) -> None:
    def mine() -> list[str]:
        return [t.name for t in threading.enumerate() if t.name.startswith("slackwater-alerts")]

    with receiving() as receiver, threaded(tmp_path, alert("bytes > 0", url=receiver.url)) as turns:
        for count in (1, 2, 3):
            raised(turns, count)
            wait_for(lambda count=count: len(receiver.got) == count and not mine(), seconds=30)
        assert turns.status().waiting == 0


def test_a_failing_webhook_is_tried_again_by_its_thread(tmp_path: Path) -> None:
    replies = iter([Reply(503), Reply(hangs=True)])

    def answer(got: Got) -> Reply:
        return next(replies, Reply())

    with (
        receiving(answer) as receiver,
        threaded(tmp_path, alert("bytes > 0", url=receiver.url), timeout=0.2) as turns,
    ):
        raised(turns, 1, 2)
        wait_for(lambda: turns.status().waiting == 0, seconds=60)
        assert receiver.values == [1, 1, 1, -2]


def test_a_run_that_ends_waits_for_those_who_take_what_they_are_sent(tmp_path: Path) -> None:
    release = threading.Event()

    def answer(got: Got) -> Reply:
        release.wait(30)
        return Reply()

    with receiving(answer) as receiver:
        turns = Turns(tmp_path, catalog_of(alert("bytes > 0", url=receiver.url)))
        turns.alerts.start()
        raised(turns, 1, 2, 3)
        stopping = threading.Thread(target=turns.alerts.stop, args=(30,))
        stopping.start()
        release.set()
        stopping.join(30)
        assert not stopping.is_alive()
        assert receiver.values == [1, -2, 3]
    assert left(tmp_path) == []


def test_a_run_that_ends_does_not_wait_for_one_that_fails(tmp_path: Path) -> None:
    with receiving(lambda got: Reply(500)) as receiver:
        turns = Turns(tmp_path, catalog_of(alert("bytes > 0", url=receiver.url)))
        turns.alerts.start()
        raised(turns, 1)
        wait_for(lambda: turns.status().trouble != "", seconds=30)
        began = time.monotonic()
        turns.alerts.stop(60)
        assert time.monotonic() - began < 10


def test_dropping_an_alert_stops_a_thread_that_waits(tmp_path: Path) -> None:
    with (
        receiving(lambda got: Reply(404)) as receiver,
        threaded(tmp_path, alert("bytes > 0", url=receiver.url)) as turns,
    ):
        raised(turns, 1)
        wait_for(lambda: "404" in turns.status().trouble, seconds=30)
        (thread,) = [t for t in threading.enumerate() if t.name.startswith("slackwater-alerts")]
        turns.change(catalog_of())
        thread.join(30)
        assert not thread.is_alive()


def test_events_are_in_order_though_the_receiver_dies_and_comes_back(tmp_path: Path) -> None:
    port = free_port()
    seen: list[int] = []
    url = f"http://127.0.0.1:{port}/hook"

    def answer(got: Got) -> Reply:
        # of all receivers, since one that dies may take another event meanwhile
        seen.append(abs(got.event["value"]))
        return Reply()

    with threaded(tmp_path, alert("bytes > 0", url=url), timeout=2.0) as turns:
        for first in (1, 11, 21):
            with receiving(answer, port=port):
                raised(turns, *range(first, first + 10))
                goal = first + 9 if first == 21 else first + 2
                wait_for(lambda goal=goal: goal in seen, seconds=60)
    in_order = list(dict.fromkeys(seen))
    assert in_order == list(range(1, 31)), "all, in order; doubles may come where a connection broke"


def test_a_thread_outlives_what_nobody_has_thought_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    troubles = iter([RuntimeError("sesame"), KeyError("sesame")])
    real = Webhook._post

    def post(webhook: Webhook, body: bytes, id_: str) -> Outcome:
        for trouble in troubles:
            raise trouble
        return real(webhook, body, id_)

    monkeypatch.setattr(Webhook, "_post", post)
    with receiving() as receiver, threaded(tmp_path, alert("bytes > 0", url=receiver.url)) as turns:
        raised(turns, 1, 2)
        wait_for(lambda: turns.status().waiting == 0, seconds=60)
        assert receiver.values == [1, -2]


def test_a_thread_closes_its_connection_before_another_may_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Webhook.close
    mine: list[bool] = []

    with receiving() as receiver, threaded(tmp_path, alert("bytes > 0", url=receiver.url)) as turns:

        def close(webhook: Webhook) -> None:
            lane = turns.alerts.delivery._lanes[receiver.url]
            mine.append(lane.thread is threading.current_thread())
            real(webhook)

        monkeypatch.setattr(Webhook, "close", close)
        raised(turns, 1)
        wait_for(lambda: turns.status().waiting == 0 and bool(mine), seconds=30)
    assert all(mine), "the connection may be that of another thread"
