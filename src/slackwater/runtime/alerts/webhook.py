"""One address: an event is posted to it, and it takes the event, asks for patience or refuses."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Literal
from urllib.parse import unquote, urlsplit

TIMEOUT_S = 10.0
"""How long a webhook may be silent before an attempt has failed."""
READ_AT_MOST = 65_536
"""Bytes of a response that are read so that the connection can be used again."""
SOON = frozenset((408, 425, 429))
"""Answers of 4xx that mean: try again, not: never."""


@dataclass(frozen=True)
class Outcome:
    """How an attempt went. ``later``: it may go better soon; ``refused``: not by itself."""

    kind: Literal["taken", "later", "refused"]
    text: str = ""
    retry_after: str = ""


class Webhook:
    """Posts to one address, over a connection that is kept while there is something to send."""

    def __init__(self, url: str, timeout: float = TIMEOUT_S) -> None:
        parts = urlsplit(url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        # named always: http.client would look for one behind the last colon of an IPv6 address
        self._port = parts.port or (443 if self._secure else 80)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._timeout = timeout
        self._headers = {"Content-Type": "application/json", "User-Agent": "slackwater"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        self._connection: HTTPConnection | None = None

    def post(self, body: bytes, id_: str) -> Outcome:
        """One attempt; nothing is raised for what the other side or the network does."""
        again = self._connection is not None
        try:
            return self._post(body, id_)
        except ConnectionError as error:
            self.close()
            if not again:
                return Outcome("later", _reason(error))
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            return Outcome("later", _reason(error))
        # a connection that was kept may have been closed meanwhile: that is no failure yet
        return self.post(body, id_)

    def _post(self, body: bytes, id_: str) -> Outcome:
        if self._connection is None:
            self._connection = self._connect()
        connection = self._connection
        connection.request("POST", self._target, body, {**self._headers, "Idempotency-Key": id_})
        response = connection.getresponse()
        status, reason = response.status, response.reason
        retry_after = response.getheader("Retry-After") or ""
        self._finish(response)
        said = f"answered {status} {reason}".rstrip()[:200]
        if 200 <= status < 300:
            return Outcome("taken")
        if 300 <= status < 400:
            return Outcome("refused", f"{said}: redirects are not followed, name the address itself")
        if 400 <= status < 500 and status not in SOON:
            return Outcome("refused", said, retry_after)
        return Outcome("later", said, retry_after)

    def _connect(self) -> HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()
            return HTTPSConnection(self._host, self._port, timeout=self._timeout, context=context)
        return HTTPConnection(self._host, self._port, timeout=self._timeout)

    def _finish(self, response: HTTPResponse) -> None:
        """Read the rest where it is short; what the webhook has to say does not matter."""
        size = response.length
        try:
            if response.will_close or size is None or size > READ_AT_MOST:
                self.close()
            else:
                response.read()
        except (OSError, HTTPException):
            # the status has come, and it is what counts
            self.close()

    def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            # it is let go of, whatever its other side thinks of that
            with contextlib.suppress(OSError):
                connection.close()

    def interrupt(self) -> None:
        """Let an attempt in another thread fail now."""
        connection = self._connection
        sock = connection.sock if connection is not None else None
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def retry_seconds(text: str, now: datetime) -> float:
    """How long Retry-After asks to wait: seconds, or a date; 0 where it cannot be read.

    >>> retry_seconds("120", datetime(2026, 1, 1, tzinfo=UTC))
    120.0
    >>> retry_seconds("Thu, 01 Jan 2026 00:01:00 GMT", datetime(2026, 1, 1, tzinfo=UTC))
    60.0
    """
    text = text.strip()
    if text.isascii() and text.isdecimal():
        return float(text[:12])
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return 0.0
    when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return max(0.0, (when - now).total_seconds())


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "did not answer in time"
    if isinstance(error, HTTPException | ValueError) and not isinstance(error, OSError):
        return f"answered what is no HTTP ({type(error).__name__})"
    return f"could not be reached: {getattr(error, 'strerror', None) or error or type(error).__name__}"[:200]
