"""The hub: a WebSocket server with a durable log for each stream, between agents and coordinators.

Guarantees. What an agent was told is `received` is on disk, once. A grant is on disk, and begins no earlier
than its position in the log, before any agent hears of it. What the hub knows after a restart is what the
log says.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from slackwater.edge import segments
from slackwater.edge.clock import now_micros
from slackwater.edge.connections import PING_S, AgentConnection
from slackwater.edge.log import SEGMENT_BYTES
from slackwater.edge.messages import (
    MAX_MESSAGE_BYTES,
    VERSION,
    BadMessage,
    Message,
    bad,
    decode,
    encode,
    field,
    name_of,
    text,
    whole,
)
from slackwater.edge.operators import OperatorConnection
from slackwater.edge.refusals import Refusals
from slackwater.edge.requests import CoordinatorConnection
from slackwater.edge.streams import Stopping, Stream
from slackwater.errors import SourceError, StateError

HELLO_S = 10.0
_THREADS = 4


class Hub:
    """A hub over a directory. Use it as an asynchronous context manager; it serves until it is left.

    ``token`` is the secret that everyone who connects must say; without one anybody may, so a hub without one
    listens on this machine only. ``port`` 0 takes a free one; see `url`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], int] = now_micros,
        segment_bytes: int = SEGMENT_BYTES,
        ping_s: float = PING_S,
    ) -> None:
        if not token and host not in ("127.0.0.1", "::1", "localhost"):
            raise SourceError(
                f"a hub without a token listens on this machine only, and {host!r} is open to others: "
                "give it a token"
            )
        self.directory = directory
        self.streams: dict[str, Stream] = {}
        self._host, self._port, self._tls = host, port, tls
        self._token = token.encode()
        self._clock = clock
        self._last = 0
        self._segment_bytes = segment_bytes
        self._ping_s = ping_s
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="hub-log")
        self._committing: dict[str, asyncio.Task[None]] = {}
        self._server: Server | None = None
        self._lock = -1
        self._refusals = Refusals()
        self._broken: asyncio.Future[None]

    def now(self) -> int:
        """The hub's time, which never goes back, whatever the clock does."""
        self._last = max(self._last, self._clock())
        return self._last

    @property
    def url(self) -> str:
        """Where it listens, as agents and coordinators are told."""
        assert self._server is not None
        host, port = next(iter(self._server.sockets)).getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        return f"{'wss' if self._tls else 'ws'}://{shown}:{port}"

    async def __aenter__(self) -> Self:
        self._broken = asyncio.get_running_loop().create_future()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            # those of its logs lock themselves too, but there may be none yet
            self._lock = segments.lock(self.directory)
            # streams with agents that were connected are opened at once: their loss is to be logged
            for path in sorted(self.directory.iterdir()):
                if path.is_dir():
                    self._stream(path.name)
            self._server = await serve(
                self._handle,
                self._host,
                self._port,
                ssl=self._tls,
                compression=None,
                max_size=MAX_MESSAGE_BYTES,
                max_queue=4,
                # connections ping by themselves, to know when the answer came
                ping_interval=None,
                close_timeout=5,
                # pages in a browser have no business here; whoever sends an Origin is one
                origins=[None],
                backlog=4096,
                logger=_quiet_logger(),
            )
        except BaseException:
            await self.abandon()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is None or not self._server.is_serving():
            return
        self._server.close()
        await self._server.wait_closed()
        for name, stream in self.streams.items():
            await stream.close(self._committing[name])
        self._let_go()

    async def abandon(self) -> None:
        """Stop as a crash would: what is not on disk yet never will be."""
        for name, stream in self.streams.items():
            await stream.abandon(self._committing[name])
        if self._server is not None:
            for connection in self._server.connections:
                connection.transport.abort()
            self._server.close()
            await self._server.wait_closed()
        self._let_go()

    def _let_go(self) -> None:
        """Leave the directory to whoever comes next."""
        self._threads.shutdown()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def serve_until(self, stopped: asyncio.Event) -> None:
        """Serve until told to stop; a log that cannot be written ends it with a `StateError`."""
        stop = asyncio.create_task(stopped.wait())
        waits: list[asyncio.Future[Any]] = [stop, self._broken]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if self._broken.done():
            self._broken.result()

    def _stream(self, name: str) -> Stream:
        stream = self.streams.get(name)
        if stream is None:
            stream = self.streams[name] = Stream(
                name,
                self.directory / name,
                now=self.now,
                threads=self._threads,
                segment_bytes=self._segment_bytes,
            )
            task = self._committing[name] = asyncio.create_task(stream.commit())
            task.add_done_callback(lambda done: self._committed(name, done))
        return stream

    def _committed(self, name: str, task: asyncio.Task[None]) -> None:
        """A log that cannot be written is the end: nothing may be acknowledged any more."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not self._broken.done():
            self._broken.set_exception(StateError(f"cannot write the log of stream {name!r}: {error}"))

    async def _handle(self, socket: ServerConnection) -> None:
        reason, who = "", _peer(socket)
        try:
            async with asyncio.timeout(HELLO_S):
                raw = await socket.recv()
            connection = self._connection(socket, decode(raw))
            if isinstance(connection, AgentConnection):
                who = f"agent {connection.agent!r} of stream {connection.stream.name} at {who}"
            await connection.serve()
            if isinstance(connection, AgentConnection) and connection.dismissed:
                self._refusals.tell(who, connection.dismissed)
        except TimeoutError:
            reason = f"expected hello within {HELLO_S:.0f} seconds, got nothing"
        except Stopping:
            return
        except (BadMessage, StateError) as error:
            reason = str(error)
        except ConnectionClosed:
            return
        if reason:
            self._refusals.tell(who, reason)
            with suppress(ConnectionClosed):
                await socket.send(encode({"type": "refused", "reason": reason}))

    def _connection(
        self, socket: ServerConnection, hello: Message
    ) -> AgentConnection | CoordinatorConnection | OperatorConnection:
        if hello["type"] != "hello":
            raise bad("message.type", "hello first", hello["type"])
        # the token before all else: who does not know it learns nothing
        token = field(hello, "token", text, "the token") if "token" in hello else ""
        if self._token and not hmac.compare_digest(token.encode(), self._token):
            raise BadMessage("the token is wrong: agents, coordinators and the hub need the same one")
        version = field(hello, "version", whole, "the version of the protocol")
        if version != VERSION:
            raise BadMessage(
                f"hello.version: this hub speaks version {VERSION} of the protocol, not {version}: "
                "install the same release on both sides"
            )
        role = field(hello, "role", text, "agent, coordinator or operator")
        if role not in ("agent", "coordinator", "operator"):
            raise bad("hello.role", "agent, coordinator or operator", role)
        name = field(hello, "stream", name_of, "the name of a stream: letters, digits, _ - and .")
        if role == "agent":
            return AgentConnection(self._stream(name), socket, hello, ping_s=self._ping_s)
        if role == "operator":
            if name not in self.streams:
                there = ", ".join(sorted(self.streams)) or "none"
                raise BadMessage(f"there is no stream {name!r} at this hub; there are: {there}")
            return OperatorConnection(self._stream(name), socket)
        return CoordinatorConnection(self._stream(name), socket, hello)


def _peer(socket: ServerConnection) -> str:
    """The machine at the other end; its port is another one each time."""
    address = socket.remote_address
    return str(address[0]) if address else "somebody"


def _quiet_logger() -> logging.Logger:
    """Connections that come and go are not news; what fails in handling them is."""
    logger = logging.getLogger("slackwater.edge.hub.websockets")
    logger.setLevel(logging.ERROR)
    return logger
