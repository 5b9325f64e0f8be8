"""A run whose hub has another log than the one that it has read, or a stream of another shape in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_clients import HOSTS, AgentClient, CoordinatorClient, TestClock
from slackwater.edge.agent import Agent
from slackwater.edge.coordinator_link import CoordinatorLink
from slackwater.edge.hub_thread import HubThread
from slackwater.edge.marks import Mark, identified
from slackwater.edge.messages import Declared, Fenced, OtherLog
from slackwater.errors import StateError
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.runtime.answers import Answer
from slackwater.runtime.session import Session
from slackwater.runtime.testing import ListSink
from slackwater.spark.agents_source import AgentsSource, open_agents
from waiting import wait_for

SECOND = 1_000_000
TOTAL = "CREATE QUERY total AS SELECT SUM(rx) AS v FROM LATEST(load) WITH PRECISION 1;"
BY_HOST = "CREATE QUERY q AS SELECT host, SUM(rx) AS v FROM LATEST(load) GROUP BY host WITH PRECISION 1;"
COUNTED = "CREATE QUERY e AS SELECT host, COUNT(*) AS n FROM load GROUP BY host, WINDOW(ts, '2 seconds');"


def load(url: str, host: str = "STRING", more: str = "") -> str:
    return f"""CREATE STREAM load (ts TIMESTAMP, host {host}, rx DOUBLE{more}) USING agents
      OPTIONS (hub '{url}', sums 'never') KEY host TIMESTAMP BY ts TOLERANCE 1 SECOND;"""


class Site:
    """A hub that can be stopped and given other directories, and whoever is connected to it."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder, self.spark = folder, spark
        self.clock = TestClock()
        self.port = 0
        self.hub = self.start()
        self.port = int(self.hub.url.rpartition(":")[2])
        self.agents: list[Agent] = []
        self.sessions: list[Session] = []

    def start(self) -> HubThread:
        self.hub = HubThread(self.folder / "hub", clock=self.clock, port=self.port)
        self.hub.__enter__()
        return self.hub

    def stop(self) -> None:
        self.hub.__exit__(None, None, None)

    def copy(self) -> None:
        """Keep the hub's directory as it is now."""
        shutil.copytree(self.folder / "hub", self.folder / "copy")

    def replace(self, how: str) -> None:
        """Have the hub come back with no directory, or with the copy."""
        self.stop()
        shutil.move(self.folder / "hub", self.folder / "away")
        if how == "restored":
            shutil.move(self.folder / "copy", self.folder / "hub")
        self.start()

    def agent(self, name: str) -> Agent:
        self.agents.append(Agent("load", hub=self.hub.url, name=name, clock=self.clock).start())
        wait_for(lambda: self.agents[-1].connected)
        return self.agents[-1]

    def run(self, sql: str, state: str = "state", *, fresh: bool = False) -> Driver:
        return Driver(self, sql, state, fresh=fresh)

    def source(self, sql: str) -> AgentsSource:
        return open_agents(self.spark, Catalog.from_sql(sql, Functions()).streams["load"])

    def close(self) -> None:
        for agent in self.agents:
            agent.stop(0.0)
        for session in self.sessions:
            session.stop()
        self.stop()


