"""A plain HTTP client for tests of the service: nothing but the standard library between them and the wire."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from slackwater.service.server import Address

PATIENCE_S = 30.0
PROBLEM = "application/problem+json"


@dataclass(frozen=True)
class Said:
    """A response: its status, its headers in lower case, and its body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0]

    def json(self) -> Any:
        return json.loads(self.body)

    def problem(self, status: int) -> dict[str, Any]:
        """The problem that this must be."""
        assert (self.status, self.kind) == (status, PROBLEM), self.body
        found: dict[str, Any] = self.json()
        assert found["status"] == status
        assert found["title"]
        assert found["detail"]
        return found

    def ok(self, status: int = 200) -> Any:
        """What a response that must be right says."""
        assert (self.status, self.kind) == (status, "application/json"), self.body
        return self.json()


@dataclass(frozen=True)
class Client:
    """Asks one service; each request has a connection of its own."""

    address: Address
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: Any = None, *, token: bool = False, **headers: str) -> Said:
        """One request; ``headers`` have _ for -."""
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if token:
            sent["Authorization"] = f"Bearer {self.address.token}"
        data = body
        if isinstance(body, dict | list | str):
            data = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        connection = HTTPConnection(self.address.host, self.address.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            return Said(response.status, _headers(response), response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Said:
        return self.ask("GET", path, **headers)

    def change(self, method: str, path: str, body: Any = None) -> Said:
        """With the token."""
        return self.ask(method, path, body, token=True)

    @contextmanager
    def events(self, path: str, **headers: str) -> Iterator[Iterator[tuple[str, int, Any]]]:
        """The events of a stream: name, number and data; a comment is the event `:`."""
        connection = HTTPConnection(self.address.host, self.address.port, timeout=PATIENCE_S)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", path, headers={**self.headers, **sent})
        response = connection.getresponse()
        try:
            assert response.status == 200, response.read()
            assert (response.getheader("content-type") or "").startswith("text/event-stream")
            yield _events(response)
        finally:
            response.close()
            connection.close()


def raw(address: Address, data: bytes) -> Said:
    """What a service says to bytes that no well behaved client would send."""
    with socket.create_connection((address.host, address.port), timeout=PATIENCE_S) as connection:
        connection.sendall(data)
        response = HTTPResponse(connection)
        response.begin()
        return Said(response.status, _headers(response), response.read())


def _headers(response: HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _events(response: HTTPResponse) -> Iterator[tuple[str, int, Any]]:
    name, number, data = "", 0, b""
    for line in response:
        text = line.rstrip(b"\n")
        if text.startswith(b":"):
            yield ":", 0, text.decode()
        elif text.startswith(b"event: "):
            name = text[7:].decode()
        elif text.startswith(b"id: "):
            number = int(text[4:])
        elif text.startswith(b"data: "):
            data = text[6:]
        elif not text and name:
            yield name, number, json.loads(data)
            name, number, data = "", 0, b""
