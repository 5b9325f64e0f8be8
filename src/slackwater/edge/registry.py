"""What a hub knows of one stream: keys and their numbers, who has them, grants, and how far each agent got.

The registry is a function of the log: `apply` is the only thing that changes it, and a hub that starts
again applies the same entries, from a snapshot on. It decides nothing and touches neither disk nor network.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slackwater.edge.grant_table import GrantTable
from slackwater.edge.messages import BadMessage, Declared, Key, Message, SumName, bad, key_parts, parts_of
from slackwater.edge.riding import beyond
from slackwater.edge.sum_table import SumTable

Ints = NDArray[np.int64]
Entry = dict[str, Any]
NOBODY = -1


@dataclass
class AgentRecord:
    """An agent as the log tells of it."""

    place: int
    """Its number among the agents of the stream, as owners of keys are named by it."""
    incarnation: str
    joined: bool = False
    received: int = 0
    """The number of the last batch of this incarnation."""
    sign: int = 0
    """Hub time of the last entry that came from it."""
    numbers: array[int] = field(default_factory=lambda: array("q"))
    """The number of each key that it announced, by the agent's own number of it."""


class Registry:
    """The state of a stream after the entries applied so far."""

    def __init__(self) -> None:
        self.declared: Declared | None = None
        self.generation = 0
        self.last_time = 0
        """Hub time of the newest entry."""
        self.agents: dict[str, AgentRecord] = {}
        self.agent_names: list[str] = []
        """Agents by place."""
        self._clear()

    def _clear(self) -> None:
        self.numbers: dict[Key, int] = {}
        self.names: list[Key] = []
        self._owner = array("q")
        self._local = array("q")
        self.grants = GrantTable(len(self.declared.columns) if self.declared else 0)
        self.sums = SumTable()

    # what the hub asks

    def known(self, agent: str, incarnation: str) -> tuple[int, int]:
        """Of an incarnation: the last batch number, and how many of its first keys still stand as its own.

        A key that another agent took over meanwhile, and all after it, are to be announced again.
        """
        record = self.agents.get(agent)
        if record is None or record.incarnation != incarnation:
            return 0, 0
        owners = np.asarray(self._owner)[np.asarray(record.numbers)]
        foreign = np.flatnonzero(owners != record.place)
        return record.received, int(foreign[0]) if len(foreign) else len(record.numbers)

    def number_keys(self, agent: str, keys: list[Any]) -> list[int]:
        """The numbers that announced keys have or will get; a key of somebody else is a `BadMessage`."""
        assert self.declared is not None
        me = self.agents[agent].place
        fresh: dict[Key, int] = {}
        found: list[int] = []
        for parts in keys:
            key = key_parts(parts, self.declared, "keys.keys")
            number = self.numbers.get(key)
            if number is None:
                if key in fresh:
                    raise BadMessage(f"keys.keys: {key!r} is announced twice")
                number = fresh[key] = len(self.names) + len(fresh)
            elif self._local[number] >= 0:
                holder = self.agent_names[self._owner[number]]
                if self._owner[number] == me:
                    raise BadMessage(f"keys.keys: {key!r} is announced twice")
                if self.agents[holder].joined:
                    raise BadMessage(
                        f"key {key!r} belongs to agent {holder!r}, which is connected: a key has one agent; "
                        "stop that one, or leave the key out here"
                    )
            found.append(number)
        if len(set(found)) < len(found):
            raise BadMessage("keys.keys: a key is announced twice")
        return found

    def unclaimed(self, agent: str) -> list[int]:
        """The keys of an agent that no connected process answers for.

        All of one that is not connected; else those that its present process has not announced.
        """
        record = self.agents[agent]
        found = np.asarray(self._owner) == record.place
        if record.joined:
            found &= np.asarray(self._local) == NOBODY
        numbers: list[int] = np.flatnonzero(found).tolist()
        return numbers

    def keys_among(self, numbers: Iterable[int]) -> int:
        """How many of some numbers are keys of the stream, and no sums of them."""
        return sum(not isinstance(self.names[number], SumName) for number in numbers)

    def holders(self, numbers: Ints) -> tuple[Ints, Ints]:
        """The agent that has each key, by place, and the agent's number of it; -1 where nobody does."""
        local = np.asarray(self._local)[numbers]
        owner = np.asarray(self._owner)[numbers]
        return np.where(local >= 0, owner, NOBODY), local

    def sums_of(self, agent: str) -> list[tuple[int, list[int], int]]:
        """The sums that an agent can make, since it has all their keys; those by the agent's own numbers.

        With each its window.
        """
        me = self.agents[agent].place
        found = []
        for number, defined in self.sums.of(agent):
            owner, local = self.holders(np.array(defined.members, np.int64))
            if (owner == me).all():
                found.append((number, local.tolist(), defined.window))
        return found

    def check_sum(self, agent: str, members: list[int]) -> None:
        """Refuse a sum that no agent could make."""
        if agent not in self.agents:
            raise BadMessage(f"form.agent: there is no agent {agent!r}")
        if not members or len(set(members)) < len(members) or max(members) >= len(self.names):
            raise BadMessage(f"form.members: expected distinct numbers of keys, got {members[:10]}")
        if any(isinstance(self.names[number], SumName) for number in members):
            raise BadMessage("form.members: a sum cannot be of sums")

    def check_batch(self, agent: str, fields: Message) -> None:
        """Refuse what a batch says of grants that others have got, and of members that no sum has."""
        if "narrowed" in fields:
            position = np.array(fields["narrowed"]["position"], np.int64)
            objects = self.grants.of(position)
            made = objects >= 0
            owner = np.asarray(self._owner)[objects[made] // self.grants.columns]
            others = position[made][(owner != self.agents[agent].place) & (owner != NOBODY)]
            if len(others):
                expected = "positions of grants of the agent's own keys"
                raise bad("batch.narrowed.position", expected, int(others[0]))
        told = fields.get("absent", {"key": (), "absent": ()})
        for number, absent in zip(told["key"], told["absent"], strict=True):
            name = self.names[number]
            if not isinstance(name, SumName):
                raise bad("batch.absent.key", "keys that are sums", parts_of(name))
            # of one that has just ended it is not known any more
            defined = self.sums.defined.get(name.number)
            if defined is not None and beyond(absent, len(defined.members)):
                raise bad("batch.absent.absent", f"places below {len(defined.members)}", absent)

    # what the log says

    def apply(self, entry: Entry) -> None:
        """Take an entry in: the log's order is the only order."""
        kinds: dict[str, Callable[[Entry], None]] = {
            "declared": self._declared,
            "generation": self._generation,
            "joined": self._joined,
            "lost": self._lost,
            "keys": self._keys,
            "batch": self._batch,
            "grants": self._grants,
            "sums": self._sums,
            "withdrawn": self._withdrawn,
        }
        kinds[entry["kind"]](entry)
        self.last_time = entry["received"]

    def _declared(self, entry: Entry) -> None:
        declared = Declared.parse(entry)
        if declared == self.declared:
            return
        before, self.declared = self.declared, declared
        self._clear()
        if before is None:
            # agents may have joined before, with nothing to say yet: they go on
            return
        # a stream of another shape is another stream: numbers, grants and incarnations begin again
        for record in self.agents.values():
            record.incarnation, record.received, record.numbers = "", 0, array("q")

    def _generation(self, entry: Entry) -> None:
        self.generation = entry["number"]

    def _joined(self, entry: Entry) -> None:
        name = entry["agent"]
        record = self.agents.get(name)
        if record is None:
            record = self.agents[name] = AgentRecord(len(self.agents), entry["incarnation"])
            self.agent_names.append(name)
        if record.incarnation != entry["incarnation"]:
            record.incarnation, record.received = entry["incarnation"], 0
        for number in record.numbers[entry["keys"] :]:
            if self._owner[number] == record.place:
                self._local[number] = NOBODY
        record.numbers = record.numbers[: entry["keys"]]
        record.joined, record.sign = True, entry["received"]

    def _lost(self, entry: Entry) -> None:
        self.agents[entry["agent"]].joined = False

    def _keys(self, entry: Entry) -> None:
        assert self.declared is not None
        record = self.agents[entry["agent"]]
        for parts, number in zip(entry["keys"], entry["numbers"], strict=True):
            if number == len(self.names):
                key = key_parts(parts, self.declared, "keys")
                self.numbers[key] = number
                self.names.append(key)
                self._owner.append(record.place)
                self._local.append(len(record.numbers))
            else:
                self._owner[number] = record.place
                self._local[number] = len(record.numbers)
            record.numbers.append(number)
        record.sign = entry["received"]

    def _batch(self, entry: Entry) -> None:
        record = self.agents[entry["agent"]]
        record.received, record.sign = entry["number"], entry["received"]

    def _withdrawn(self, entry: Entry) -> None:
        """Keys are nobody's: who had them, and comes back with them, announces them again."""
        for number in entry["numbers"]:
            self._owner[number] = self._local[number] = NOBODY

    def _grants(self, entry: Entry) -> None:
        self.grants.set(entry["position"], entry)

    def _sums(self, entry: Entry) -> None:
        self.sums.apply(entry)

    # snapshots

    def freeze(self) -> Callable[[], dict[str, Any]]:
        """The state as it is now, to be rendered later and elsewhere: copying is quick, rendering is not."""
        declared, generation, last_time = self.declared, self.generation, self.last_time
        names = list(self.names)
        owner, local, grants = self._owner[:], self._local[:], self.grants.freeze()
        sums = self.sums.to_json()
        agents = [
            (name, r.incarnation, r.joined, r.received, r.sign, r.numbers[:])
            for name, r in self.agents.items()
        ]

        def render() -> dict[str, Any]:
            return {
                "declared": declared.message() if declared else None,
                "generation": generation,
                "last_time": last_time,
                "names": [parts_of(key) for key in names],
                "owner": owner.tolist(),
                "local": local.tolist(),
                "grants": grants(),
                "sums": sums,
                "agents": [[*rest, numbers.tolist()] for *rest, numbers in agents],
            }

        return render

    def restore(self, state: dict[str, Any]) -> None:
        """Become what `freeze` has seen."""
        self.declared = Declared.parse(state["declared"]) if state["declared"] else None
        self.generation, self.last_time = state["generation"], state["last_time"]
        self._clear()
        if self.declared is not None:
            self.names = [key_parts(parts, self.declared, "names") for parts in state["names"]]
        self.numbers = {key: number for number, key in enumerate(self.names)}
        self._owner, self._local = array("q", state["owner"]), array("q", state["local"])
        self.grants.restore(state["grants"])
        # snapshots of earlier versions know no sums
        self.sums.load(state.get("sums", ()))
        self.agents = {}
        for place, (name, incarnation, joined, received, sign, numbers) in enumerate(state["agents"]):
            record = AgentRecord(place, incarnation, joined, received, sign, array("q", numbers))
            self.agents[name] = record
        self.agent_names = list(self.agents)