class Driver:
    """A session that takes batches when told to."""

    def __init__(self, site: Site, sql: str, state: str, *, fresh: bool) -> None:
        self._site = site
        self.answers: list[Answer] = []
        self.session = Session(site.spark, state=site.folder / state)
        self.session.sql(sql)
        self.session.start(ListSink(self.answers), manual=True, fresh=fresh)
        site.sessions.append(self.session)
        self._number = self.session.engine.state.streams["load"].batch + 1

    def take(self) -> None:
        """A batch of what is in the log by now."""
        engine = self.session.engine
        engine.batch("load", engine.executor.session.range(1), self._number)
        self._number += 1

    def batch(self, count: int = 1) -> None:
        """Batches with all that agents have to say."""
        for _ in range(count):
            self._site.clock.advance(2 * SECOND)
            for agent in self._site.agents:
                agent.review()
                assert agent.flush(20)
            self.take()
            engine = self.session.engine
            source: Any = engine.sources["load"]
            grants = [e for e in source._read[2] if e["kind"] == "grants"]
            if grants:
                # what was granted is heard before the next
                for agent in self._site.agents:
                    wait_for(lambda a=agent: a._state.applied > 0 or not a.connected)

    def last(self) -> dict[Any, tuple[float, float, bool]]:
        """The answers that stand, by query and group."""
        told = {(a.query, *(value for _, value in a.keys)): a for a in self.answers}
        return {key: (round(a.low, 3), round(a.high, 3), a.met) for key, a in told.items()}


@pytest.fixture
def site(spark: Any, tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, spark)
    yield made
    made.close()


def settled(site: Site) -> Driver:
    """A run that has answers, and a copy of the log from before the last of it."""
    driver = site.run(load(site.hub.url) + TOTAL)
    agent = site.agent("a")
    agent.update("x", 10.0)
    driver.batch(4)
    site.copy()
    for step in range(4):
        agent.update("x", 20.0 + 5 * step)
        driver.batch()
    low, high, met = driver.last()["total",]
    assert low <= 35.0 <= high
    assert met
    return driver


# --- runs


@pytest.mark.parametrize("how", ["moved", "restored"])
def test_a_run_does_not_go_on_with_another_log(site: Site, how: str) -> None:
    settled(site).session.stop()
    site.replace(how)
    site.agents[0].update("x", 5_000.0)
    with pytest.raises(OtherLog) as caught:
        site.run(load(site.hub.url) + TOTAL)
    for word in (site.hub.url, "'load'", "expected", "position", "got", "--fresh"):
        assert word in str(caught.value)
    driver = site.run(load(site.hub.url) + TOTAL, fresh=True)
    wait_for(lambda: site.agents[0].connected)
    driver.batch(4)
    low, high, met = driver.last()["total",]
    assert low <= 5_000.0 <= high
    assert met


@pytest.mark.parametrize("how", ["moved", "restored"])
def test_a_run_that_meets_another_log_says_so_and_nothing_else(site: Site, how: str) -> None:
    driver = settled(site)
    said = len(driver.answers)
    site.replace(how)
    site.agents[0].update("x", 5_000.0)
    site.clock.advance(2 * SECOND)
    with pytest.raises(OtherLog, match=r"does not have the log of stream 'load' that this run has read"):
        driver.take()
    assert len(driver.answers) == said


def test_a_batch_that_was_decided_keeps_to_its_log(site: Site) -> None:
    """Its record names the log: of another one nothing is read, however long that is."""
    source = site.source(load(site.hub.url) + TOTAL)
    offsets = source.offsets(0, None)
    assert source.entries(offsets)[-1]["kind"] == "declared"
    with pytest.raises(OtherLog, match="expected log 'other'"):
        source.entries({**offsets, "log": "other"})
    last: Any = offsets["last"]
    with pytest.raises(OtherLog, match=f"at position {last[0]} of log"):
        source.entries({**offsets, "last": [last[0], last[1] - 1]})
    # what an earlier version has kept says neither
    assert source.entries({name: offsets[name] for name in ("first", "end", "time")})
    source.link.close()


def test_reading_that_does_not_get_on_is_an_error(site: Site) -> None:
    source = site.source(load(site.hub.url) + TOTAL)
    end = source.link.end().position
    with pytest.raises(OtherLog, match=f"expected entries up to position {end + 5}, got none from {end} on"):
        source.entries({"first": 1, "end": end + 5})
    with pytest.raises(OtherLog, match=f"goes up to position {end + 5}, got one up to {end}"):
        source.offsets(1, {"first": 1, "end": end + 5})
    source.link.close()


