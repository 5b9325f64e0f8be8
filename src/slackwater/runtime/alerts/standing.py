"""What is known of alerts between two turns, as the text that a commit holds.

It is one text for all: a commit is copied and written field by field, and there may be thousands of groups.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from slackwater.runtime.alerts.watching import Raised, Standing


class StandingText:
    """Writes standings, and does not write again what has stayed the same."""

    def __init__(self) -> None:
        self._raised: dict[str, tuple[dict[str, Raised], str]] = {}

    def write(self, run: str, standings: Mapping[str, Standing]) -> str:
        """All of them as JSON; ``run`` is what the ids of events begin from."""
        self._raised = {name: kept for name, kept in self._raised.items() if name in standings}
        parts = [f"{json.dumps(name)}:{self._one(name, standing)}" for name, standing in standings.items()]
        return f'{{"run":{json.dumps(run)},"alerts":{{{",".join(parts)}}}}}'

    def _one(self, name: str, standing: Standing) -> str:
        known = self._raised.get(name)
        if known is None or known[0] is not standing.raised:
            groups = {g: [r.since, r.missed, r.line] for g, r in standing.raised.items()}
            known = self._raised[name] = standing.raised, json.dumps(groups)
        head = [standing.watches, standing.stream, standing.reached, standing.events]
        return f'{{"head":{json.dumps(head)},"raised":{known[1]}}}'


def read_standings(text: str) -> tuple[str, dict[str, Standing]]:
    """The run and the standings of a text; nothing where there is none yet."""
    if not text:
        return "", {}
    value: dict[str, Any] = json.loads(text)
    standings = {}
    for name, kept in value["alerts"].items():
        watches, stream, reached, events = kept["head"]
        raised = {
            g: Raised(int(since), int(missed), line) for g, (since, missed, line) in kept["raised"].items()
        }
        standings[name] = Standing(watches, stream, int(reached), int(events), raised)
    return str(value["run"]), standings
