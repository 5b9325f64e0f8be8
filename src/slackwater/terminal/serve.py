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
from slackwater.service.server import Address, check_host, listen, serving

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

    def given(self) -> str | None:
        """The token that the user has given; None where there is none."""
        if self.token_file is None:
            found, where = os.environ.get(VARIABLE), VARIABLE
        else:
            where = f"--token-file {self.token_file}"
            try:
                found = self.token_file.read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                raise SlackwaterError(f"{where}: {getattr(error, 'strerror', None) or error}") from None
        if found is None:
            return None
        if len(found) < SHORTEST or not found.isascii() or not found.isprintable() or " " in found:
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
