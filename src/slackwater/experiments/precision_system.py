"""Agents, the hub's registry, coordinator and evaluator as they run, but for sockets, disk and Spark.

Time goes in steps of a second; a message takes none. Everything that a running system decides is decided by
its own code: which sums agents make, who has which width, when either changes. Each message is counted, and
each answer is held against the truth at its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.edge.agent_state import AgentState
from slackwater.edge.batches import batch_fields
from slackwater.edge.messages import Declared
from slackwater.edge.registry import Registry
from slackwater.edge.widths import Grants
from slackwater.plan.adjusting import Adjusting, adjusting
from slackwater.plan.bounded import bounded_form
from slackwater.plan.catalog import Catalog
from slackwater.plan.current import CurrentPlan, CurrentStep
from slackwater.plan.functions import Functions
from slackwater.planners.precision_constraints import Floats
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.bounds.coordinator import Coordinator
from slackwater.runtime.bounds.evaluating import Evaluator
from slackwater.runtime.bounds.mirror import Mirror
from slackwater.runtime.bounds.queries import BoundedQuery
from slackwater.runtime.bounds.summing import Order, Summing
from slackwater.runtime.current.matrix import Matrix

SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND
SHAPE = Declared(("k",), ("v",))
STREAM = """CREATE STREAM walks (ts TIMESTAMP, k INT, v DOUBLE)
  USING agents OPTIONS (hub 'ws://none', sums '{sums}', period '{period} seconds') KEY k TIMESTAMP BY ts;"""
WHEN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Total:
    """A query: the sum of some keys, within a width."""

    keys: tuple[int, ...]
    within: float


@dataclass
class Told:
    """What was sent, by step, and what answers were worth."""

    messages: list[int] = field(default_factory=list)
    by_query: list[int] = field(default_factory=list)
    """Sums for one query alone that are in use."""
    answers: int = 0
    violations: int = 0


class System:
    """Some agents, each with keys of its own, and queries over them."""

    def __init__(
        self, agents: Sequence[Sequence[int]], queries: Sequence[Total], *, sums: str, period: int = 10
    ) -> None:
        self._keys = [list(keys) for keys in agents]
        self._asked = list(queries)
        self.told = Told()
        self._now, self._sent = BEGIN, 0
        self._truth: dict[int, Floats] = {}
        self._registry, self._end = Registry(), 1
        self._unread: list[dict[str, Any]] = []
        self._append("declared", **SHAPE.message())
        self._agents = [AgentState(outbox_limit=100_000) for _ in agents]
        for place, state in enumerate(self._agents):
            self._append("joined", agent=str(place), incarnation=state.incarnation, keys=0)
            welcome = {"received": 0, "keys": 0, "log": "one", "declared": SHAPE.message()}
            state.welcome(welcome, self._now)
        sql = STREAM.format(sums=sums, period=period) + "".join(
            f"CREATE QUERY q{n} AS SELECT SUM(v) AS s FROM LATEST(walks) WITH PRECISION {q.within};"
            for n, q in enumerate(queries)
        )
        catalog = Catalog.from_sql(sql, Functions())
        stream = catalog.streams["walks"]
        self._manner: Adjusting = adjusting(stream)
        self._mirror = Mirror(1, self._manner.tolerance)
        steps = [CurrentStep(s, bounded_form(s, stream).linear) for s in catalog.queries.values()]
        plan = CurrentPlan(stream, tuple(steps))
        self._queries = [
            BoundedQuery(bounded_form(step.step, stream), Matrix(step, plan.signals), ["v"])
            for step in plan.steps
        ]
        self._evaluator = Evaluator(self._queries, None)
        self._coordinator = Coordinator(self._manner, np.random.default_rng(1))
        self._summing = Summing(self._manner, self._coordinator.tuning)
        self._width = self._granted = 0
        self._changed = False

    def step(self, values: Floats) -> None:
        """A second passes, and every key has its new value."""
        self._now += SECOND
        self._truth[self._now] = values
        self._sent = 0
        for place, state in enumerate(self._agents):
            state.offer_many(self._keys[place], values[self._keys[place]], self._now)
            self._hear(place)
        self._turn()
        self.told.messages.append(self._sent)
        self.told.by_query.append(sum(bool(s.scope) for s in self._mirror.belief.live.values()))

    def _append(self, kind: str, *, span: int = 1, **fields: Any) -> int:
        position = self._end
        entry = {"position": position, "kind": kind, "received": self._now, **fields}
        self._registry.apply(entry)
        self._unread.append(entry)
        self._end += span
        return position

    def _hear(self, place: int) -> None:
        """All that an agent has to say; each row, word on a grant, and name of a sum is a message."""
        agent, state = str(place), self._agents[place]
        while (message := state.next_message(self._now)) is not None:
            if message["type"] == "keys":
                numbers = self._registry.number_keys(agent, message["keys"])
                self._append("keys", agent=agent, keys=message["keys"], numbers=numbers)
                self._sent += sum(isinstance(name, dict) for name in message["keys"])
                continue
            fields = batch_fields(message, 1, self._registry.agents[agent].numbers)
            self._append("batch", agent=agent, number=message["number"], **fields)
            state.outbox.acknowledge(message["number"])
            self._sent += len(fields["key"]) + len(fields.get("narrowed", {}).get("position", ()))

    def _turn(self) -> None:
        """What `BoundsKeeper.turn` does, and what follows from it at the agents."""
        entries, self._unread, mirror = self._unread, [], self._mirror
        for entry in entries:
            mirror.take(entry)
        changed = self._place_keys()
        for batch in self._evaluator.advance(mirror, self._now, self._manner, WHEN):
            self._judge(batch)
        changed |= self._evaluator.reweighed
        self._evaluator.reweighed = False
        read, orders = self._end >= self._granted, list[Order]()
        if changed or (read and self._summing.due(mirror, self._now, everything=False)):
            summed, orders = self._summing.decide(
                self._queries, mirror, self._now, everything=False, changed=changed
            )
            if summed is not None:
                self._coordinator.ask(self._queries, mirror.belief, summed, everything=False)
        grants = Grants.none()
        if read and not mirror.queue.granting:
            grants = self._coordinator.decide(mirror, self._now, changed=changed or self._changed)
            self._changed = False
        else:
            self._changed |= changed
        for order in orders if read else ():
            self._form(order)
        if len(grants):
            self._grant(grants)
        for place in range(len(self._agents)):
            self._hear(place)

    def _place_keys(self) -> bool:
        names, known = self._mirror.names, self._width
        if len(names) == known:
            return False
        self._width = len(names)
        for query, asked in zip(self._queries, self._asked, strict=True):
            fresh = [n for n in range(known, len(names)) if not isinstance(names[n], dict)]
            found = [{"key": n, "n": 1, "n0": 1, "w0_0": 1.0} for n in fresh if names[n][0] in asked.keys]
            query.matrix.extend(pa.Table.from_pylist(found) if found else pa.table({}), self._width)
            query.name_groups(lambda *_: pa.table({}))
        self._evaluator.weigh(self._mirror.belief)
        return True

    def _form(self, order: Order) -> None:
        self._append(
            "sums",
            span=max(1, len(order.members)),
            agent=order.agent,
            generation=1,
            members=order.members,
            scope=order.scope,
            dropped=order.dropped,
            window=order.window,
        )
        self._granted = self._end
        self._sent += len(order.members) + len(order.dropped)
        told = [list(one) for one in self._registry.sums_of(order.agent)]
        self._agents[int(order.agent)].make_sums({"sums": told}, self._now)

    def _grant(self, grants: Grants) -> None:
        names = ("key", "column", "shrink", "period")
        fields = {name: getattr(grants, name).tolist() for name in names}
        fields["width"] = [None if np.isinf(w) else w for w in grants.width.tolist()]
        fields["start"] = [max(start, self._now) for start in grants.start.tolist()]
        self._append("grants", span=len(grants), generation=1, **fields)
        self._granted = self._end
        self._sent += len(grants)
        owner, local = self._registry.holders(grants.key)
        for place in np.unique(owner[owner >= 0]).tolist():
            mine = owner == place
            message = self._registry.grants.message(grants.key[mine], local[mine])
            self._agents[int(self._registry.agent_names[place])].grants(message, self._now)

    def _judge(self, batch: AnswerBatch) -> None:
        asked = self._asked[int(batch.query[1:])]
        assert batch.at is not None
        assert batch.low is not None
        assert batch.high is not None
        ends = zip(batch.low.to_pylist(), batch.high.to_pylist(), strict=True)
        met = np.broadcast_to(batch.met, len(batch.at)).tolist()
        for at, (low, high), kept in zip(batch.at.tolist(), ends, met, strict=True):
            self.told.answers += 1
            truth = float(self._truth[at][list(asked.keys)].sum())
            slack = 1e-9 * max(1.0, abs(truth))
            outside = low is not None and not low - slack <= truth <= high + slack
            wide = kept and low is not None and high - low > asked.within
            self.told.violations += outside or wide
