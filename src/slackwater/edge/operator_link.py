"""An operator's side of the hub: a question or two over one connection, which fences nobody off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.sync.client import ClientConnection, connect

from slackwater.edge.messages import VERSION, Disconnected, Message, Refused, encode
from slackwater.edge.tls import client_tls
from slackwater.errors import SourceError


class OperatorLink:
    """A connection to the hub of a stream that is there; use it as a context manager."""

    def __init__(
        self, hub: str, stream: str, *, token: str = "", ca: Path | None = None, timeout: float = 30.0
    ) -> None:
        if not hub.startswith(("ws://", "wss://")):
            raise SourceError(f"expected a hub such as ws://host:7400 or wss://host:7400, got {hub!r}")
        self._hub = hub
        self._tls = client_tls(hub, ca)
        self._timeout = timeout
        self._hello = {"type": "hello", "role": "operator", "version": VERSION, "token": token}
        self._hello |= {"stream": stream}
        self._socket: ClientConnection | None = None

    def __enter__(self) -> Self:
        try:
            self._socket = connect(
                self._hub,
                ssl=self._tls,
                compression=None,
                proxy=None,
                max_size=None,
                open_timeout=self._timeout,
                close_timeout=2,
                legacy=True,
            )
        except (InvalidHandshake, InvalidURI, TimeoutError, OSError) as error:
            raise Disconnected(f"cannot reach the hub at {self._hub}: {error}") from None
        self._ask(self._hello)
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket is not None:
            self._socket.close()

    def withdraw(self, agent: str) -> tuple[int, bool]:
        """Withdraw the keys of an agent that nobody answers for: how many, and whether it is connected."""
        answer = self._ask({"type": "withdraw", "agent": agent})
        return answer["keys"], answer["connected"]

    def widths(self) -> Iterator[Message]:
        """The newest grants of all keys, many keys at a time."""
        following, total = 0, 1
        while following < total:
            answer = self.page(following)
            yield answer
            following, total = answer["next"], answer["total"]

    def page(self, first: int) -> Message:
        """The newest grants of some keys, from a number on."""
        return self._ask({"type": "widths", "first": first})

    def _ask(self, request: Message) -> Message:
        assert self._socket is not None
        try:
            self._socket.send(encode(request))
            answer: Message = json.loads(self._socket.recv(timeout=self._timeout))
        except (ConnectionClosed, TimeoutError, OSError) as error:
            raise Disconnected(f"the hub at {self._hub} was lost: {error}") from None
        if answer["type"] == "refused":
            raise Refused(f"the hub at {self._hub} refused: {answer['reason']}")
        return answer
