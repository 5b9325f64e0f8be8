"""A webhook on loopback that does what a test tells it: takes events, fails, hangs, goes away."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """What is answered; with ``hangs`` nothing is, until the server goes."""

    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    hangs: bool = False
    closes: bool = False
    """Whether the connection is closed afterwards, without a word of it."""
    raw: bytes = b""
    """Sent in place of HTTP."""


@dataclass
class Got:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    event: dict[str, Any]


class Receiver:
    """One server; ``answer`` decides on each request."""

    def __init__(self, answer: Callable[[Got], Reply], port: int, protocol: str) -> None:
        self.got: list[Got] = []
        self.connections = 0
        self.answer = answer
        self.gone = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = protocol

            def setup(self) -> None:
                super().setup()
                receiver.connections += 1

            def do_POST(self) -> None:
                if receiver.gone.is_set():
                    # a connection that was kept dies with its server
                    self.close_connection = True
                    return
                body = self.rfile.read(int(self.headers["Content-Length"]))
                got = Got(self.path, dict(self.headers.items()), json.loads(body))
                reply = receiver.answer(got)
                receiver.got.append(got)
                if reply.hangs:
                    receiver.gone.wait(60)
                    self.close_connection = True
                    return
                if reply.raw:
                    self.wfile.write(reply.raw)
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                if reply.status != 204:
                    self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)
                self.close_connection = self.close_connection or reply.closes

            def do_GET(self) -> None:
                raise AssertionError("a redirect was followed")

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing to the standard error of the tests."""

        class Server(ThreadingHTTPServer):
            # connections of a client that is stopped break off: no fault of the server
            def handle_error(self, request: Any, client_address: Any) -> None:
                """Nothing."""

        self._server = Server(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def values(self) -> list[Any]:
        """The values of the events that came, in order."""
        return [got.event["value"] for got in self.got]

    def close(self) -> None:
        self.gone.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)


@contextmanager
def receiving(
    answer: Callable[[Got], Reply] = lambda got: Reply(), *, port: int = 0, protocol: str = "HTTP/1.1"
) -> Iterator[Receiver]:
    receiver = Receiver(answer, port, protocol)
    try:
        yield receiver
    finally:
        receiver.close()


def free_port() -> int:
    """A port that nobody listens at."""
    with receiving() as receiver:
        return receiver.port
