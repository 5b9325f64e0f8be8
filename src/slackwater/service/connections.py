"""Connections of the service: how many there may be, and how long each may say or take nothing.

The service lives in the driver of a run, which needs files of its own. So connections beyond a number are
told to come back and closed, those that send no whole request are closed, and so are those that take nothing
of what they have asked for: each would else hold a file, and what waits to be sent to it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from slackwater.edge.limits import allow_many_files
from slackwater.service.problems import problem

MOST = 2_000
"""Connections at a time, event streams among them."""
OWN_FILES = 300
"""Files and connections that are left to the run."""
HEAD_SECONDS = 10.0
"""How long the head of a request may take to come."""
STALLED_SECONDS = 30.0
"""How long a reader may take nothing of what waits for it."""
KEEP_ALIVE_SECONDS = 30.0
"""How long after a response a connection waits for the next request."""


def connections_at_most() -> int:
    """How many connections there may be: what this process may have open, less what its run needs."""
    return max(1, min(MOST, allow_many_files() - OWN_FILES))


def protocol_for(
    most: int,
    *,
    head_seconds: float = HEAD_SECONDS,
    stalled_seconds: float = STALLED_SECONDS,
    keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
) -> type[H11Protocol]:
    """The protocol of a server that has at most so many connections at a time."""

    class Bounded(_Bounded):
        at_most = most
        head_s = head_seconds
        stalled_s = stalled_seconds
        keep_alive_s = keep_alive_seconds

    return Bounded


class _Bounded(H11Protocol):
    """HTTP as uvicorn speaks it, with an end to each wait."""

    at_most: int
    head_s: float
    stalled_s: float
    keep_alive_s: float

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.timeout_keep_alive = self.keep_alive_s  # type: ignore[assignment]
        self._refused = False
        self._head: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self.at_most:
            self._refused = True
            transport.write(_too_many(self.at_most))
            transport.close()
            return
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        _off(self._head)
        _off(self._stalled)
        if not self._refused:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            # the head is there; a body that is slow is the guard's
            _off(self._head)
            self._head = None
        elif self._head is None:
            self._await_head()

    def _await_head(self) -> None:
        # for all of it: a byte now and then does not earn more time
        self._head = self.loop.call_later(self.head_s, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look_again()

    def _look_again(self) -> None:
        _off(self._stalled)
        waiting = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(self.stalled_s, self._look, waiting)

    def _look(self, waiting: int) -> None:
        """Let go of who has taken nothing of what waited; a slow reader is none that has stalled."""
        if self.transport.get_write_buffer_size() < waiting:
            self._look_again()
        else:
            # to close it would wait for what it does not take
            self.transport.abort()

    def resume_writing(self) -> None:
        # of one that is closed the rest is watched, too: nobody else would ever let go of it
        if not self.transport.is_closing():
            _off(self._stalled)
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        # to close it writes all that still waits, for as long as some of it is taken
        super().timeout_keep_alive_handler()
        if self.transport.get_write_buffer_size():
            self._look_again()


def _off(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _too_many(most: int) -> bytes:
    said = problem(503, f"there are {most:,} connections already, which is the most: try again")
    body = bytes(said.body)
    head = (
        "HTTP/1.1 503 Service Unavailable\r\n"
        f"content-type: {said.media_type}\r\ncontent-length: {len(body)}\r\n"
        "retry-after: 10\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
