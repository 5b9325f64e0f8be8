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
REFUSED_LONGEST_S = 30.0
"""Where one alert after the other is refused, it is the address: so long at most until the next one."""
RETRY_AFTER_AT_MOST_S = 3_600.0
"""Longer than that nobody is waited for, whatever Retry-After says."""


@dataclass(frozen=True)
class Held:
    """An alert whose events wait, since the first of them was refused."""

    until: float
    text: str
    times: int


def alert_of(kept: Kept) -> str:
    """The alert that an event is of, in lower case."""
    return kept.event.alert.lower()


def _place(kept: Kept) -> tuple[int, int]:
    """Where an event stands among those of a run."""
    return kept.step, kept.number


def _doubled(times: int, most: float) -> float:
    """Seconds to wait after so many failures.

    >>> [_doubled(times, 300.0) for times in (1, 2, 3, 10)]
    [1.0, 2.0, 4.0, 300.0]
    """
    return min(FIRST_S * 2.0 ** min(times - 1, 30), most)


@dataclass(eq=False)
class Lane:
    """One address. Of each alert events go in order, each after the one before it has been taken.

    One that is refused holds up its own alert and no other: it may be that event, and not the address.
    """

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
    held: dict[str, Held] = field(default_factory=dict)
    """By alert, those of which an event was refused."""
    overflowing: bool = False
    """Whether events have been dropped since one was taken."""
    thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        return len(self.queue) + (self.current is not None)

    def events(self) -> list[Kept]:
        """All that is owed, oldest first."""
        return [*([self.current] if self.current is not None else []), *self.queue]

    def next(self, now: float) -> Kept | None:
        """The event to be tried now; None where none is due."""
        if now < self.due:
            return None
        if self.current is None and self.queue:
            # the oldest that may be taken; what was refused comes after it, or none of it would have a turn
            places = enumerate(self.queue) if self.held else ((0, self.queue[0]),)
            until, place = min((self._held_until(kept), place) for place, kept in places)
            if until <= now:
                self.current = self.queue[place]
                del self.queue[place]
        return self.current

    def due_at(self) -> float:
        """When the next attempt is due."""
        if self.current is not None:
            return self.due
        return max(self.due, min(map(self._held_until, self.queue), default=0.0))

    def _held_until(self, kept: Kept) -> float:
        held = self.held.get(alert_of(kept))
        return 0.0 if held is None else held.until

    def put_back(self) -> None:
        """Let the current event wait with the others; what is under way is not called back."""
        current = self.current
        if current is not None and not self.busy:
            newer = (n for n, kept in enumerate(self.queue) if _place(kept) > _place(current))
            self.queue.insert(next(newer, len(self.queue)), current)
            self.current = None

    def forget(self) -> None:
        """No longer hold alerts of which nothing waits: they were dropped, or point elsewhere."""
        waiting = {alert_of(kept) for kept in self.events()}
        self.held = {alert: held for alert, held in self.held.items() if alert in waiting}

    def taken(self) -> None:
        """The current event has arrived."""
        if self.current is not None:
            self.held.pop(alert_of(self.current), None)
        self.current, self.failures, self.due, self.trouble = None, 0, 0.0, ""
        self.overflowing = False

    @property
    def waits_for_takers(self) -> bool:
        """Whether something waits that is likely to be taken soon."""
        return not self.failures and any(alert_of(kept) not in self.held for kept in self.events())

    def failed(self, outcome: Outcome, now: float, asked: float, rng: random.Random) -> bool:
        """The current event has not arrived; whether that is news.

        ``asked``: the seconds that the webhook wants to be left alone. Many that have failed together must
        not come back together.
        """
        asked = min(asked, RETRY_AFTER_AT_MOST_S)
        if outcome.kind == "refused":
            return self._refused(outcome.text, now, asked, rng)
        self.failures += 1
        self.due = now + max(_doubled(self.failures, LONGEST_S) * rng.uniform(0.5, 1.0), asked)
        self.trouble = outcome.text
        return self.failures == 1

    def _refused(self, text: str, now: float, asked: float, rng: random.Random) -> bool:
        """To be refused once is to be refused soon after: that alert's next attempt is as far off as any.

        Those of others are the sooner the fewer are refused; who has been refused before costs them nothing.
        """
        self.failures, self.trouble = 0, ""
        if self.current is None:
            return False
        alert = alert_of(self.current)
        known = self.held.get(alert)
        until = now + max(LONGEST_S * rng.uniform(0.5, 1.0), asked)
        self.held[alert] = Held(until, text, 1 if known is None else known.times + 1)
        if known is None:
            self.due = now + _doubled(len(self.held), REFUSED_LONGEST_S) * rng.uniform(0.5, 1.0)
        self.put_back()
        return known is None
