"""Who may ask what: loopback names, the token, where changes come from, and how large they may be.

On loopback reading is free, and whatever changes state needs the token. Elsewhere everything does.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slackwater.service.problems import problem

BODY_AT_MOST = 256 * 2**10
TOO_LARGE = f"the body is larger than {BODY_AT_MOST:,} bytes, which is the most"
BODY_SECONDS = 10.0
"""How long a body may take to come."""
PATH_AT_MOST = 8_192
HEAD_AT_MOST = 16 * 2**10
READS = frozenset(("GET", "HEAD", "OPTIONS"))
FREE_POSTS = frozenset(("/api/preview",))
"""What is posted and changes nothing."""
TRUSTED = "slackwater.trusted"
"""In the scope of a request: whether it has the token, where it can do without."""
NEEDED = (
    "Authorization: Bearer TOKEN; it is the one of --token-file or SLACKWATER_SERVICE_TOKEN, else it is "
    "printed where the run was started, as the end of the page's address, after #token="
)
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="slackwater"'}
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        b"font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


def is_loopback(host: str) -> bool:
    """Whether an address or a name is this machine alone.

    >>> [is_loopback(h) for h in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org", "127.evil.org")]
    [True, True, True, False, False, False]
    """
    if host.lower() in ("localhost", "localhost."):
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Guard:
    """An ASGI layer around the app."""

    app: ASGIApp
    token: str
    loopback: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self._refusal(scope, headers)
        if refused is not None:
            status, detail, more = refused
            await problem(status, detail, headers=more)(scope, receive, _with_headers(send))
            return
        if scope["method"] == "HEAD" and not path_streams(scope["path"]):
            scope, send = {**scope, "method": "GET"}, _without_body(send)
        scope = {**scope, TRUSTED: self._knows(headers)}
        await self.app(scope, _limited(receive), _with_headers(send))

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str, dict[str, str]] | None:
        """Status, text and headers where a request is refused."""
        path, method = scope["path"], scope["method"]
        if len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") > PATH_AT_MOST:
            return 414, f"the address is longer than {PATH_AT_MOST:,} bytes, which is the most", {}
        host = _host(headers.get("host", ""))
        if self.loopback and not is_loopback(host):
            # a page elsewhere could have its own name point here, and read what is free on loopback
            return 421, f"this service answers to localhost and 127.0.0.1, not to {host!r}", {}
        if sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > HEAD_AT_MOST:
            return 431, f"the headers are longer than {HEAD_AT_MOST:,} bytes, which is the most", {}
        changes = method not in READS and path not in FREE_POSTS
        origin = headers.get("origin")
        if method not in READS and origin is not None and not _same_origin(origin, headers):
            return 403, f"a page of {origin} may not change anything here", {}
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > BODY_AT_MOST:
            return 413, TOO_LARGE, {}
        if (changes or (not self.loopback and path.startswith(("/api", "/metrics")))) and not self._knows(
            headers
        ):
            other = "; the one that was sent is another" if headers.get("authorization") else ""
            return 401, f"this needs the token of the run{other}: {NEEDED}", CHALLENGE
        return None

    def _knows(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and secrets.compare_digest(
            given.strip().encode(), self.token.encode()
        )


def path_streams(path: str) -> bool:
    """Whether what is at a path has no end, so that there is no asking for its headers alone."""
    return path.endswith("/events")


def _limited(receive: Receive) -> Receive:
    """The body as far as it may go, in the time that it may take; what comes after it as it comes."""
    taken = 0
    done = False
    deadline: float | None = None

    async def limited() -> Message:
        nonlocal taken, done, deadline
        if done:
            # waiting for the reader to leave is no slow body
            return await receive()
        if deadline is None:
            # for all of it: a byte now and then does not earn more time
            deadline = asyncio.get_running_loop().time() + BODY_SECONDS
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, f"the body did not come within {BODY_SECONDS:g} seconds") from None
        if message["type"] == "http.request":
            taken += len(message.get("body", b""))
            done = not message.get("more_body", False)
            if taken > BODY_AT_MOST:
                raise HTTPException(413, TOO_LARGE)
        return message

    return limited


def _with_headers(send: Send) -> Callable[[Message], Awaitable[None]]:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            given: list[Any] = list(message.get("headers", ()))
            message = {**message, "headers": [*given, *HEADERS]}
        await send(message)

    return sent


def _without_body(send: Send) -> Send:
    """For HEAD: the headers of GET and nothing after them."""

    async def sent(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return sent


def _host(header: str) -> str:
    """The name in a Host header, without its port.

    >>> _host("localhost:8400"), _host("[::1]:8400"), _host("127.0.0.1")
    ('localhost', '[::1]', '127.0.0.1')
    """
    if header.startswith("["):
        return header.partition("]")[0] + "]"
    return header.partition(":")[0]


def _same_origin(origin: str, headers: Headers) -> bool:
    scheme, _, host = origin.partition("://")
    return scheme in ("http", "https") and host.lower() == headers.get("host", "").lower()
