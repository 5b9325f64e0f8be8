"""Connections of the service: how many there may be, and how long they may say or take nothing."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from unittest.mock import Mock

import pytest
import uvicorn
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
    still: Still | None = None,
) -> Iterator[Address]:
    """A service with other bounds than usual."""
    protocol = protocol_for(most, head_seconds=head, stalled_seconds=stalled)
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


@pytest.mark.parametrize(("files", "most"), [(1024, 724), (1 << 20, 2_000), (64, 1)])
def test_a_run_keeps_files_for_itself(monkeypatch: pytest.MonkeyPatch, files: int, most: int) -> None:
    monkeypatch.setattr(connections, "allow_many_files", lambda: files)
    assert connections_at_most() == most
