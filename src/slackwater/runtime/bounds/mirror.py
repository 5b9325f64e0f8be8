"""The log of a hub, carried out: keys, agents, bounds and response curves as they are at a time.

A function of the log up to a position and of the hub's time there, nothing else: whoever reads on from a
mirror that was kept comes to the same one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from slackwater.edge.riding import absent_fits, beyond, curves_fit, rider_fits
from slackwater.edge.widths import Floats, Ints
from slackwater.runtime.bounds.belief import LiveSum
from slackwater.runtime.bounds.events import Entry, Event
from slackwater.runtime.bounds.seen import AgentSeen, Seen

NOBODY = -1


class Mirror(Seen):
    """All that is known of one stream whose values agents send, carried on by its log."""

    def take(self, entry: Entry) -> None:
        """An entry of the log, in its order."""
        kind = entry["kind"]
        if kind == "declared":
            # as the hub compares them: with other kinds of keys it numbers them anew too
            declared = {"key": entry["key"], "columns": entry["columns"], "kinds": entry.get("kinds", [])}
            if self._declared and declared != self._declared:
                # a stream of another shape is another stream: the hub numbers its keys anew; agents that came
                # before the first one go on
                self._begin()
            self._declared = declared
        elif kind == "keys":
            self._announce(entry)
        elif kind == "joined":
            self._agent(entry["agent"]).offered.clear()
        elif kind == "batch" and "offered" in entry:
            self._agent(entry["agent"]).offers(entry["sent"], entry["offered"])
        elif kind == "sums":
            self.ordered.apply(entry)
            # whoever tells a sum has heard of it: its rows come after this, whatever its clock says
            self.sums.apply({**entry, "dropped": []})
            self.sums_version += 1
        self.queue.take(entry)

    def _agent(self, name: str) -> AgentSeen:
        return self.agents.setdefault(name, AgentSeen(len(self.agents)))

    def _announce(self, entry: Entry) -> None:
        agent = self._agent(entry["agent"])
        for name, number in zip(entry["keys"], entry["numbers"], strict=True):
            if number == len(self.names):
                self.names.append(name)
                if isinstance(name, dict):
                    self.sum_keys[name["sum"]] = number
                    self.sums_version += 1
        self._grow(len(self.names))
        for number in entry["numbers"]:
            self.belief.summed[number] = isinstance(self.names[number], dict)
            self.announced[number] = agent.place
        # what another process said of them does not count any more
        costs, rates = np.ones(len(entry["numbers"])), np.full((len(entry["numbers"]), self.columns), np.nan)
        for place, cost, own in entry.get("terms", ()):
            costs[place] = cost
            if own is not None and len(own) == self.columns:
                # else it is of a shape that the stream had before, and ends before any of it counts
                rates[place] = _floats(own)
        numbers = np.array(entry["numbers"], np.int64)
        self.cost[numbers] = costs
        self.belief.change_at_most(numbers, rates)

    def advance(self, time: int) -> Iterator[tuple[int, Ints]]:
        """Carry out what is complete at a time of the hub; at each time of a change the objects it changes.

        Bounds that change by themselves have their times too: there, all objects may have.
        """
        now = self.queue.released
        self.belief.look_anew()
        for at, events in self.queue.release(time):
            yield from self._meanwhile(now, at)
            # what shrinks at this very time does so in the same transaction
            alone = self.belief.changes_after(at - 1) == at
            touched = [self._carry_out(event) for event in events]
            now = at
            yield at, self._every() if alone else np.unique(np.concatenate(touched))
        yield from self._meanwhile(now, self.queue.released + 1)

    @property
    def tells_all(self) -> bool:
        """Whether every change of every key is told, but for those of agents that are away."""
        belief = self.belief
        asked = belief.here & ~self.away & ~belief.summed
        objects = belief.objects(np.flatnonzero(asked)).ravel()
        told = belief.known[asked] & (belief.unsure[asked] == 0)
        return bool(told.all() and (belief.widths(objects, self.queue.released) == 0).all())

    def _every(self) -> Ints:
        return np.arange(self.belief.size * self.columns)

    def _meanwhile(self, after: int, before: int) -> Iterator[tuple[int, Ints]]:
        steps = 0
        at = self.belief.changes_after(after) if after > 0 else None
        while at is not None and at < before:
            if steps == AT_MOST and at < before - 1:
                # nobody has looked for long: where bounds were that move or widen is left open until the end
                self.belief.unwatched = True
                yield at, self._every()
                self.belief.unwatched = False
                at = before - 1
            yield at, self._every()
            steps += 1
            at = self.belief.changes_after(at)

    def _carry_out(self, event: Event) -> Ints:
        what = event.what
        position = event.order[0]
        if event.kind == "row":
            return self._row(event.at, position, what)
        if event.kind == "grants":
            return self._granted(what)
        if event.kind == "narrowed":
            return self._narrowed(what["grant"], position, what.get("agent", ""))
        if event.kind == "absent":
            return self._absent(what["key"], what["absent"], position)
        if event.kind == "beside":
            for key, curves in zip(what["key"], what["curve"], strict=True):
                if curves_fit(curves, self.columns):
                    self._learn(np.arange(key * self.columns, (key + 1) * self.columns), curves)
                else:
                    self.unread += 1
            return np.empty(0, np.int64)
        if event.kind == "sums":
            self.sums_version += 1
            for ended in self.sums.apply({**what, "members": [], "scope": [], "window": []}):
                if ended in self.sum_keys:
                    self.belief.end_sum(self.sum_keys[ended])
            return np.empty(0, np.int64)
        agent = self._agent(what["agent"])
        if event.kind == "withdrawn":
            return self._withdrawn(np.array(what["numbers"], np.int64), position, event.at)
        if event.kind == "keys":
            numbers = np.array(what["numbers"], np.int64)
            # who announces a key that was withdrawn has it again
            gone = self.belief.withdrawn[numbers]
            self.belief.withdraw(numbers[(gone > 0) & (gone < position)], 0, event.at)
            keys = numbers[self.owner[numbers] != agent.place]
            others = keys[self.owner[keys] >= 0]
            if len(others) and self.belief.live:
                # what another agent has is in no sum of this one
                for number in self.sums.with_key(others.tolist()):
                    self.belief.end_sum(self.sum_keys.get(number, -1))
            self.owner[keys] = agent.place
            self._handed(others, event.at, position)
            for number, _ in self.sums.of(what["agent"]):
                # what it has told of before it was known to have all of it
                key = self.sum_keys.get(number, -1)
                if key >= 0 and self.belief.known[key]:
                    self._sum_up(key, agent.place)
        else:
            keys = np.flatnonzero(self.owner == agent.place)
        if event.kind == "lost":
            agent.is_lost(event.at)
            self._doubt(keys, event.at)
        elif event.kind == "joined":
            if agent.incarnation != what["incarnation"]:
                # it has forgotten its bounds, if it had any; of what was withdrawn it knows nothing, and
                # would announce it
                gone = self.belief.withdrawn[keys] > 0
                self._handed(keys[~gone], event.at, position)
                self.belief.unsure[keys[gone]] = 0
                agent.is_back(event.at)
            agent.incarnation = what["incarnation"]
            agent.cost = what.get("cost", 1.0)
        elif event.kind == "caught_up":
            # the same process with the same bounds, and all that waited has been sent
            agent.is_back(event.at)
        self.away[keys] = agent.lost > 0
        self._vouch(keys)
        return self.belief.objects(keys).ravel()

    def _withdrawn(self, numbers: Ints, position: int, at: int) -> Ints:
        """Keys that somebody at the hub has withdrawn, but for those that were told of since."""
        keys = numbers[(self.told[numbers] < position) & (self.taken[numbers] < position)]
        self.belief.withdraw(keys, position, at, forgotten=True)
        return self.belief.objects(keys).ravel()

    def _doubt(self, keys: Ints, at: int) -> None:
        sure = keys[self.belief.unsure[keys] == 0]
        self.belief.unsure[sure] = at

    def _handed(self, keys: Ints, at: int, position: int) -> None:
        """Another process has keys: it vouches for each that it has told, and whose grants it uses."""
        self.taken[keys] = position
        self._doubt(keys, at)

    def _vouch(self, keys: Ints) -> None:
        """Trust the bounds of those keys whose agent is there and knows them."""
        objects = self.belief.objects(keys)
        granted = np.isfinite(self.belief.asked_width[objects])
        used = (self.acked[objects] >= self.taken[keys][:, None]) | ~granted
        known = ~self.away[keys] & (self.told[keys] >= self.taken[keys]) & used.all(axis=1)
        self.belief.unsure[keys[known]] = 0

    def _row(self, at: int, position: int, what: Mapping[str, Any]) -> Ints:
        key, rides = what["key"], what["rides"] or {}
        self._agent(what["agent"]).rows += 1
        if position < self.told[key]:
            # what another process has told since counts, even if its clock is behind
            return np.empty(0, np.int64)
        if not rider_fits(what["rides"], self.columns):
            # nobody knows where its bound is: it has none until its next row
            self.unread += 1
            rides = {"c": [None] * self.columns}
        values = _floats(what["values"])
        centre = _floats(rides["c"]) if "c" in rides else values
        slope = _floats(rides["s"]) if "s" in rides else np.zeros(self.columns)
        if what.get("ahead") and slope.any():
            # a bound that moves by a clock that is far off: where it is nobody knows
            centre, slope = np.where(slope == 0, centre, np.nan), np.where(slope == 0, slope, 0.0)
        objects = self.belief.row(key, values, centre, slope, at)
        self.told[key] = position
        if position > self.belief.withdrawn[key]:
            self.belief.withdraw(np.array([key]), position if rides.get("g") else 0, at)
        if self.belief.unsure[key]:
            self._vouch(np.array([key]))
        self.updates[key] += 1
        self.heard[key] = max(int(self.heard[key]), at)
        self._learn(objects, rides.get("r", ()))
        if self.belief.summed[key]:
            self._sum_up(key, self._agent(what["agent"]).place)
        return objects

    def _learn(self, objects: Ints, curves: Sequence[Any]) -> None:
        """The response curves of a row's objects."""
        for place, curve in zip(objects.tolist(), curves, strict=False):
            self.lowest[place], self.seconds[place], self.rates[place] = curve[0], curve[1], curve[2:]

    def _sum_up(self, key: int, agent: int) -> None:
        """A sum that has told its value serves from then on, if it is still wanted and its agent has all."""
        number = self.names[key]["sum"]
        if key not in self.belief.live and number in self.sums.defined:
            defined = self.sums.defined[number]
            members = np.array(defined.members, np.int64)
            if np.isin(self.owner[members], (agent, NOBODY)).all():
                self.belief.sum_up(key, LiveSum(members, defined.scope, defined.window))
                if key in self._missing:
                    self._tell_absent(key, self._missing[key][1])

    def _absent(self, key: int, absent: list[list[int]], position: int) -> Ints:
        """Who of a sum's members has no value; kept for when it is known what it is the sum of."""
        if position >= self._missing.get(key, (0, []))[0]:
            self._missing[key] = (position, absent)
            return self._tell_absent(key, absent)
        return np.empty(0, np.int64)

    def _tell_absent(self, key: int, absent: list[list[int]]) -> Ints:
        live = self.belief.live.get(key)
        if absent_fits(absent, self.columns) and not (live and beyond(absent, len(live.members))):
            return self.belief.absent(key, absent)
        # nobody knows of how many values it is the sum: it has no bound until its next row
        self.unread += 1
        objects = np.arange(key * self.columns, (key + 1) * self.columns)
        self.belief.value[objects] = np.nan_to_num(self.belief.value[objects])
        self.belief.centre[objects] = np.nan
        return objects

    def _granted(self, what: Mapping[str, Any]) -> Ints:
        key, column = np.array(what["key"], np.int64), np.array(what["column"], np.int64)
        objects = key * self.columns + column
        position = np.array(what["position"], np.int64)
        law = {name: np.array(what[name], np.float64) for name in ("shrink",)}
        law["width"] = np.array([np.inf if w is None else w for w in what["width"]], np.float64)
        times = {name: np.array(what[name], np.int64) for name in ("start", "period")}
        self.belief.granted(objects, {**law, **times}, position)
        self._by_grant = None
        self._granted_to = max(self._granted_to, int(position.max(initial=0)))
        for grant, agent in sorted(self._early):
            if grant <= self._granted_to:
                self._narrowed(grant, self._early.pop((grant, agent)), agent)
        return objects

    def _narrowed(self, grant: int, position: int, agent: str) -> Ints:
        if grant > self._granted_to:
            # its agent's clock is before the hub's: it comes before the grant's own start
            self._early[grant, agent] = position
            return np.empty(0, np.int64)
        if self._by_grant is None:
            self._by_grant = np.argsort(self.belief.newest, kind="stable")
        place = int(np.searchsorted(self.belief.newest, grant, sorter=self._by_grant))
        if place == len(self._by_grant) or self.belief.newest[self._by_grant[place]] != grant:
            # a newer one has replaced it
            return np.empty(0, np.int64)
        objects = self._by_grant[place : place + 1]
        key = int(objects[0]) // self.columns
        if agent and self._agent(agent).place not in (self.owner[key], self.announced[key]):
            # who has it is still to say so
            self.unread += 1
            return np.empty(0, np.int64)
        self.acked[objects] = np.maximum(self.acked[objects], position)
        self.belief.narrowed(objects, np.array([grant]))
        keys = objects // self.columns
        if self.belief.unsure[keys].any():
            self._vouch(keys)
        return self.belief.objects(keys).ravel()


AT_MOST = 3600
"""Times between two events at which bounds that change by themselves are looked at one by one."""


def _floats(values: list[float | None]) -> Floats:
    return np.array([np.nan if v is None else v for v in values], np.float64)
