"""How agents, coordinators and operators check the certificate of a hub that speaks wss://."""

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
