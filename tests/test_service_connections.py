"""Connections of the service: how many there may be, and how long they may say or take nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from unittest.mock import Mock

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from service_client import PATIENCE_S, Client, raw
from service_still import Still, a_frame
from slackwater.service import connections, events
from slackwater.service.connections import connections_at_most, protocol_for
from slackwater.service.events import Readers
from slackwater.service.server import Address, serving
from waiting import wait_for

WHOLE = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def bounded(
    monkeypatch: pytest.MonkeyPatch,
    most: int = 100,
    head: float = PATIENCE_S,
    stalled: float = PATIENCE_S,
    keep_alive: float = PATIENCE_S,
    still: Still | None = None,
) -> Iterator[Address]:
    """A service with other bounds than usual."""
    protocol = protocol_for(most, head_seconds=head, stalled_seconds=stalled, keep_alive_seconds=keep_alive)
    monkeypatch.setattr("slackwater.service.server.protocol_for", lambda _: protocol)
    with serving(still or Still(), port=0) as address:
        yield address


def connected(address: Address) -> socket.socket:
    return socket.create_connection((address.host, address.port), timeout=PATIENCE_S)


def closed(connection: socket.socket) -> bool:
    """Whether the service has closed it; waits for that."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_a_connection_too_many_is_told_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with bounded(monkeypatch, most=2) as address:
        with connected(address) as one, connected(address) as two:
            for connection in (one, two):
                connection.sendall(WHOLE)
                assert connection.recv(12) == b"HTTP/1.1 200"
            said = raw(address, b"")
            assert said.problem(503)["detail"] == (
                "there are 2 connections already, which is the most: try again"
            )
            assert said.headers["retry-after"] == "10"
        client = Client(address)
        wait_for(lambda: client.get("/api/health").status == 200)


@pytest.mark.parametrize("begun", [b"", b"GET /api/health HT", WHOLE[:-2]])
def test_a_head_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    with bounded(monkeypatch, head=0.1) as address, connected(address) as connection:
        connection.sendall(begun)
        assert closed(connection)


def test_a_second_head_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with bounded(monkeypatch, head=0.2) as address, connected(address) as connection:
        connection.sendall(WHOLE)
        found = b""
        while not found.endswith(b"}"):
            found += connection.recv(4096)
        connection.sendall(b"GET /")
        assert closed(connection)


def test_who_listens_may_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "QUIET_S", 0.05)
    with bounded(monkeypatch, head=0.01) as address, Client(address).events("/api/events") as found:
        assert [name for name, _, _ in islice(found, 6)] == ["frame", *":::::"]


def test_who_takes_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    readers = Readers()
    monkeypatch.setattr("slackwater.service.server.Readers", lambda: readers)
    # more than the buffers of a connection hold
    still = Still(a_frame(1, message="x" * 20_000_000))
    with bounded(monkeypatch, stalled=0.1, still=still) as address, connected(address) as connection:
        connection.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 200"
        wait_for(lambda: readers.count == 1)
        wait_for(lambda: readers.count == 0)


def test_who_takes_it_slowly_is_waited_for() -> None:
    loop, transport = Mock(), Mock()
    transport.get_extra_info.return_value = None
    config = uvicorn.Config(Mock())
    protocol = protocol_for(1, stalled_seconds=7.0)(config, ServerState(), {}, _loop=loop)
    protocol.connection_made(transport)

    def after(size: int) -> Callable[[], object]:
        """What is done when the time is over, with so many bytes that wait then."""
        seconds, then, *given = loop.call_later.call_args.args
        assert seconds == 7.0
        transport.get_write_buffer_size.return_value = size
        return lambda: then(*given)

    transport.get_write_buffer_size.return_value = 5_000_000
    protocol.pause_writing()
    for size in (4_000_000, 3_999_999):
        after(size)()
        assert not transport.abort.called
    after(3_999_999)()
    transport.abort.assert_called_once_with()


@dataclass
class Over:
    """Notes that a connection was told that it has waited long enough for its next request."""

    event: threading.Event = field(default_factory=threading.Event)
    protocol: H11Protocol | None = None

    def there(self) -> bool:
        """Whether the service still has the connection."""
        assert self.protocol is not None
        return self.protocol in self.protocol.connections


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> Over:
    found = Over()
    handle = connections._Bounded.timeout_keep_alive_handler

    def handled(protocol: connections._Bounded) -> None:
        handle(protocol)
        found.protocol = protocol
        found.event.set()

    monkeypatch.setattr(connections._Bounded, "timeout_keep_alive_handler", handled)
    return found


@contextmanager
def asking_for_much(address: Address) -> Iterator[socket.socket]:
    """A connection that has asked for a whole frame, with little room for what comes."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        connection.settimeout(PATIENCE_S)
        connection.connect((address.host, address.port))
        connection.sendall(b"GET /api/frame HTTP/1.1\r\nHost: localhost\r\n\r\n")
        yield connection


LARGE = Still(a_frame(1, message="x" * 2**23))


def test_who_takes_a_large_answer_slowly_gets_all_of_it(monkeypatch: pytest.MonkeyPatch, over: Over) -> None:
    with (
        bounded(monkeypatch, keep_alive=0.05, still=LARGE) as address,
        asking_for_much(address) as connection,
    ):
        found = connection.recv(2**16)
        # it is answered, and so far nothing was asked again
        assert over.event.wait(PATIENCE_S)
        while part := connection.recv(2**16):
            found += part
        head, _, body = found.partition(b"\r\n\r\n")
        assert f"content-length: {len(body)}".encode() in head.lower()
        assert body == LARGE.whole()
        wait_for(lambda: not over.there())


def test_who_takes_nothing_of_a_large_answer_is_let_go(monkeypatch: pytest.MonkeyPatch, over: Over) -> None:
    with (
        bounded(monkeypatch, keep_alive=0.05, stalled=0.1, still=LARGE) as address,
        asking_for_much(address) as connection,
    ):
        assert over.event.wait(PATIENCE_S)
        wait_for(lambda: not over.there())
        taken = 0
        while part := connection.recv(2**16):
            taken += len(part)
        assert taken < len(LARGE.whole()), "what the system had in hand, and no more"


def test_who_takes_not_quite_all_is_let_go_too() -> None:
    loop, transport = Mock(), Mock()
    transport.get_extra_info.return_value = None
    protocol = protocol_for(1, stalled_seconds=7.0)(uvicorn.Config(Mock()), ServerState(), {}, _loop=loop)
    protocol.connection_made(transport)
    transport.is_closing.return_value = False
    transport.get_write_buffer_size.return_value = 1_000
    protocol.timeout_keep_alive_handler()
    transport.close.assert_called_once_with()
    seconds, then, *given = loop.call_later.call_args.args
    timer = loop.call_later.return_value
    assert seconds == 7.0
    transport.is_closing.return_value = True
    timer.cancel.reset_mock()
    protocol.resume_writing()
    assert not timer.cancel.called
    then(*given)
    transport.abort.assert_called_once_with()


@pytest.mark.parametrize(("files", "most"), [(1024, 724), (1 << 20, 2_000), (64, 1)])
def test_a_run_keeps_files_for_itself(monkeypatch: pytest.MonkeyPatch, files: int, most: int) -> None:
    monkeypatch.setattr(connections, "allow_many_files", lambda: files)
    assert connections_at_most() == most
