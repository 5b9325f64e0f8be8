"""What is copied of a run at the end of each turn: little, since the engine waits for it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slackwater.planners.decision import Decision
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.bounds.shown import AgentsShown
from slackwater.runtime.clocks import Clocks
from slackwater.runtime.engine import Engine
from slackwater.runtime.insight import Glimpse
from slackwater.runtime.json_values import time_text

DECISIONS = 1_000
"""Decisions that are kept."""
RATES = 200_000
"""Rates in all decisions that are kept: of thousands of queries each decision has thousands."""
SPARING = 50.0
"""A copy that takes a second is made every fifty seconds, and not more often than twice a second."""
LEAST_S = 0.5


@dataclass
class Capture:
    """Listens to an engine; `take` gives what has come since the last call, from any thread."""

    clocks: Clocks
    engine: Engine | None = None
    glimpse: Glimpse | None = None
    agents: tuple[AgentsShown, ...] = ()
    decisions: deque[dict[str, Any]] = field(default_factory=deque)
    _rates: int = 0
    """In the decisions that are kept."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pending: list[AnswerBatch] = field(default_factory=list)
    _committed: list[tuple[int, AnswerBatch]] = field(default_factory=list)
    """Answers, each with the version of the query set that they were made under."""
    _seen: dict[str, int] = field(default_factory=dict)
    """By stream: the last turn whose decision is kept."""
    _next: float = 0.0

    def watch(self, engine: Engine) -> None:
        """Attach to an engine before its first turn: one of `Session.watchers`."""
        self.engine = engine
        engine.board.listeners.append(self._pending.append)
        engine.observers.append(self._after)

    def _after(self, engine: Engine) -> None:
        """The end of a turn, under the engine's lock."""
        with self._lock:
            self._committed += [(engine.version, batch) for batch in self._pending]
            self._pending.clear()
            for name, decision in engine.decided.items():
                if self._seen.get(name) != decision.turn:
                    self._seen[name] = decision.turn
                    self._keep(told(decision, time_text(self.clocks.now())))
        now = self.clocks.seconds()
        if now < self._next:
            return
        self.glimpse = Glimpse.of(engine)
        self.agents = tuple(keeper.shown() for keeper in engine.bounds.values())
        took = self.clocks.seconds() - now
        self._next = now + max(LEAST_S, SPARING * took)

    def _keep(self, decision: dict[str, Any]) -> None:
        self._rates += len(decision["rates"])
        while self.decisions and (len(self.decisions) >= DECISIONS or self._rates > RATES):
            self._rates -= len(self.decisions.popleft()["rates"])
        self.decisions.append(decision)

    def take(self) -> list[tuple[int, AnswerBatch]]:
        """The answers of turns that have been committed since the last call, with the turns' versions."""
        with self._lock:
            taken, self._committed = self._committed, []
            return taken

    def newest(self, stream: str | None, limit: int) -> list[dict[str, Any]]:
        """The newest decisions, newest first."""
        with self._lock:
            kept = list(self.decisions)
        fitting = [d for d in reversed(kept) if stream is None or d["stream"].lower() == stream.lower()]
        return fitting[:limit]


def told(decision: Decision, at: str) -> dict[str, Any]:
    """A decision as it is told: long lists as their lengths."""
    queries: Mapping[str, Any] = decision.schedule.get("queries", {})
    return {
        "at": at,
        "stream": decision.stream,
        "turn": decision.turn,
        "kind": decision.kind,
        "batch": decision.batch,
        "version": decision.version,
        "watermark": decision.watermark,
        "offsets": dict(decision.offsets),
        "level": decision.level,
        "rates": dict(decision.thresholds),
        "suspended": list(decision.suspended),
        "read": decision.share,
        "blocks": len(decision.blocks),
        "leaves_out_windows": sorted(n for n, q in queries.items() if q.get("out") or q.get("shut")),
        "measured": decision.measured,
        "salt": decision.salt,
    }
