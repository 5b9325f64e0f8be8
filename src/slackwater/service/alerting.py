"""Alerts of a run as frames show them."""

from __future__ import annotations

from slackwater.runtime.engine import Engine
from slackwater.service.keys import plain_keys
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
            url=" and ".join(alert.urls),
            raised=alert.raised,
            groups=[plain_keys(keys) for keys in alert.groups],
            events=alert.events,
            waiting=alert.waiting,
            lost=alert.lost,
            failed=alert.failed,
            trouble=alert.trouble,
        )
        for alert in engine.alerts.status()
    ]
