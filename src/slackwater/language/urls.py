"""Addresses of webhooks: which will do, and how they are shown without what is secret in them."""

from __future__ import annotations

from urllib.parse import urlsplit

LONGEST = 2_000


def why_no_webhook(url: str) -> str:
    """Why events cannot be sent to an address; empty where they can.

    >>> why_no_webhook("http://localhost:8000/alerts")
    ''
    >>> why_no_webhook("ftp://host/")
    'events are sent by http or https, and this address begins otherwise'
    """
    if len(url) > LONGEST:
        return f"this address has {len(url):,} characters; {LONGEST:,} are the most"
    if any(c <= " " or c == "\x7f" for c in url):
        return "there is a blank in this address; write %20 for it"
    if not url.isascii():
        return "this address has letters that an address cannot have; write them as %-codes, a host as xn--…"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"this is no address: {str(error)[:1].lower()}{str(error)[1:]}"
    if parts.scheme not in ("http", "https"):
        return "events are sent by http or https, and this address begins otherwise"
    if not parts.hostname:
        return "this address names no host"
    return "the port of this address is 0" if port == 0 else ""


def shown_url(url: str) -> str:
    """An address for logs and pages: its host alone, since some webhooks have their secret in the path.

    >>> shown_url("https://ann:secret@host:8443/T0/secret?token=1"), shown_url("http://localhost:8600/")
    ('https://host:8443/…', 'http://localhost:8600')
    """
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{'/…' if parts.path.strip('/') or parts.query else ''}"
