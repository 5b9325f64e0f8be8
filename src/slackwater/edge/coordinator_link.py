"""The coordinator's side of the hub: blocking requests over one connection, made again when it breaks."""

from __future__ import annotations

import json
import logging
import random as randomness
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import ClientConnection, connect

from slackwater.edge.hub_answers import End, Granted, Welcome, pieces
from slackwater.edge.marks import Mark, other_log
from slackwater.edge.messages import (
    VERSION,
    Declared,
    Disconnected,
    Fenced,
    Message,
    OtherLog,
    Refused,
    encode,
    nullable,
)
from slackwater.edge.tls import client_tls
from slackwater.edge.uplink import delay
from slackwater.edge.widths import Grants

GRANTS_PER_REQUEST = 50_000

logger = logging.getLogger(__name__)
Entry = dict[str, Any]


class CoordinatorLink:
    """The connection of one coordinator to the hub of a stream.

    The first hello raises the generation. A connection that breaks is made again with the same generation,
    for up to ``patience`` seconds, or if ``endless`` until the hub is there again or `give_up` is called; if
    another coordinator came meanwhile, this one is `Fenced`, now and for every later call; if the hub comes
    back with another log, or with an older copy, that is `OtherLog`, for every later call too. `grant` is not
    repeated when the connection breaks before the answer: it raises `Disconnected`, and the log tells whether
    it was carried out. All else can be asked twice, and is.
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
        endless: bool = False,
        random: Callable[[], float] = randomness.random,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._hub = hub
        self._stream = stream
        self._declared = declared
        self._token = token
        self._tls = client_tls(hub, ca)
        self._timeout = timeout
        self._patience = patience
        self._endless = endless
        self._given_up = threading.Event()
        self._random = random
        self._clock = clock
        self._sleep = self._given_up.wait if sleep is None else sleep
        self._lock = threading.RLock()
        self._socket: ClientConnection | None = None
        self._welcome: Welcome | None = None
        self._mark = Mark("")
        self._ended: Fenced | OtherLog | None = None
        self._asked = 0

    # requests

    def connect(self) -> Welcome:
        """Say hello, if there is no connection yet, and give the hub's latest welcome."""
        with self._lock:
            self._connected()
            assert self._welcome is not None
            return self._welcome

    def go_on(self, mark: Mark) -> None:
        """Read on from where the log was left: `OtherLog` if the hub has another one."""
        with self._lock:
            self._mark = mark
            self._drop()
            self.connect()

    @property
    def generation(self) -> int:
        return self.connect().generation

    def end(self) -> End:
        answer = self._ask({"type": "end"})
        self._mark = self._mark.reached(answer["position"])
        return End(answer["position"], answer["time"])

    def read(self, start: int, to: int, limit: int = 1_000) -> tuple[list[Entry], int]:
        """Entries from ``start`` on and below ``to``, at most ``limit``, and the position to read on from.

        May give fewer than there are: it is done when the position has reached ``to``.
        """
        answer = self._ask({"type": "read", "from": start, "to": to, "limit": limit})
        self._mark = self._mark.after(answer["entries"])
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
                # an agent may use them from now on: a log without them is another one
                self._mark = self._mark.reached(answer["position"][-1] + 1)
            positions += answer["position"]
            starts += answer["start"]
        return Granted(np.array(positions, np.int64), np.array(starts, np.int64))

    def form(
        self,
        agent: str,
        members: list[list[int]],
        scope: list[str],
        window: list[int],
        dropped: list[int],
    ) -> list[int]:
        """Have an agent make sums of keys of its own, or no longer; the numbers of the new ones.

        Not repeated when the connection breaks, as with `grant`.
        """
        numbers: list[int] = []
        for first, last in pieces(members):
            with self._lock:
                request = {"type": "form", "generation": self.connect().generation, "agent": agent}
                request |= {"members": members[first:last], "scope": scope[first:last]}
                request["window"] = window[first:last]
                request["dropped"] = dropped if first == 0 else []
                numbers += self._ask(request, again=False)["sums"]
        return numbers

    def forget(self, through: int) -> int:
        """Entries before ``through`` will not be read again; gives the oldest that still can be."""
        begin: int = self._ask({"type": "forget", "through": through})["begin"]
        return begin

    def status(self) -> dict[str, Any]:
        """Counts of the hub for this stream: agents, keys, messages, bytes, queues, the log."""
        answer = self._ask({"type": "status"})
        return {name: value for name, value in answer.items() if name not in ("type", "id")}

    def give_up(self) -> None:
        """Wait no longer for a hub that is not there, from any thread; requests that need not wait go on."""
        self._given_up.set()

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
            began, breaks = self._clock(), 0
            while True:
                socket = self._connected()
                self._asked += 1
                try:
                    socket.send(encode({**request, "id": self._asked}))
                    while (answer := self._heard(socket)).get("id") != self._asked:
                        pass
                except (ConnectionClosed, TimeoutError, OSError) as error:
                    self._drop()
                    trouble = f"the hub at {self._hub} was lost during {request['type']}: {error}"
                    if not again:
                        raise Disconnected(trouble) from None
                    if breaks:
                        self._pause(breaks, began, trouble)
                    breaks += 1
                    continue
                if answer["type"] == "refused":
                    raise Refused(f"the hub refused {request['type']}: {answer['reason']}")
                return answer

    def _heard(self, socket: ClientConnection) -> Message:
        message: Message = json.loads(socket.recv(timeout=self._timeout))
        if message["type"] == "fenced":
            raise self._end_by(self._fence(message))
        if message["type"] == "refused" and "id" not in message:
            self._drop()
            raise Refused(f"the hub at {self._hub} refused: {message['reason']}")
        return message

    def _end_by(self, error: Fenced | OtherLog) -> Fenced | OtherLog:
        """Nothing more is asked of the hub."""
        self._ended = error
        self._drop()
        return error

    def _fence(self, message: Message) -> Fenced | OtherLog:
        own, newest = self._welcome, message["generation"]
        if own is not None and (message["log"] != own.log or newest < own.generation):
            # nobody has taken over: this coordinator is unknown there
            expected = f"expected log {own.log!r} with coordinators up to generation {own.generation}"
            got = f"got log {message['log']!r} with those up to {newest}"
            return other_log(self._hub, self._stream, f"{expected}, {got}")
        return Fenced(
            f"another run has taken over stream {self._stream!r} of the hub at {self._hub}: a stream has one "
            "at a time; stop the other one and start this one again, which goes on where it was"
        )

    def _connected(self) -> ClientConnection:
        if self._ended is not None:
            raise self._ended
        began, attempt = self._clock(), 0
        while self._socket is None:
            try:
                self._open()
            except (InvalidHandshake, ConnectionClosed, TimeoutError, OSError) as error:
                self._drop()
                attempt += 1
                self._pause(attempt, began, f"cannot reach the hub at {self._hub}: {error}")
            else:
                if attempt and self._endless:
                    logger.warning("the hub at %s is there again: going on", self._hub)
        return self._socket

    def _pause(self, attempt: int, began: float, trouble: str) -> None:
        """Wait before the next attempt, or raise if it is not to be waited for any longer."""
        pause, waited = delay(attempt, self._random), self._clock() - began
        # a hub that was never there is a wrong address, as a rule
        patient = self._endless and self._welcome is not None
        if self._given_up.is_set() or (not patient and waited + pause > self._patience):
            raise Disconnected(trouble)
        if patient:
            logger.warning("%s; trying again, %.0f s so far", trouble, waited)
        self._sleep(pause)

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
        welcome = Welcome(**{name: message[name] for name in names})
        self._check(self._socket, welcome)
        self._mark = replace(self._mark, log=welcome.log).reached(welcome.position)
        self._welcome = welcome

    def _check(self, socket: ClientConnection, welcome: Welcome) -> None:
        """See that the log is the one that was read so far, if any was."""
        mark = self._mark
        strange = mark.strange(welcome.log, welcome.position)
        # the last entry may have been forgotten, as this coordinator has asked for
        if strange is None and mark.last is not None and mark.last[0] >= welcome.begin:
            position = mark.last[0]
            request = {"type": "read", "from": position, "to": position + 1, "limit": 1, "id": 0}
            socket.send(encode(request))
            strange = mark.differs(self._heard(socket).get("entries", []))
        if strange is not None:
            raise self._end_by(other_log(self._hub, self._stream, strange))

    def _drop(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()
