"""Alerts of a run as frames show them."""

from __future__ import annotations

from urllib.parse import urlsplit

from slackwater.runtime.engine import Engine
from slackwater.service.models import AlertFrame


def alert_frames(engine: Engine | None) -> list[AlertFrame]:
    """All alerts at this moment."""
    if engine is None:
        return []
    return [
        AlertFrame(
            name=alert.name,
            query=alert.query,
            condition=f"{alert.condition} {alert.certainty.upper()}",
            url=" and ".join(map(_host, alert.urls)),
            raised=alert.raised,
            events=alert.events,
            waiting=alert.waiting,
            trouble=alert.trouble,
        )
        for alert in engine.alerts.status()
    ]


def _host(url: str) -> str:
    """An address without its path: some webhooks have their secret in it.

    >>> _host("https://hooks.example/services/T0/B1"), _host("http://localhost:8600/")
    ('https://hooks.example/…', 'http://localhost:8600')
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{'/…' if parts.path.strip('/') or parts.query else ''}"
