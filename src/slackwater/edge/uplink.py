"""An agent's connection to its hub: made, kept, and made again, in an event loop of its own.

Decides nothing about values: it carries messages between the hub and an `AgentState`, under the agent's lock.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidURI

from slackwater.edge.agent_state import AgentState
from slackwater.edge.clock import SteadyClock
from slackwater.edge.messages import VERSION, Declared, Message, Refused, bad, decode, encode
from slackwater.errors import SlackwaterError

FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 30.0
PING_S = 10.0
PONG_S = 30.0
"""How long a hub may take to answer a ping: the answer may wait behind a million grants."""
REVIEW_POLL_S = 0.25
"""How often the clock is looked at when nothing is due: it may be set, or be that of a test."""
STOPPED = "the agent has stopped"
logger = logging.getLogger(__name__)


def delay(attempt: int, random: Callable[[], float]) -> float:
    """Seconds to wait after so many failed attempts: twice as long each time, half of it by chance.

    Without chance all agents of a hub that restarts would come back in the same moment.

    >>> [delay(n, lambda: 1.0) for n in (1, 2, 3, 20)]
    [0.2, 0.4, 0.8, 30.0]
    """
    longest: float = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(attempt - 1, 30))
    return longest * (0.5 + 0.5 * random())


class Uplink:
    """The loop of one agent. ``changed`` is notified when the state or the connection is not what it was."""

    def __init__(
        self,
        state: AgentState,
        changed: threading.Condition,
        *,
        url: str,
        identity: Message,
        clock: SteadyClock,
        random: Callable[[], float],
        tls: ssl.SSLContext | None,
    ) -> None:
        self._state = state
        self._changed = changed
        self._url = url
        self._identity = identity
        self._clock = clock
        self._random = random
        self._tls = tls
        self.connected = False
        self.connections = 0
        self.messages = 0
        self.trouble = "the agent was not started"
        """Why there is no connection: the hub's refusal, or what the network said; empty with one."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._review_soon = asyncio.Event()
        self._stop = asyncio.Event()
        self._anew = asyncio.Event()
        """A new incarnation has begun: what the connection of the old one brings is not for it."""
        self._woken = False

    # from any thread

    def wake(self) -> None:
        """There may be something to send. Called under the agent's lock."""
        if not self._woken and self._loop is not None:
            self._woken = True
            self._call(self._stir)

    def open(self) -> None:
        """Make the loop that `run` runs: from here on it can be woken and stopped."""
        self._loop = asyncio.new_event_loop()
        self.trouble = ""

    def stop(self) -> None:
        self._call(self._stop.set)

    def _call(self, callback: Callable[[], None]) -> None:
        # a loop that was closed needs no calls any more
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(callback)

    # in the loop

    def _stir(self) -> None:
        self._wake.set()
        self._review_soon.set()

    def run(self) -> None:
        """Run until stopped, or until something unforeseen ends it, for all to see; the thread's body."""
        assert self._loop is not None
        loop = self._loop
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self._run())
        finally:
            self._fail(self.trouble or STOPPED)

    def _fail(self, trouble: str) -> None:
        with self._changed:
            self.connected, self.trouble = False, trouble
            self._changed.notify_all()

    async def _run(self) -> None:
        reviewing = asyncio.create_task(self._review())
        stopped = asyncio.create_task(self._stop.wait())
        attempt = 0
        while not self._stop.is_set():
            session = asyncio.create_task(self._session())
            await asyncio.wait({session, stopped, reviewing}, return_when=asyncio.FIRST_COMPLETED)
            if not session.done():
                session.cancel()
            [outcome] = await asyncio.gather(session, return_exceptions=True)
            if reviewing.done():  # bounds that nobody looks after promise nothing: be seen to be gone
                reviewing.result()
            if isinstance(outcome, Exception) and not isinstance(outcome, SlackwaterError | OSError):
                raise outcome
            closed = f"the connection to the hub at {self._url} was closed"
            self._fail(str(outcome) if isinstance(outcome, Exception) else closed)
            # a session that was welcomed and not refused shows that the hub is well: begin with short delays
            attempt = 1 if outcome is None else attempt + 1
            await _within(self._stop, delay(attempt, self._random))
        reviewing.cancel()
        await asyncio.gather(reviewing, return_exceptions=True)

    async def _session(self) -> None:
        """One connection, from hello until it breaks; raises where it came to no welcome, or was refused."""
        try:
            async with connect(
                self._url,
                ssl=self._tls,
                compression=None,
                proxy=None,
                max_size=None,
                ping_interval=PING_S,
                ping_timeout=PONG_S,
                close_timeout=2,
            ) as socket:
                await self._talk(socket)
        except ConnectionClosed as error:
            if not self.connected:
                reason = f"it closed the connection before its welcome: {error}"
                raise Refused(f"cannot connect to the hub at {self._url}: {reason}") from None
        except (InvalidHandshake, InvalidURI, OSError) as error:
            raise Refused(f"cannot connect to the hub at {self._url}: {_reason(error)}") from None

    async def _talk(self, socket: ClientConnection) -> None:
        with self._changed:
            self._anew.clear()
            known = {**self._identity, **self._state.hello()}
        await socket.send(encode({"type": "hello", "role": "agent", "version": VERSION, **known}))
        message = self._heard(await socket.recv())
        if message["type"] != "welcome":
            raise bad("message.type", "welcome", message["type"])
        with self._changed:
            if self._anew.is_set() or not self._state.welcome(message, self._clock()):
                return
            self.connected, self.trouble = True, ""
            self.connections += 1
            self._changed.notify_all()
        self._stir()
        begun = (self._read(socket), self._write(socket), self._ended())
        tasks = [asyncio.create_task(task) for task in begun]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # the agent stops: say so, rather than vanish
            with suppress(ConnectionClosed, TimeoutError):
                async with asyncio.timeout(2):
                    await socket.send(encode({"type": "leave"}))
                    await socket.close()
            raise
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    def _heard(self, raw: str | bytes) -> Message:
        message = decode(raw)
        if message["type"] == "refused":
            raise Refused(f"the hub at {self._url} refused: {message.get('reason')}")
        return message

    async def _read(self, socket: ClientConnection) -> None:
        async for raw in socket:
            message = self._heard(raw)
            with self._changed:
                if self._anew.is_set():
                    return
                if message["type"] == "grants":
                    self._state.grants(message, self._clock())
                elif message["type"] == "sums":
                    self._state.make_sums(message, self._clock())
                elif message["type"] == "received":
                    self._state.outbox.acknowledge(message["number"])
                elif message["type"] == "declare" and not self._state.declare(
                    Declared.parse(message), self._clock()
                ):
                    return
                self._changed.notify_all()
            self._stir()
            # many messages may have come at once: rows and answers to pings go out in between
            await asyncio.sleep(0)

    async def _ended(self) -> None:
        await self._anew.wait()

    async def _write(self, socket: ClientConnection) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while (text := self._next_text()) is not None:
                await socket.send(text)
                self.messages += 1

    def _next_text(self) -> str | None:
        with self._changed:
            self._woken = False
            message = None if self._anew.is_set() else self._state.next_message(self._clock())
        return None if message is None else encode(message)

    async def _review(self) -> None:
        """Apply the filters again whenever bounds change by themselves."""
        while True:
            self._review_soon.clear()
            started = time.monotonic()
            with self._changed:
                now = self._clock()
                if self._clock.behind:
                    now = self._start_again()
                due = self._state.next_review()
                if due is not None and due <= now:
                    self._state.review(now)
                    self._wake.set()
                    continue
            rest = REVIEW_POLL_S if due is None else min(REVIEW_POLL_S, (due - now) / 1e6)
            # with very many keys to look at is work: not more than a twentieth of the time
            pause = min(rest, 20 * (time.monotonic() - started))
            await asyncio.sleep(pause)
            await _within(self._review_soon, rest - pause)

    def _start_again(self) -> int:
        """Begin anew by a clock that was set back: bounds that shrink or move by time cannot wait for it."""
        now = self._clock.go_back()
        logger.warning("all values are told anew, by the time of now")
        self._state.turn_back(now)
        self._anew.set()
        return now


def _reason(error: Exception) -> str:
    """Why there is no connection, in words, and what can be done.

    >>> _reason(ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 7400)"))
    'nobody listens there (connection refused)'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        what = error.verify_message.rstrip(".")
        if "mismatch" in what:
            return f"{what}: use a name that is in it"
        return f"its certificate is not trusted ({what}): give --ca FILE, or ca=, with those that are"
    if isinstance(error, ssl.SSLError | InvalidMessage | ConnectionResetError):
        return f"{str(error) or 'it hung up'}: a hub with --cert speaks wss://, one without speaks ws://"
    if isinstance(error, ConnectionRefusedError) or "Errno 111" in str(error):
        return "nobody listens there (connection refused)"
    if isinstance(error, OSError):
        return error.strerror or str(error) or "no answer"
    return str(error) or "no answer"


async def _within(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, for so long at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
