"""Where a command serves its page, and the token that goes with it."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from slackwater.errors import SlackwaterError
from slackwater.service.live import Live
from slackwater.service.server import DEFAULT_PORT, Address, check_host, listen, serving

TOKEN = "service.token"
SHORTEST = 16
VARIABLE = "SLACKWATER_SERVICE_TOKEN"


@dataclass(frozen=True)
class Serve:
    """``--host``, ``--port`` and ``--token-file`` of a command."""

    host: str = "127.0.0.1"
    port: int | None = None
    token_file: Path | None = None

    def listen(self) -> socket.socket:
        """Take the port, before anything that takes long; raises where it cannot be."""
        check_host(self.host, self.given())
        return listen(self.host, self.port)

    def moved(self, listening: socket.socket) -> str:
        """A word on a port other than the usual one, where none was asked for; else empty."""
        port = listening.getsockname()[1]
        if self.port is not None or port == DEFAULT_PORT:
            return ""
        return f"port {DEFAULT_PORT} is taken, so this is port {port}"

    def given(self) -> str | None:
        """The token that the user has given; None where there is none."""
        found, where = given_token(self.token_file)
        if found is not None and (len(found) < SHORTEST or not is_plain(found)):
            raise SlackwaterError(
                f"{where}: expected a token of at least {SHORTEST} plain characters without blanks, "
                f"got {len(found)}; slackwater makes a good one by itself where none is given"
            )
        return found

    def serving(
        self,
        live: Live,
        root: Path,
        listening: socket.socket,
        record: Path | None,
        imports: Sequence[Path],
    ) -> AbstractContextManager[Address]:
        """The service of a run whose state is in a folder; a token that is made is kept there."""
        given = self.given()
        return serving(
            live,
            live.control,
            host=self.host,
            token=given or kept_token(root),
            known=given is not None,
            recording=record,
            imports=imports,
            listening=listening,
        )


def given_token(file: Path | None) -> tuple[str | None, str]:
    """The token in a file, or else in the environment, and where that is; None where there is none."""
    if file is None:
        return os.environ.get(VARIABLE), VARIABLE
    where = f"--token-file {file}"
    try:
        return file.read_text(encoding="utf-8").strip(), where
    except UnicodeDecodeError:
        raise SlackwaterError(f"{where}: it holds no text in UTF-8") from None
    except OSError as error:
        raise SlackwaterError(f"{where}: {error.strerror}") from None


def is_plain(token: str) -> bool:
    """Whether a header can hold a token.

    >>> is_plain("a-token"), is_plain("two\\nlines"), is_plain("Straße")
    (True, False, False)
    """
    return token.isascii() and token.isprintable() and " " not in token


def kept_token(root: Path) -> str:
    """The token of a run: the one it had before, else a new one that only its owner can read."""
    path = root / TOKEN
    # one that others could read may be known to them
    if path.exists() and not path.stat().st_mode & 0o077 and (known := path.read_text().strip()):
        return known
    made = secrets.token_urlsafe(24)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(made + "\n")
    return made
