"""The demo's truth beside a slow reading of the same rows, and its agents."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from slackwater.edge.hub_thread import HubThread
from slackwater.runtime.answers import Answer
from slackwater.runtime.json_values import to_micros
from slackwater.terminal import demo_webhook
from slackwater.terminal.demo_agents import HOSTS, LOST, SERVICES, Fleet, History
from slackwater.terminal.demo_network import GUESTS, LOCAL, OFFICE, ROUTES, longest_prefix
from slackwater.terminal.demo_queues import DialledWalks
from slackwater.terminal.demo_traffic import DialledTraffic
from slackwater.terminal.demo_truth import queues_truth, traffic_truth, true_load
from slackwater.terminal.demo_webhook import Receiver
from waiting import wait_for

ORIGIN = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
SECOND = 1_000_000
SECONDS = 12


@pytest.fixture(scope="module")
def packets() -> DialledTraffic:
    made = DialledTraffic(ORIGIN, rate=800.0, pool=3_000)
    for second in range(SECONDS):
        made.turn(3.0 if 4 <= second < 8 else 1.0)
        made.slice(second, SECOND)
    return made


@pytest.fixture(scope="module")
def truth(packets: DialledTraffic) -> list[Answer]:
    return list(traffic_truth(packets, to_micros(ORIGIN) + SECONDS * SECOND + 300_000))


def rows(packets: DialledTraffic) -> list[dict[str, Any]]:
    return [row for n in range(SECONDS) for row in packets.slice(n, SECOND).to_pylist()]


def of_network(address: str) -> str:
    inside = [p for p in LOCAL if ip_address(address) in ip_network(p)]
    return max(inside, key=lambda p: ip_network(p).prefixlen)


def windows(truth: list[Answer], query: str, column: str) -> Iterator[tuple[datetime, datetime, Any]]:
    for answer in truth:
        if (answer.query, answer.column) == (query, column):
            assert answer.window_start is not None
            assert answer.window_end is not None
            yield answer.window_start, answer.window_end, answer.value


def test_every_query_of_the_packets_by_hand(packets: DialledTraffic, truth: list[Answer]) -> None:
    all_rows = rows(packets)
    for row in all_rows:
        row["network"] = of_network(row["dst"])

    def office(row: dict[str, Any]) -> bool:
        return bool(row["proto"] == "tcp" and row["network"] == OFFICE)

    def guests(row: dict[str, Any]) -> bool:
        return bool(row["proto"] == "udp" and row["network"] == GUESTS)

    by_hand = {
        ("all_traffic", "bytes", 2): lambda found: sum(r["size"] for r in found),
        ("all_traffic", "n", 2): len,
        ("office_bytes", "bytes", 5): lambda found: sum(r["size"] for r in found if office(r)),
        ("web_bytes", "bytes", 5): lambda found: sum(r["size"] for r in found if r["dport"] == 80),
        ("dns_spread", "sd", 5): lambda found: statistics.stdev(r["size"] for r in found if r["dport"] == 53),
        ("guest_senders", "senders", 1): lambda found: len({r["src"] for r in found if guests(r)}),
    }
    for (query, column, size), value in by_hand.items():
        seen = 0
        for start, end, found in windows(truth, query, column):
            inside = [r for r in all_rows if start <= r["ts"] < end]
            assert end - start == timedelta(seconds=size)
            assert found == pytest.approx(value(inside), rel=1e-12), (query, start)
            seen += 1
        assert seen == SECONDS, query


def test_windows_that_have_not_ended_are_left_out(packets: DialledTraffic) -> None:
    until = to_micros(ORIGIN) + 3 * SECOND + 999_999
    ends = [a.window_end for a in traffic_truth(packets, until) if a.window_end is not None]
    assert max(ends) == ORIGIN + timedelta(seconds=3)


def test_the_mean_of_all_routers_with_one_silent() -> None:
    queues = DialledWalks({"keys": "5", "seed": "3", "sigma": "1"}, ORIGIN)
    last: dict[str, float] = {}
    means = []
    for second in range(6):
        queues.silence(second in (2, 3))
        for row in queues.slice(second, SECOND).to_pylist():
            last[row["key"]] = row["value"]
        means.append(statistics.mean(last.values()))
    found = list(queues_truth(queues, to_micros(ORIGIN) + 5 * SECOND))
    assert [a.value for a in found] == pytest.approx(means)
    assert [a.at for a in found] == [ORIGIN + timedelta(seconds=n) for n in range(6)]


def test_the_longest_prefix_among_all_routes() -> None:
    find = longest_prefix(ROUTES)
    for number in range(1, 2_001, 37):
        address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        assert find(address) == of_network(address)
    assert find("10.16.3.9") == "10.16.3.0/24"
    assert find("11.0.0.1") is None


class SilentAgent:
    """An agent that keeps what it is told and counts time by itself."""

    made: list[SilentAgent] = []  # noqa: RUF012

    def __init__(self, stream: str, *, hub: str, name: str) -> None:
        self.name, self.values, self.stopped = name, {}, False
        self.time = 1_000
        SilentAgent.made.append(self)

    def start(self) -> SilentAgent:
        return self

    def update(self, key: tuple[str, str], value: float) -> int:
        assert not self.stopped
        self.values[key] = value
        self.time += 10
        return self.time

    def stop(self, timeout: float) -> bool:
        self.stopped = True
        return True


def test_a_host_that_is_lost_measures_nothing_and_comes_back_anew() -> None:
    SilentAgent.made.clear()
    fleet = Fleet("ws://127.0.0.1:1", make=SilentAgent)  # type: ignore[arg-type]
    fleet.measure()
    assert set(fleet.there) == set(HOSTS)
    before = len(fleet.histories[LOST, "web"].times)
    fleet.lose(LOST)
    fleet.measure()
    fleet.measure()
    assert LOST not in fleet.there
    assert len(fleet.histories[LOST, "web"].times) == before
    assert len(fleet.histories["rome", "web"].times) == before + 2
    fleet.lose()
    fleet.measure()
    assert [a.name for a in SilentAgent.made].count(LOST) == 2
    assert [a.stopped for a in SilentAgent.made if a.name == LOST] == [True, False]
    assert fleet.offered == sum(len(h.values) for h in fleet.histories.values())


def test_what_was_true_at_a_time() -> None:
    fleet = Fleet("ws://127.0.0.1:1")
    assert true_load(fleet, 50) is None
    for n, history in enumerate(fleet.histories.values()):
        history.note(10, 1.0)
        history.note(20 + n, 3.0)
    keys = len(HOSTS) * len(SERVICES)
    assert true_load(fleet, 9) is None
    assert true_load(fleet, 10) == keys
    assert true_load(fleet, 20) == keys + 2
    assert true_load(fleet, 10_000) == 3 * keys
    assert true_load(fleet, 21, HOSTS[0]) == len(SERVICES) + 4


def test_a_webhook_keeps_events_once_and_refuses_what_is_none() -> None:
    def post(receiver: Receiver, body: bytes) -> int:
        request = Request(f"{receiver.url}/office", data=body, method="POST")
        try:
            with urlopen(request, timeout=10) as response:
                return int(response.status)
        except HTTPError as error:
            error.close()
            return int(error.code)

    with Receiver() as receiver:
        for body in (b'{"id":"a","state":"raised"}', b'{"id":"a","state":"raised"}', b'{"id":"b"}'):
            assert post(receiver, body) == 204
        for body in (b"no JSON", b"[1]", b"{}", b'{"id":"' + b"x" * 70_000 + b'"}'):
            assert post(receiver, body) == 400
        assert receiver.events == [{"id": "a", "state": "raised"}, {"id": "b"}]


def test_real_agents_of_a_real_hub(tmp_path: Path) -> None:
    with HubThread(tmp_path) as hub, Fleet(hub.url, step=0.02) as fleet:
        wait_for(lambda: all(a.connected for a in fleet._agents.values()))
        assert set(fleet.there) == set(HOSTS)
        fleet.lose(LOST)
        wait_for(lambda: LOST not in fleet.there)
        fleet.lose()
        wait_for(lambda: LOST in fleet.there and fleet._agents[LOST].connected)
    assert all(history.times == sorted(history.times) for history in fleet.histories.values())


def test_a_history_holds_the_newest_values_and_no_more() -> None:
    history = History(keep=3)
    for moment in range(20):
        history.note(moment, float(moment))
        assert history.times[-3:] == list(range(max(0, moment - 2), moment + 1))
        assert len(history.times) == len(history.values) < 6
    assert history.count == 20


def test_a_webhook_keeps_the_newest_of_very_many_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_webhook, "EVENTS", 2)
    with Receiver() as receiver:
        for id_ in ("a", "b", "c", "c"):
            assert receiver.take(b'{"id":"%s"}' % id_.encode())
        assert receiver.events == [{"id": "b"}, {"id": "c"}]
