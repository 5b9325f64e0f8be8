"""The events for one address, in order, and when the next attempt is due."""

from __future__ import annotations

import random
import threading
from collections import deque
from dataclasses import dataclass, field

from slackwater.runtime.alerts.outbox import Kept
from slackwater.runtime.alerts.webhook import Outcome, Webhook

FIRST_S = 1.0
"""After the first attempt that fails; each further one doubles it."""
LONGEST_S = 300.0
RETRY_AFTER_AT_MOST_S = 3_600.0
"""Longer than that nobody is waited for, whatever Retry-After says."""


@dataclass(eq=False)
class Lane:
    """One address. An event that has been tried stays first until it is taken: order is kept."""

    url: str
    webhook: Webhook
    queue: deque[Kept] = field(default_factory=deque)
    current: Kept | None = None
    """The event that is tried, which is not in the queue."""
    busy: bool = False
    """Whether the current event is under way at this moment."""
    failures: int = 0
    """Attempts in a row that have failed."""
    due: float = 0.0
    trouble: str = ""
    overflowing: bool = False
    """Whether events have been dropped since one was taken."""
    thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        return len(self.queue) + (self.current is not None)

    def events(self) -> list[Kept]:
        """All that is owed, oldest first."""
        return [*([self.current] if self.current is not None else []), *self.queue]

    def next(self) -> Kept | None:
        """The event to be tried next."""
        if self.current is None and self.queue:
            self.current = self.queue.popleft()
        return self.current

    def put_back(self) -> None:
        """Let the current event wait with the others; what is under way is not called back."""
        if self.current is not None and not self.busy:
            self.queue.appendleft(self.current)
            self.current = None

    def taken(self) -> None:
        """The current event has arrived."""
        self.current, self.failures, self.due, self.trouble = None, 0, 0.0, ""
        self.overflowing = False

    def failed(self, outcome: Outcome, now: float, asked: float, rng: random.Random) -> None:
        """The current event has not arrived; ``asked``: the seconds that the webhook wants to be left alone.

        To be refused once is to be refused soon after: the next attempt is as far off as any.
        """
        self.failures += 1
        doubled = FIRST_S * 2.0 ** min(self.failures - 1, 30)
        delay = LONGEST_S if outcome.kind == "refused" else min(doubled, LONGEST_S)
        # many that have failed together must not come back together
        delay *= rng.uniform(0.5, 1.0)
        self.due = now + max(delay, min(asked, RETRY_AFTER_AT_MOST_S))
        self.trouble = outcome.text
