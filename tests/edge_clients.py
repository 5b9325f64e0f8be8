"""Light clients of a hub: they say what a test tells them to, right or wrong, and keep what they hear."""

from __future__ import annotations

import json
import threading
from typing import Any, Self

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from slackwater.edge.messages import Declared

HOSTS = Declared(("host",), ("load",))
PATIENCE_S = 20.0
SECOND = 1_000_000


class TestClock:
    """A clock that goes on only when told to."""

    __test__ = False

    def __init__(self, now: int = 1_000 * SECOND) -> None:
        self._lock = threading.Lock()
        self._now = now

    def __call__(self) -> int:
        with self._lock:
            return self._now

    def advance(self, micros: int) -> None:
        with self._lock:
            self._now += micros


class Client:
    """A connection that sends dicts as JSON."""

    def __init__(self, url: str, **hello: Any) -> None:
        self.socket = connect(
            url, compression=None, proxy=None, max_size=None, legacy=True, ping_interval=None, close_timeout=1
        )
        self._asked = 0
        if hello:
            self.send("hello", **{"version": 1, "token": "", "stream": "hosts"} | hello)

    def send(self, type: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"type": type, **fields}))

    def hear(self, *kinds: str) -> dict[str, Any]:
        """The next message of one of these kinds; others are passed over, a refusal never."""
        while True:
            message: dict[str, Any] = json.loads(self.socket.recv(timeout=PATIENCE_S))
            if message["type"] in kinds or not kinds:
                return message
            if message["type"] == "refused":
                raise AssertionError(message["reason"])

    def refusal(self) -> str:
        """The reason for which the hub refuses, after which it closes."""
        reason: str = self.hear("refused")["reason"]
        self.ended()
        return reason

    def ended(self) -> None:
        """Wait until the hub has closed the connection."""
        try:
            while True:
                self.socket.recv(timeout=PATIENCE_S)
        except ConnectionClosed:
            pass

    def ask(self, type: str, **fields: Any) -> dict[str, Any]:
        self._asked += 1
        self.send(type, id=self._asked, **fields)
        answer = self.hear()
        assert answer["id"] == self._asked, answer
        return answer

    def cut(self) -> None:
        """End as a broken network does: without a word."""
        self.socket.socket.close()
        self.socket.close()

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AgentClient(Client):
    """An agent with no filters: it sends the rows that it is told to."""

    def __init__(
        self, url: str, agent: str = "a", incarnation: str = "i1", applied: int = 0, **more: Any
    ) -> None:
        super().__init__(url, role="agent", agent=agent, incarnation=incarnation, applied=applied, **more)

    def welcome(self) -> dict[str, Any]:
        return self.hear("welcome")

    def keys(self, *names: Any, first: int = 0) -> dict[str, Any]:
        """Announce keys, and give the grants message that covers them."""
        self.send("keys", first=first, keys=[list(n) if isinstance(n, tuple) else [n] for n in names])
        while (told := self.hear("grants")).get("keys", -1) < first + len(names):
            pass
        return told

    def batch(self, number: int, rows: dict[int, float], at: int = 5, **more: Any) -> None:
        columns = {"key": list(rows), "at": [at] * len(rows), "values": [[v] for v in rows.values()]}
        self.send("batch", number=number, sent=at, rows=columns, **more)

    def received(self, number: int) -> None:
        """Wait until the hub has acknowledged a batch."""
        while self.hear("received")["number"] < number:
            pass


class CoordinatorClient(Client):
    """A coordinator that reads everything from the start, unless told otherwise."""

    def __init__(self, url: str, declared: Declared = HOSTS, **more: Any) -> None:
        super().__init__(url, role="coordinator", declared=declared.message(), **more)
        self.welcome = self.hear("welcome", "fenced")

    def entries(self, *kinds: str, start: int = 1) -> list[dict[str, Any]]:
        """All entries that are in the log by now, of these kinds."""
        end = self.ask("end")["position"]
        found: list[dict[str, Any]] = []
        while start < end:
            answer = self.ask("read", **{"from": start, "to": end, "limit": 100})
            assert answer["type"] == "entries", answer
            found += answer["entries"]
            start = answer["next"]
        return [e for e in found if not kinds or e["kind"] in kinds]

    def grant(self, widths: dict[int, float | None], **more: Any) -> dict[str, Any]:
        """Grant widths to keys, in column 0."""
        count = len(widths)
        grants = {"key": list(widths), "column": [0] * count, "width": list(widths.values())}
        grants |= {"start": [0] * count, "shrink": [0.0] * count, "period": [SECOND] * count}
        grants |= {name: [value] * count for name, value in more.items() if name in grants}
        generation = more.get("generation", self.welcome.get("generation"))
        return self.ask("grant", generation=generation, grants=grants)
