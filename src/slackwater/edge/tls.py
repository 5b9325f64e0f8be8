"""The certificate of a hub that speaks wss://, and how agents, coordinators and operators check it."""

from __future__ import annotations

import ssl
from pathlib import Path

from slackwater.errors import SourceError


def client_tls(hub: str, ca: Path | None) -> ssl.SSLContext | None:
    """What is trusted: the machine's own authorities, or the certificates of a file; None without TLS."""
    if not hub.startswith("wss://"):
        return None
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise SourceError(f"ca {ca}: expected a file of certificates (PEM), got {error}") from None


def server_tls(cert: Path, key: Path) -> ssl.SSLContext:
    """What a hub shows to whoever connects."""
    expected = {
        "--cert": (cert, "a file with a certificate (PEM)"),
        "--key": (key, "a file with its key (PEM)"),
    }
    for option, (file, what) in expected.items():
        # of files that cannot be opened ssl tells no name
        try:
            file.open("rb").close()
        except OSError as error:
            raise SourceError(f"{option} {file}: expected {what}, got: {error.strerror}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except ssl.SSLError as error:
        raise SourceError(f"--cert {cert}, --key {key}: {error}") from None
    return context
