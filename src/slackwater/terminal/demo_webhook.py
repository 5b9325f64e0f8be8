"""Whom the demo's alert tells: a webhook on this machine, which keeps what it was told."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

LONGEST = 65_536
"""Bytes of an event: more is not from this run."""

EVENTS = 1_000
"""Events that are kept, the newest."""


class Receiver:
    """Takes events from entering to leaving. One that comes twice, as it may, is kept once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: dict[str, dict[str, Any]] = {}
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            """One request; they are not logged."""

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", "0"))
                taken = length <= LONGEST and receiver.take(self.rfile.read(length))
                self.send_response(204 if taken else 400)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: the page shows what was told."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="demo-webhook", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def take(self, body: bytes) -> bool:
        """Keep an event; whether it is one."""
        try:
            event = json.loads(body)
            id_ = str(event["id"])
        except (ValueError, KeyError, TypeError):
            return False
        with self._lock:
            self._events.setdefault(id_, event)
            while len(self._events) > EVENTS:
                del self._events[next(iter(self._events))]
        return True

    @property
    def events(self) -> list[dict[str, Any]]:
        """What was told, in the order in which it came; of very much the newest."""
        with self._lock:
            return list(self._events.values())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