def test_a_run_that_starts_over_needs_the_whole_log(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    source = site.source(load(site.hub.url) + TOTAL)
    monkeypatch.setattr(source, "_begin", 7)
    with pytest.raises(StateError, match=r"begins at position 7.*move the directory of the stream away"):
        source.offsets(0, None)
    end = source.link.end().position
    assert source.offsets(1, {"first": 1, "end": end})["first"] == end
    source.link.close()


# --- other shapes


@pytest.mark.parametrize(("old", "names"), [("DOUBLE", [1.0, 2.0]), ("STRING", ["x", "y", "z", "w"])])
def test_keys_of_another_type_are_other_keys(site: Site, old: str, names: list[Any]) -> None:
    driver = site.run(load(site.hub.url, old) + BY_HOST, "first")
    agent = site.agent("a")
    for name in names:
        agent.update(name, 100.0)
    driver.batch(3)
    site.agents.pop().stop()
    driver.session.stop()
    driver = site.run(load(site.hub.url, "BIGINT") + BY_HOST, "second")
    agent = site.agent("b")
    for name in (70, 80):
        agent.update(name, name / 10)
    driver.batch(4)
    standing = driver.last()
    assert set(standing) == {("q", 70), ("q", 80)}
    for (_, name), (low, high, met) in standing.items():
        assert low <= name / 10 <= high
        assert met


def test_rows_of_another_shape_are_no_rows_of_the_stream(site: Site) -> None:
    driver = site.run(load(site.hub.url) + BY_HOST + COUNTED, "first")
    agent = site.agent("a")
    for name in ("x", "y", "z"):
        agent.update(name, 100.0)
    driver.batch(3)
    site.agents.pop().stop()
    driver.session.stop()
    driver = site.run(load(site.hub.url, more=", tx DOUBLE") + BY_HOST + COUNTED, "second")
    agent = site.agent("b")
    for _ in range(4):
        for name in ("v", "w"):
            agent.update(name, {"rx": 1.0, "tx": 5.0})
        driver.batch()
    assert {key for key in driver.last() if key[0] == "q"} == {("q", "v"), ("q", "w")}
    assert {key[1] for key in driver.last() if key[0] == "e"} <= {"v", "w"}
    assert driver.session.engine.state.streams["load"].arrived > 0


def test_rows_are_those_of_the_declared_shape_wherever_batches_end(site: Site) -> None:
    """Numbers of keys count from each declaration on, and the same batch may be read again."""
    sql = load(site.hub.url) + COUNTED
    first = site.source(sql)
    with AgentClient(site.hub.url, "a", stream="load") as agent:
        agent.welcome()
        agent.keys("old", "older")
        agent.batch(1, {0: 1.0, 1: 2.0})
        agent.received(1)
    one = first.offsets(0, None)
    assert first._table(one)["host"].to_pylist() == ["old", "older"]
    whole_numbers = Declared(("host",), ("rx",), ("whole",))
    with (
        CoordinatorClient(site.hub.url, whole_numbers, stream="load"),
        AgentClient(site.hub.url, "b", stream="load") as agent,
    ):
        agent.welcome()
        agent.keys(7)
        agent.batch(1, {0: 3.0})
        agent.received(1)
    again = site.source(sql)
    with AgentClient(site.hub.url, "c", stream="load") as agent:
        agent.welcome()
        agent.keys("new", "newer", "newest")
        agent.batch(1, {2: 4.0})
        agent.received(1)
    whole = again.offsets(0, None)
    for _ in range(2):
        assert again._table(whole)["host"].to_pylist() == ["old", "older", "newest"]
        assert again._table(whole)["rx"].to_pylist() == [1.0, 2.0, 4.0]
    # a run that had read the first of it cannot go on: its keys are no more
    with pytest.raises(StateError, match=r"was declared anew since this run has read it.*--fresh"):
        again.offsets(1, one)
    first.link.close()
    again.link.close()


# --- links


def link_to(url: str) -> CoordinatorLink:
    return CoordinatorLink(url, "hosts", HOSTS, sleep=lambda _: None)


def written(hub: HubThread, agent: str, batches: int) -> None:
    with AgentClient(hub.url, agent) as client:
        client.welcome()
        client.keys(agent)
        for number in range(1, batches + 1):
            client.batch(number, {0: float(number)})
            client.received(number)


def test_a_hub_restored_from_a_copy_is_known_though_its_log_has_grown(tmp_path: Path) -> None:
    """Positions are given a second time: the last entry that was read is another one then."""
    clock = TestClock()  # which stands: the same times come twice too
    with HubThread(tmp_path / "hub", clock=clock) as hub:
        port = int(hub.url.rpartition(":")[2])
        link = link_to(hub.url)
        link.connect()
    shutil.copytree(tmp_path / "hub", tmp_path / "copy")
    with HubThread(tmp_path / "hub", port=port, clock=clock) as hub:
        written(hub, "x", 2)
        end = link.end().position
        entries, _ = link.read(1, end)
        mark = Mark(link.connect().log, end, identified(entries[-1]))
    with HubThread(tmp_path / "hub", port=port, clock=clock):
        # it is the same still
        assert link.end().position >= end
    with HubThread(tmp_path / "copy", port=port, clock=clock) as hub:
        written(hub, "y", 9)
        for _ in range(2):
            with pytest.raises(OtherLog, match=f"at position {mark.last[0]} of log"):
                link.end()
        other = link_to(hub.url)
        assert other.end().position > end
        with pytest.raises(OtherLog, match=f"at position {mark.last[0]} of log"):
            other.go_on(mark)


def test_a_log_without_the_grants_that_were_made_is_another_one(tmp_path: Path) -> None:
    from test_edge_agent import grant

    with HubThread(tmp_path / "hub") as hub:
        port = int(hub.url.rpartition(":")[2])
        link = link_to(hub.url)
        link.connect()
        written(hub, "x", 1)
        end = link.end().position
    shutil.copytree(tmp_path / "hub", tmp_path / "copy")
    with HubThread(tmp_path / "hub", port=port):
        link.end()
        grant(link, dict.fromkeys([0], 1.0))
        [position] = grant(link, {0: 2.0})
    assert position >= end
    expected = f"up to position {position + 1} at least"
    with HubThread(tmp_path / "copy", port=port), pytest.raises(OtherLog, match=expected):
        link.end()


@pytest.mark.parametrize("others", [0, 1, 2])
def test_a_log_begun_anew_is_no_other_coordinator(tmp_path: Path, others: int) -> None:
    """Whatever its generation is: none, the same by chance, or a later one."""
    with HubThread(tmp_path / "hub") as hub:
        port = int(hub.url.rpartition(":")[2])
        link = link_to(hub.url)
        log = link.connect().log
    with HubThread(tmp_path / "new", port=port) as hub:
        for _ in range(others):
            link_to(hub.url).connect()
        with pytest.raises(OtherLog, match=f"expected log '{log}'"):
            link.end()


def test_who_is_fenced_in_the_same_log_is_told_that(tmp_path: Path) -> None:
    with HubThread(tmp_path) as hub:
        port = int(hub.url.rpartition(":")[2])
        link = link_to(hub.url)
        link.connect()
    expected = "another run has taken over"
    with HubThread(tmp_path, port=port) as hub, link_to(hub.url), pytest.raises(Fenced, match=expected):
        link.end()


def test_errors_of_a_damaged_log_say_what_starts_over(tmp_path: Path) -> None:
    with HubThread(tmp_path) as hub:
        link_to(hub.url).connect()
    [snapshot] = (tmp_path / "hosts").glob("*.snapshot")
    snapshot.write_bytes(b"broken")
    with pytest.raises(StateError, match=f"move {tmp_path / 'hosts'} away.*started over with --fresh"):
        HubThread(tmp_path).__enter__()
