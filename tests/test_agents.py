"""Queries under PRECISION through SQL and Spark: real agents, a real hub, batches handed on one by one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_clients import SECOND, TestClock
from slackwater.edge.agent import Agent
from slackwater.edge.hub_thread import HubThread
from slackwater.edge.messages import Disconnected
from slackwater.edge.operator_link import OperatorLink
from slackwater.errors import SlackwaterError
from slackwater.runtime.answers import Answer
from slackwater.runtime.bounds.queries import TOLD
from slackwater.runtime.session import Session
from slackwater.runtime.sinks import JsonLinesSink
from slackwater.runtime.testing import ListSink
from waiting import wait_for

LOAD = """CREATE STREAM load (ts TIMESTAMP, host STRING, rx DOUBLE, tx DOUBLE)
  USING agents OPTIONS (hub '{hub}'{more}) KEY host TIMESTAMP BY ts TOLERANCE 1 SECOND{rate};"""


class Lab:
    """Agents, a hub and a session on one clock that goes on only when told to."""

    def __init__(self, spark: Any, folder: Path, sql: str, more: str = "", rate: str = "") -> None:
        self.clock = TestClock()
        self.spark = spark
        self.folder = folder
        self.hub = HubThread(folder / "hub", clock=self.clock)
        self.hub.__enter__()
        self.agents: dict[str, Agent] = {}
        self.costs: dict[str, float] = {}
        """By host: what a message of its agent costs, where it is not 1."""
        self.values: dict[str, tuple[float | None, float | None]] = {}
        self.truth: list[tuple[int, dict[str, tuple[float | None, float | None]]]] = []
        self.answers: list[Answer] = []
        self.granted: dict[str, int] = {}
        """By agent: the position of its newest grant."""
        self.sql = LOAD.format(hub=self.hub.url, more=more, rate=rate) + sql
        self.session = self._started()

    def _started(self, record: Path | None = None) -> Session:
        session = Session(self.spark, state=self.folder / "state")
        session.sql(self.sql)
        session.start(ListSink(self.answers), manual=True, record=record)
        self.number = session.engine.state.streams["load"].batch + 1
        source: Any = session.engine.sources["load"]
        grant = source.link.grant

        def granted(grants: Any) -> Any:
            found = grant(grants)
            mirror = session.engine.bounds["load"].mirror
            names = {seen.place: name for name, seen in mirror.agents.items()}
            for key, position in zip(grants.key.tolist(), found.position.tolist(), strict=True):
                self.granted[names[int(mirror.announced[key])]] = position
            return found

        source.link.grant = granted
        return session

    def agent(self, name: str) -> Agent:
        if name not in self.agents:
            self.agents[name] = Agent(
                "load", hub=self.hub.url, name=name, clock=self.clock, cost=self.costs.get(name, 1.0)
            ).start()
            wait_for(lambda: self.agents[name].connected)
        return self.agents[name]

    def say(self, host: str, rx: float | None, tx: float | None, agent: str = "") -> None:
        """A value, at the agent of its host, or at another."""
        self.values[host] = (rx, tx)
        self.agent(agent or host).update(host, {"rx": rx, "tx": tx})
        self.truth.append((self.clock(), dict(self.values)))

    def batch(self, micros: int = 2 * SECOND) -> list[Answer]:
        """Let time pass and everything be sent, then hand one batch to the engine; its answers."""
        for agent in self.agents.values():
            agent.review()
            assert agent.flush(20)
        self.clock.advance(micros)
        for agent in self.agents.values():
            agent.review()
            assert agent.flush(20)
        before = len(self.answers)
        engine = self.session.engine
        engine.batch("load", engine.executor.session.range(1), self.number)
        self.number += 1
        for host, agent in self.agents.items():
            # what was granted in this batch is heard before the next
            wait_for(lambda a=agent, h=host: a._state.applied >= self.granted.get(h, 0))
        return self.answers[before:]

    def settle(self, batches: int = 4) -> None:
        """Let grants go down and first values come up."""
        for _ in range(batches):
            self.batch()

    def restart(self, record: Path | None = None) -> None:
        """Another driver with the same state."""
        self.session.stop()
        self.session = self._started(record)

    def lose(self, host: str) -> None:
        """An agent that stops."""
        self.agents.pop(host).stop()
        wait_for(lambda: self._link_status()["agents"] == len(self.agents))

    def _link_status(self) -> dict[str, Any]:
        source: Any = self.session.engine.sources["load"]
        return source.link.status()

    def close(self) -> None:
        for agent in self.agents.values():
            agent.stop()
        self.session.stop()
        self.hub.__exit__(None, None, None)

    def widths(self, hosts: int) -> list[float]:
        mirror = self.session.engine.bounds["load"].mirror
        return mirror.belief.widths(slice(None), self.clock()).tolist()[: 2 * hosts]


@pytest.fixture
def lab(spark: Any, tmp_path: Path) -> Iterator[Any]:
    made: list[Lab] = []

    def make(sql: str, **options: str) -> Lab:
        made.append(Lab(spark, tmp_path, sql, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def held(lab: Lab, answer: Answer, truth: Any) -> bool:
    """Whether an answer holds of what was true at its time."""
    at = int(answer.at.timestamp() * 1e6 + 0.5)
    moment = [values for time, values in lab.truth if time <= at][-1]
    return answer.low <= truth(moment) <= answer.high


def test_intervals_hold_and_are_as_narrow_as_asked(lab: Any) -> None:
    one = lab("""CREATE QUERY all AS SELECT SUM(rx - 0.5 * tx) AS net, COUNT(*) AS hosts, MAX(rx) AS top
                 FROM LATEST(load) WITH PRECISION 4;
                 CREATE QUERY mean AS SELECT AVG(rx) AS mean FROM LATEST(load) WITH PRECISION 1;""")
    for n in range(4):
        one.say(f"h{n}", 10.0 + n, 4.0)
    one.settle()
    for step in range(40):
        one.say(f"h{step % 4}", 10 + step % 4 + 0.3 * step * (-1) ** step, 4 + 0.1 * step)
        one.batch(SECOND)
    one.batch(2 * SECOND)
    whole = [a for a in one.answers if a.rows == 4]
    truths = {
        "net": lambda v: sum(rx - 0.5 * tx for rx, tx in v.values()),
        "hosts": lambda v: len(v),
        "top": lambda v: max(rx for rx, _ in v.values()),
        "mean": lambda v: sum(rx for rx, _ in v.values()) / len(v),
    }
    assert {a.column for a in whole} == set(truths)
    for answer in whole:
        assert held(one, answer, truths[answer.column]), answer
        width = {"net": 4, "top": 4, "hosts": 0, "mean": 1}[answer.column]
        assert answer.how == "bounded"
        assert answer.met
        assert answer.high - answer.low <= width
    # the filters do filter: not every row was sent
    assert one.session.engine.bounds["load"].mirror.queue.rows < len(one.truth)


def test_one_query_for_each_path_over_routers(lab: Any, spark: Any, tmp_path: Path) -> None:
    paths = [(1, "h0"), (1, "h1"), (2, "h1"), (2, "h2"), (2, "h3")]
    spark.createDataFrame(paths, "path INT, host STRING").coalesce(1).write.parquet(str(tmp_path / "paths"))
    one = lab(f"""CREATE TABLE paths (path INT, host STRING) USING parquet OPTIONS (path '{tmp_path}/paths');
                  CREATE QUERY latency AS SELECT path, SUM(rx) AS latency FROM LATEST(load) JOIN paths USING (host)
                  GROUP BY path WITH PRECISION 6;""")
    for n in range(5):
        one.say(f"h{n}", float(n), 0.0)
    one.settle()
    for step in range(20):
        one.say(f"h{step % 5}", step % 5 + step * 0.4, 0.0)
        one.batch(SECOND)
    one.batch(2 * SECOND)
    last = {a.group["path"]: a for a in one.answers}
    now = one.truth[-1][1]
    for path in (1, 2):
        truth = sum(now[host][0] for p, host in paths if p == path)
        assert last[path].low <= truth <= last[path].high
        assert last[path].high - last[path].low <= 6
        assert last[path].met
    # h4 is on no path, and nobody reads tx: nothing of them is sent
    widths = one.widths(5)
    assert widths[8] == widths[9] == widths[1] == float("inf")
    assert widths[0] + widths[2] <= 6
    assert widths[2] + widths[4] + widths[6] <= 6


def test_explain_shows_widths_and_messages(lab: Any) -> None:
    one = lab("CREATE QUERY total AS SELECT SUM(rx) AS total FROM LATEST(load) WITH PRECISION 8;")
    for n in range(4):
        one.say(f"h{n}", float(n), 0.0)
    one.settle()
    (text,) = one.session.sql("EXPLAIN QUERY total")
    assert "agents of load: 4 of 4 there, 4 keys" in text
    assert "0 of 4 rows late" in text
    assert "total.total: widths 2 to 2, half of them up to 2, 8 of 8 used" in text
    assert text.splitlines()[-2:] == one.session.explain().splitlines()[-2:]


def test_a_dear_agent_has_the_wider_bounds_and_explain_says_what_it_costs(lab: Any) -> None:
    one = lab(
        "CREATE QUERY total AS SELECT SUM(rx) AS total FROM LATEST(load) WITH PRECISION 8;",
        more=", period '2 seconds'",
    )
    one.costs["h1"] = 25.0
    for n in range(2):
        one.say(f"h{n}", 0.0, 0.0)
    one.settle()
    rng = np.random.default_rng(7)
    values = [0.0, 0.0]
    for _ in range(60):
        for n in range(2):
            values[n] += rng.normal(0, 1)
            one.say(f"h{n}", values[n], 0.0)
        one.batch(SECOND)
    cheap, dear = one.widths(2)[::2]
    assert dear > 1.5 * cheap
    (text,) = one.session.sql("EXPLAIN QUERY total")
    assert "a message costs 1, of h1 25" in text


def test_values_are_counted_exactly_and_need_no_width(lab: Any) -> None:
    one = lab("""CREATE QUERY some AS SELECT COUNT(rx) AS told, SUM(tx) AS total, SUM(tx) / COUNT(rx) AS each
                 FROM LATEST(load) WITH PRECISION 4;""")
    for n in range(3):
        one.say(f"h{n}", float(n), 2.0)
    one.settle()
    last = {a.column: a for a in one.answers}
    assert (last["told"].low, last["told"].high, last["told"].met) == (3, 3, True)
    # as under every contract: 3, not 3.0
    assert [type(n) for n in (last["told"].value, last["told"].low, last["each"].value)] == [int, int, float]
    assert '"value":3,"low":3,"high":3,' in last["told"].to_json_line()
    # only whether it has a value is told of what is only counted
    assert min(one.widths(3)[::2]) == TOLD
    assert sum(one.widths(3)[1::2]) <= 4
    before = one.session.engine.bounds["load"].mirror.queue.rows
    one.say("h0", 1e12, 2.0)
    one.batch()
    assert one.session.engine.bounds["load"].mirror.queue.rows == before
    one.say("h1", None, 2.0)
    last |= {a.column: a for a in one.batch() + one.batch()}
    assert (last["told"].low, last["told"].high, last["told"].met) == (2, 2, True)
    assert last["each"].low <= 3 <= last["each"].high
    assert last["each"].met
    # a query that needs their values gets widths for them
    one.session.sql("CREATE QUERY sum AS SELECT SUM(rx + tx) AS sum FROM LATEST(load) WITH PRECISION 6")
    one.settle()
    assert max(one.widths(3)) <= 6
    assert min(one.widths(3)[::2]) > 0.1
    one.lose("h2")
    last |= {a.column: a for a in one.batch() + one.batch()}
    # it may have gone meanwhile
    assert (last["told"].low, last["told"].met) == (None, False)


def test_keys_that_are_gone_count_no_longer(lab: Any) -> None:
    one = lab("""CREATE QUERY all AS SELECT COUNT(*) AS hosts, COUNT(rx) AS told, SUM(rx) AS total
                 FROM LATEST(load) WITH PRECISION 6;""")
    for n in range(3):
        one.say(f"h{n}", 10.0, 1.0)
    one.agent("h0").update("h3", {"rx": None, "tx": None})
    one.settle()
    last = {a.column: a for a in one.answers}
    # that it has no value is known, and it is there
    assert (last["hosts"].low, last["told"].low, last["hosts"].met) == (4, 3, True)
    (text,) = one.session.sql("EXPLAIN QUERY all")
    assert "all.told: counted, whatever the widths" in text
    assert one.agent("h0").withdraw("h3")
    assert one.agent("h0").withdraw("h0")
    last |= {a.column: a for a in one.batch() + one.batch()}
    assert (last["hosts"].low, last["told"].low) == (2, 2)
    assert last["total"].low <= 20 <= last["total"].high
    one.lose("h1")
    last |= {a.column: a for a in one.batch() + one.batch()}
    assert (last["total"].low, last["total"].met) == (None, False)
    with OperatorLink(one.hub.url, "load") as operator:
        assert operator.withdraw("h1") == (1, False)
    last |= {a.column: a for a in one.batch() + one.batch()}
    assert (last["hosts"].low, last["told"].low, last["total"].met) == (1, 1, True)
    assert last["total"].low <= 10 <= last["total"].high
    # a driver that starts again knows it, and whoever is back counts
    one.restart()
    one.say("h0", 30.0, 1.0)
    one.say("h1", 20.0, 1.0)
    one.settle(3)
    last |= {a.column: a for a in one.answers}
    assert (last["hosts"].low, last["total"].met) == (3, True)
    assert last["total"].low <= 60 <= last["total"].high


def test_a_tighter_precision_narrows_and_a_looser_one_grows(lab: Any) -> None:
    one = lab("CREATE QUERY total AS SELECT SUM(rx) AS total FROM LATEST(load) WITH PRECISION 8;")
    for n in range(4):
        one.say(f"h{n}", float(n), 0.0)
    one.settle()
    assert sum(one.widths(4)[::2]) == pytest.approx(8, rel=1e-3)
    one.session.sql("ALTER QUERY total WITH PRECISION 2 IMMEDIATE")
    one.settle(3)
    assert sum(one.widths(4)[::2]) <= 2
    one.say("h0", 9.0, 0.0)
    answers = one.batch() + one.batch()
    assert answers[-1].met
    assert answers[-1].high - answers[-1].low <= 2
    one.session.sql("ALTER QUERY total WITH PRECISION 100")
    one.say("h0", 50.0, 0.0)
    answers = one.batch() + one.batch()
    assert answers[-1].met
    one.session.sql(
        "DROP QUERY total; CREATE QUERY least AS SELECT MIN(rx) AS least FROM LATEST(load) WITH PRECISION 3"
    )
    one.settle(3)
    assert one.widths(4)[::2] == pytest.approx([3.0] * 4, rel=1e-3)


def test_an_exact_query_beside_it_has_every_row_sent(lab: Any) -> None:
    one = lab(
        """CREATE QUERY total AS SELECT SUM(rx) AS total FROM LATEST(load) WITH PRECISION 8;
           CREATE QUERY each AS SELECT host, rx FROM LATEST(load) WITH EXACT;""",
        more=", allocation 'uniform'",
    )
    for n in range(2):
        one.say(f"h{n}", float(n), 0.0)
    one.settle()
    assert one.widths(2) == [0.0] * 4
    before = one.session.engine.bounds["load"].mirror.queue.rows
    for step in range(5):
        one.say("h0", 0.1 * step + 1, 0.0)
    one.batch()
    assert one.session.engine.bounds["load"].mirror.queue.rows == before + 5
    one.session.sql("DROP QUERY each")
    one.settle(8)
    assert sum(one.widths(2)[::2]) == pytest.approx(8, rel=1e-3)
    one.session.sql("CREATE QUERY each AS SELECT host, rx FROM LATEST(load) WITH EXACT")
    one.settle()
    assert one.widths(2) == [0.0] * 4


def test_an_agent_that_is_lost_is_not_vouched_for(lab: Any) -> None:
    one = lab("CREATE QUERY total AS SELECT SUM(rx) AS total FROM LATEST(load) WITH PRECISION 8;")
    for n in range(2):
        one.say(f"h{n}", float(n), 0.0)
    one.settle()
    keeper = one.session.engine.bounds["load"]
    assert keeper.shown().widths[0].used == pytest.approx(8, rel=1e-3)
    one.lose("h1")
    answers = one.batch() + one.batch()
    assert [(a.value, a.low, a.high, a.met) for a in answers][-1] == (None, None, None, False)
    # of what has no interval no width is told
    assert keeper.shown().widths[0].used is None
    assert any(", – of 8 used" in line for line in keeper.described())
    one.say("h1", 7.0, 0.0)
    one.settle(3)
    last = one.answers[-1]
    assert last.met
    assert last.low <= 7.0 <= last.high
    assert keeper.shown().widths[0].used == pytest.approx(8, rel=1e-3)


def test_a_driver_that_starts_again_goes_on(lab: Any) -> None:
    query = "CREATE QUERY total AS SELECT SUM(rx) AS total FROM LATEST(load) WITH PRECISION 8;"
    one = lab(query, more=", allocation 'uniform'")
    for n in range(3):
        one.say(f"h{n}", float(n), 0.0)
    one.settle()
    widths, before = one.widths(3), list(one.answers)
    one.restart()
    one.say("h0", 50.0, 0.0)
    after = one.batch() + one.batch()
    assert one.widths(3) == widths
    assert [a for a in after if a in before] == []
    assert after[-1].met
    assert after[-1].low <= 53.0 <= after[-1].high
    # the one that was there before may grant nothing any more
    assert one.session.engine.bounds["load"]._source.link.generation == 2


def test_a_run_waits_for_its_hub_and_can_be_stopped_meanwhile(
    lab: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one = lab("CREATE QUERY total AS SELECT SUM(rx) AS total FROM LATEST(load) WITH PRECISION 8;")
    one.say("h0", 1.0, 0.0)
    one.settle()
    engine, port = one.session.engine, int(one.hub.url.rpartition(":")[2])
    ended: list[BaseException | None] = []

    def batch() -> None:
        try:
            engine.batch("load", engine.executor.session.range(1), one.number)
            ended.append(None)
        except Disconnected as error:
            ended.append(error)

    def waiting() -> threading.Thread:
        """A batch that finds no hub."""
        caplog.clear()
        one.hub.crash()
        thread = threading.Thread(target=batch)
        thread.start()
        wait_for(lambda: "trying again" in caplog.text)
        assert thread.is_alive()
        return thread

    thread = waiting()
    one.hub = HubThread(one.folder / "hub", clock=one.clock, port=port)
    one.hub.__enter__()
    thread.join(60)
    assert ended == [None]
    one.number += 1
    thread = waiting()
    one.session.stop()
    thread.join(60)
    assert isinstance(ended[1], Disconnected)


def test_with_a_largest_rate_answers_speak_of_now(lab: Any) -> None:
    one = lab(
        "CREATE QUERY total AS SELECT SUM(rx) AS total FROM LATEST(load) WITH PRECISION 8;",
        rate=" MAX RATE 0.5 PER SECOND",
    )
    for n in range(2):
        one.say(f"h{n}", float(n), 0.0)
    one.settle()
    # each bound is padded by twice the rate times the tolerance: that much less is granted
    assert sum(one.widths(2)[::2]) <= 8 - 2 * 2 * 0.5
    one.say("h0", 9.0, 0.0)
    said = one.clock()
    answer = one.batch(0)[-1]
    assert int(answer.at.timestamp() * 1e6 + 0.5) == said
    assert answer.met
    assert answer.low <= 10.0 <= answer.high
    assert answer.high - answer.low <= 8
    one.lose("h1")
    one.batch()
    # nothing is heard, and it may have gone further at every period: answers say so
    period, before = 10 * SECOND, one.answers[-1]
    wider = one.batch(period) + one.batch(2 * period)
    times = [int(a.at.timestamp() * 1e6 + 0.5) for a in wider]
    assert len(times) == 3
    assert all(at % period == 0 for at in times)
    widths = [a.high - a.low for a in (before, *wider)]
    assert widths[2] - widths[1] == pytest.approx(2 * 0.5 * 10)
    assert sorted(widths) == widths
    assert not wider[-1].met
    # once it is back they do not
    one.say("h1", 1.0, 0.0)
    one.settle(3)
    assert one.answers[-1].met
    assert one.batch(5 * period) == []


def test_late_is_what_comes_after_the_tolerance(lab: Any) -> None:
    one = lab("CREATE QUERY total AS SELECT SUM(rx) AS rx FROM LATEST(load) WITH PRECISION 2;")
    one.say("h0", 1.0, 0.0)
    one.say("h1", 1.0, 0.0)
    one.settle()
    one.say("h0", 50.0, 0.0)
    one.batch(SECOND // 10)
    # behind the newest row, as LATENESS would have it, and waited for all the same
    one.agent("h1").update("h1", {"rx": 50.0}, at=one.clock() - SECOND // 2)
    one.batch()
    assert one.session.engine.state.streams["load"].late == 1
    (status,) = one.session.status().streams
    assert status.late == 0
    # a query that heeds LATENESS has it counted so
    one.session.sql("CREATE QUERY all AS SELECT SUM(rx) AS rx FROM LATEST(load) WITH EXACT")
    one.batch()
    one.batch()
    (status,) = one.session.status().streams
    assert status.late == 1


WRONG = {
    "no hub": ("USING agents KEY host", ["option hub is missing", "ws://"]),
    "option": (
        "USING agents OPTIONS (hub 'ws://x:1', alocation 'curves') KEY host",
        ["no option alocation", "allocation"],
    ),
    "allocation": (
        "USING agents OPTIONS (hub 'ws://x:1', allocation 'best') KEY host",
        ["curves, burden, uniform", "'best'"],
    ),
    "shrink": (
        "USING agents OPTIONS (hub 'ws://x:1', shrink '200%') KEY host",
        ["a share such as 5%", "'200%'"],
    ),
    "period": ("USING agents OPTIONS (hub 'ws://x:1', period 'often') KEY host", ["period", "often"]),
    "no key": ("USING agents OPTIONS (hub 'ws://x:1')", ["KEY"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_is_said(spark: Any, case: str) -> None:
    using, expected = WRONG[case]
    session = Session(spark)
    sql = f"CREATE STREAM load (ts TIMESTAMP, host STRING, rx DOUBLE) {using} TIMESTAMP BY ts;"
    query = "CREATE QUERY q AS SELECT SUM(rx) AS s FROM LATEST(load) WITH PRECISION 1;"

    def declared() -> None:
        session.sql(sql + query)
        session.check()

    with pytest.raises(SlackwaterError) as raised:
        declared()
    for text in expected:
        assert text in str(raised.value)


def test_an_agent_with_many_keys_tells_their_sums(lab: Any) -> None:
    one = lab(
        "CREATE QUERY whole AS SELECT SUM(rx) AS rx, COUNT(*) AS hosts FROM LATEST(load) WITH PRECISION 8;"
        "CREATE QUERY part AS SELECT AVG(rx) AS rx FROM LATEST(load) WHERE host < 'h3' WITH PRECISION 1;"
    )
    for turn in range(9):
        for host in range(6):
            one.say(f"h{host}", 10.0 * host + turn % 2, float(turn), agent="gateway")
        one.batch()
    mirror = one.session.engine.bounds["load"].mirror
    # what both queries read, and what one of them does
    assert sorted(s.members.tolist() for s in mirror.belief.live.values()) == [[0, 1, 2], [3, 4, 5]]
    hosts = [name[0] for name in mirror.names if isinstance(name, list)]
    assert hosts == [f"h{host}" for host in range(6)]
    told = [line for line in one.session.engine.bounds["load"].described() if "sums" in line]
    assert told == ["  sums of 6 keys are told in their place: 2 by group"]
    # what is told of sums is no row of the stream, and is counted all the same
    (status,) = one.session.status().streams
    assert status.updates == mirror.queue.rows > status.rows
    # what is said of one query is said of no other
    (text,) = one.session.sql("EXPLAIN QUERY part")
    assert "agents of load: 1 of 1 there, 6 keys" in text
    assert "part.rx: widths" in text
    assert "whole.rx" not in text
    assert all(name in one.session.explain() for name in ("part.rx", "whole.rx"))
    assert all(name in one.session.explain(name="load") for name in ("part.rx", "whole.rx"))
    for answer in one.answers:
        assert answer.met or answer.low is None, answer
        if answer.query == "whole" and answer.column == "rx" and answer.low is not None:
            assert held(one, answer, lambda values: sum(rx for rx, _ in values.values())), answer
        if answer.query == "part" and answer.low is not None:
            assert held(one, answer, lambda values: sum(values[f"h{h}"][0] for h in range(3)) / 3), answer
    # one that has no value any more counts no longer, which is told though the sum is in its bound
    one.agents["gateway"].update("h0", {"rx": None})
    one.values["h0"] = (0.0, 0.0)
    found = one.batch() + one.batch()
    last = [a for a in found if a.query == "part"][-1]
    assert last.low is not None
    assert last.low <= (one.values["h1"][0] + one.values["h2"][0]) / 2 <= last.high
    one.restart()
    one.say("h5", 500.0, 0.0, agent="gateway")
    found = one.batch() + one.batch()
    assert len(one.session.engine.bounds["load"].mirror.belief.live) == 2
    assert any(a.query == "whole" and a.low is not None and a.low > 500 for a in found)


def test_agents_tell_means_where_a_window_is_all_that_is_asked_for(lab: Any) -> None:
    one = lab(
        "CREATE QUERY calm AS SELECT avg_over(SUM(rx), '8 seconds') AS rx FROM LATEST(load) WITH PRECISION 4;"
    )
    for second in range(36):
        for host in range(3):
            # much happens at every moment, and on average nothing
            one.say(f"h{host}", 10.0 * host + 50.0 * (-1) ** second, 0.0)
        one.batch(SECOND)
    mirror = one.session.engine.bounds["load"].mirror
    assert {s.window for s in mirror.belief.live.values()} == {8 * SECOND}
    assert one.session.engine.bounds["load"].queries[0].ready
    rows = mirror.queue.rows
    for second in range(36, 48):
        for host in range(3):
            one.say(f"h{host}", 10.0 * host + 50.0 * (-1) ** second, 0.0)
        one.batch(SECOND)
    # of 36 values none had to be told
    assert mirror.queue.rows == rows
    last = [a for a in one.answers if a.low is not None][-1]
    assert last.met
    assert last.low <= 30.0 <= last.high
    found = [line for line in one.session.engine.bounds["load"].described() if "means" in line]
    assert found == ["  means of 3 keys over 8 s are told instead of what they are at every moment"]
    one.restart()
    one.say("h2", 1000.0, 0.0)
    found = [a for _ in range(10) for a in one.batch(SECOND)]
    assert any(a.low is not None and a.low > 200 for a in found)


def test_a_run_that_begins_on_a_hub_with_a_past_speaks_of_now(lab: Any) -> None:
    one = lab("CREATE QUERY whole AS SELECT SUM(rx) AS rx FROM LATEST(load) WITH PRECISION 1;")
    for turn in range(6):
        one.say("h0", 10.0 * turn, 0.0)
        one.say("h1", 1.0, 0.0)
        one.batch()
    assert len(one.answers) > 3
    one.session.stop()
    one.folder = one.folder / "another"
    one.folder.mkdir()
    one.answers.clear()
    began = one.clock()
    one.session = one._started()
    for _ in range(3):
        one.batch()
    assert one.answers
    assert min(a.at.timestamp() * 1e6 for a in one.answers) >= began - SECOND
    last = one.answers[-1]
    assert last.met
    assert last.low <= 51.0 <= last.high


EVERYTHING = """CREATE QUERY n AS SELECT COUNT(*) AS n FROM load GROUP BY window(ts, '5 seconds') WITH EXACT;
                CREATE QUERY now AS SELECT SUM(rx) AS rx FROM LATEST(load) WITH EXACT;"""


@pytest.mark.parametrize("how", ["live", "anew"])
def test_what_needs_every_row_begins_when_every_row_is_sent(lab: Any, how: str) -> None:
    one = lab("CREATE QUERY wide AS SELECT SUM(rx) AS rx FROM LATEST(load) WITH PRECISION 1000;")

    def step(n: int) -> None:
        one.say(f"h{n % 3}", float(n), 0.0)
        one.batch(SECOND)

    for n in range(16):
        step(n)
    assert one.session.engine.bounds["load"].mirror.queue.rows < 14, "some of it is filtered"
    if how == "live":
        one.session.sql(EVERYTHING)
    else:
        # another run, which reads all of the log
        one.session.stop()
        one.folder, one.sql = one.folder / "other", one.sql + EVERYTHING
        one.session = one._started()
    for n in range(16, 50):
        step(n)
    windows = [a for a in one.answers if a.query == "n"]
    assert len(windows) >= 4
    for answer in windows:
        start, end = (round(t.timestamp() * 1e6) for t in (answer.window_start, answer.window_end))
        assert answer.value == sum(start <= at < end for at, _ in one.truth), answer
    ticks = [a for a in one.answers if a.query == "now"]
    assert ticks[-1].met
    for answer in ticks:
        at = round(answer.at.timestamp() * 1e6)
        moment = [values for time, values in one.truth if time <= at][-1]
        assert not answer.met or answer.value == sum(rx for rx, _ in moment.values()), answer


def test_a_run_whose_answers_cannot_be_written_takes_nothing_over(lab: Any) -> None:
    one = lab("CREATE QUERY all AS SELECT SUM(rx) AS rx FROM LATEST(load) WITH PRECISION 4;")
    one.say("h0", 1.0, 1.0)
    one.settle()
    file = one.folder / "answers.jsonl"
    file.write_text("{}\n")
    other = Session(one.spark, state=one.folder / "other")
    other.sql(one.sql)
    with pytest.raises(SlackwaterError, match="already holds 3 bytes"):
        other.start(JsonLinesSink(file), manual=True)
    one.say("h0", 50.0, 1.0)
    assert [a.met for a in one.batch() + one.batch() if a.value is not None][-1]


def test_a_recorded_run_goes_on_after_a_restart(lab: Any) -> None:
    one = lab("CREATE QUERY n AS SELECT COUNT(*) AS n FROM load GROUP BY window(ts, '5 seconds') WITH EXACT;")
    for first in (0, 14):
        one.restart(record=one.folder / "recording")
        for n in range(first, first + 14):
            one.say(f"h{n % 3}", float(n), 0.0)
            one.batch(SECOND)
    windows = [a for a in one.answers if a.query == "n"]
    assert len(windows) >= 3
    for answer in windows:
        start, end = (round(t.timestamp() * 1e6) for t in (answer.window_start, answer.window_end))
        assert answer.value == sum(start <= at < end for at, _ in one.truth), answer
