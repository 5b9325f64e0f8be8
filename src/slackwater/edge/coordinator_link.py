"""The coordinator's side of the hub: blocking requests over one connection, made again when it breaks."""

from __future__ import annotations

import json
import random as randomness
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import ClientConnection, connect

from slackwater.edge.messages import (
    VERSION,
    Declared,
    Disconnected,
    Fenced,
    Message,
    Refused,
    encode,
    nullable,
)
from slackwater.edge.uplink import delay
from slackwater.edge.widths import Grants

GRANTS_PER_REQUEST = 50_000
Ints = NDArray[np.int64]
Entry = dict[str, Any]


@dataclass(frozen=True)
class Welcome:
    """What the hub says to a coordinator that connects."""

    generation: int
    position: int
    """The end of the log: what a coordinator reads before it grants anything."""
    begin: int
    """The oldest position that can be read."""
    log: str
    """A random name of the log: another one means that it was begun anew."""
    time: int


@dataclass(frozen=True)
class End:
    """The end of the log at a time of the hub: everything received before ``time`` is below ``position``."""

    position: int
    time: int


@dataclass(frozen=True)
class Granted:
    """What became of grants, in their order: their positions in the log, and when each begins."""

    position: Ints
    start: Ints


class CoordinatorLink:
    """The connection of one coordinator to the hub of a stream.

    The first hello raises the generation. A connection that breaks is made again with the same generation,
    for up to ``patience`` seconds; if another coordinator came meanwhile, this one is `Fenced`, now and for
    every later call. `grant` is not repeated when the connection breaks before the answer: it raises
    `Disconnected`, and the log tells whether it was carried out. All else can be asked twice, and is.
    """

    def __init__(
        self,
        hub: str,
        stream: str,
        declared: Declared,
        *,
        token: str = "",
        ca: Path | None = None,
        timeout: float = 30.0,
        patience: float = 60.0,
        random: Callable[[], float] = randomness.random,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._hub = hub
        self._stream = stream
        self._declared = declared
        self._token = token
        self._tls = ssl.create_default_context(cafile=ca) if hub.startswith("wss://") else None
        self._timeout = timeout
        self._patience = patience
        self._random = random
        self._sleep = sleep
        self._lock = threading.RLock()
        self._socket: ClientConnection | None = None
        self._welcome: Welcome | None = None
        self._fenced = False
        self._asked = 0

    # requests

    def connect(self) -> Welcome:
        """Say hello, if there is no connection yet, and give the hub's latest welcome."""
        with self._lock:
            self._connected()
            assert self._welcome is not None
            return self._welcome

    @property
    def generation(self) -> int:
        return self.connect().generation

    def end(self) -> End:
        answer = self._ask({"type": "end"})
        return End(answer["position"], answer["time"])

    def read(self, start: int, to: int, limit: int = 1_000) -> tuple[list[Entry], int]:
        """Entries from ``start`` on and below ``to``, at most ``limit``, and the position to read on from.

        May give fewer than there are: it is done when the position has reached ``to``.
        """
        answer = self._ask({"type": "read", "from": start, "to": to, "limit": limit})
        return answer["entries"], answer["next"]

    def grant(self, grants: Grants) -> Granted:
        """Log grants, with keys by the hub's numbers, and pass them on to agents."""
        positions: list[int] = []
        starts: list[int] = []
        for first in range(0, len(grants.key), GRANTS_PER_REQUEST):
            part = slice(first, first + GRANTS_PER_REQUEST)
            columns = {
                "key": grants.key[part].tolist(),
                "column": grants.column[part].tolist(),
                "width": nullable(grants.width[part]),
                "start": grants.start[part].tolist(),
                "shrink": grants.shrink[part].tolist(),
                "period": grants.period[part].tolist(),
            }
            with self._lock:
                request = {"type": "grant", "generation": self.connect().generation, "grants": columns}
                answer = self._ask(request, again=False)
            positions += answer["position"]
            starts += answer["start"]
        return Granted(np.array(positions, np.int64), np.array(starts, np.int64))

    def forget(self, through: int) -> int:
        """Entries before ``through`` will not be read again; gives the oldest that still can be."""
        begin: int = self._ask({"type": "forget", "through": through})["begin"]
        return begin

    def status(self) -> dict[str, Any]:
        """Counts of the hub for this stream: agents, keys, messages, bytes, queues, the log."""
        answer = self._ask({"type": "status"})
        return {name: value for name, value in answer.items() if name not in ("type", "id")}

    def close(self) -> None:
        with self._lock:
            self._drop()

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # the connection

    def _ask(self, request: Message, *, again: bool = True) -> Message:
        with self._lock:
            deadline = time.monotonic() + self._patience
            while True:
                socket = self._connected()
                self._asked += 1
                try:
                    socket.send(encode({**request, "id": self._asked}))
                    while (answer := self._heard(socket)).get("id") != self._asked:
                        pass
                except (ConnectionClosed, TimeoutError, OSError) as error:
                    self._drop()
                    if not again or time.monotonic() > deadline:
                        what = f"the hub at {self._hub} was lost during {request['type']}"
                        raise Disconnected(f"{what}: {error}") from None
                    continue
                if answer["type"] == "refused":
                    raise Refused(f"the hub refused {request['type']}: {answer['reason']}")
                return answer

    def _heard(self, socket: ClientConnection) -> Message:
        message: Message = json.loads(socket.recv(timeout=self._timeout))
        if message["type"] == "fenced":
            self._fenced = True
            self._drop()
            raise self._fence()
        if message["type"] == "refused" and "id" not in message:
            self._drop()
            raise Refused(f"the hub at {self._hub} refused: {message['reason']}")
        return message

    def _fence(self) -> Fenced:
        return Fenced(f"another coordinator has taken over stream {self._stream!r}")

    def _connected(self) -> ClientConnection:
        if self._fenced:
            raise self._fence()
        attempt = 0
        deadline = time.monotonic() + self._patience
        while self._socket is None:
            try:
                self._open()
            except (InvalidHandshake, ConnectionClosed, TimeoutError, OSError) as error:
                self._drop()
                attempt += 1
                pause = delay(attempt, self._random)
                if time.monotonic() + pause > deadline:
                    raise Disconnected(f"cannot reach the hub at {self._hub}: {error}") from None
                self._sleep(pause)
        return self._socket

    def _open(self) -> None:
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
        hello = {"type": "hello", "role": "coordinator", "version": VERSION, "token": self._token}
        hello |= {"stream": self._stream, "declared": self._declared.message()}
        if self._welcome is not None:
            hello["generation"] = self._welcome.generation
        self._socket.send(encode(hello))
        message = self._heard(self._socket)
        names = ("generation", "position", "begin", "log", "time")
        self._welcome = Welcome(**{name: message[name] for name in names})

    def _drop(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()
