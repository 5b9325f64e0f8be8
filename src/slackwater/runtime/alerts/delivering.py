"""Events on their way to webhooks: a thread for each address that has something to get, none for others.

Whatever is not taken is tried again for as long as its alert is declared, ever more slowly. What waits for
one address holds up no other, and nothing of it holds up the pipeline.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

from slackwater.runtime.alerts.events import Event
from slackwater.runtime.alerts.lanes import Lane
from slackwater.runtime.alerts.outbox import Addresses, Kept, Outbox, mark_of
from slackwater.runtime.alerts.webhook import TIMEOUT_S, Outcome, Webhook, retry_seconds
from slackwater.runtime.clocks import Clocks

WAITING_AT_MOST = 10_000
"""Events that wait for one address; when there are more, the oldest are dropped and counted."""
LOOK_S = 0.5
"""How often a thread that waits looks at the clock."""
JOIN_S = 2.0
"""How long threads may take to notice that all is over; they are daemons."""

logger = logging.getLogger(__name__)


class Delivery:
    """Sends what the outbox holds. What it knows is behind one lock, which is not held while it sends."""

    def __init__(
        self,
        outbox: Outbox,
        clocks: Clocks,
        *,
        rng: random.Random | None = None,
        timeout: float = TIMEOUT_S,
        at_most: int = WAITING_AT_MOST,
    ) -> None:
        self.outbox = outbox
        self._clocks = clocks
        self._rng = rng or random.Random()
        self._timeout = timeout
        self._at_most = at_most
        self._lanes: dict[str, Lane] = {}
        self._addresses: Addresses = {}
        self._changed = threading.Condition()
        self._running = False
        self._stopped = False
        self._lost: dict[str, int] = {}
        self._failed: dict[str, int] = {}

    def open(self, step: int, addresses: Addresses) -> None:
        """Go on with what was owed after the last committed step."""
        with self._changed:
            found = self.outbox.open(step)
            self._addresses = addresses
            self._owe(found)

    def declare(self, addresses: Addresses) -> None:
        """Alerts have changed: what waits goes to where they point now, and of dropped ones nowhere."""
        with self._changed:
            owed = {id(k): k for lane in self._lanes.values() for k in lane.events()}
            self._addresses = addresses
            for lane in self._lanes.values():
                lane.put_back()
                lane.queue.clear()
            self._owe(sorted(owed.values(), key=lambda kept: (kept.step, kept.number)))
            for lane in self._lanes.values():
                lane.forget()
            known = {url for urls in addresses.values() for url in urls}
            self._lanes = {u: lane for u, lane in self._lanes.items() if u in known or lane.waiting}
            self._changed.notify_all()

    def admit(self, step: int, events: Sequence[Event]) -> None:
        """The events of a step that has been committed."""
        with self._changed:
            self._owe(self.outbox.admit(step, events))

    def _owe(self, kept: Sequence[Kept]) -> None:
        for one in list(kept):
            urls = self._addresses.get(one.event.alert.lower(), ())
            missing = [url for url in urls if mark_of(url) not in one.taken]
            for url in missing:
                lane = self._lanes.setdefault(url, Lane(url, Webhook(url, self._timeout)))
                if one is not lane.current:
                    lane.queue.append(one)
            if not missing:
                with _noting("that nobody waits for an event"):
                    self.outbox.discard(one)
        for lane in self._lanes.values():
            self._bound(lane)
            self._attend(lane)

    def _bound(self, lane: Lane) -> None:
        dropped = 0
        if lane.waiting > self._at_most:
            lane.put_back()
        while lane.queue and lane.waiting > self._at_most:
            oldest = lane.queue.popleft()
            alert = oldest.event.alert.lower()
            with _noting("that an event was dropped"):
                self.outbox.took(oldest, lane.url, self._addresses.get(alert, ()))
            self._lost[alert] = self._lost.get(alert, 0) + 1
            dropped += 1
        if dropped and not lane.overflowing:
            lane.overflowing = True
            logger.warning(
                "%s does not take its events, and %d wait for it: from now on the oldest are dropped",
                host_of(lane.url),
                self._at_most,
            )

    # --- sending ---------------------------------------------------------------------------------

    def deliver(self) -> int:
        """Send what is due now, in this thread; how many attempts that took. For runs without threads."""
        attempts = 0
        for lane in list(self._lanes.values()):
            while True:
                with self._changed:
                    kept = lane.next(self._clocks.seconds())
                    lane.busy = kept is not None
                if kept is None:
                    break
                self._attempt(lane, kept)
                attempts += 1
            lane.webhook.close()
        return attempts

    def start(self) -> None:
        """From now on what is owed is sent by threads."""
        with self._changed:
            self._running = True
            for lane in self._lanes.values():
                self._attend(lane)

    def _attend(self, lane: Lane) -> None:
        if self._running and lane.waiting and lane.thread is None:
            name = f"slackwater-alerts-{host_of(lane.url)}"
            lane.thread = threading.Thread(target=self._serve, args=(lane,), daemon=True, name=name)
            lane.thread.start()

    def _serve(self, lane: Lane) -> None:
        while True:
            with self._changed:
                if not lane.waiting or not self._running:
                    # first of all: from then on the connection may be that of another thread
                    lane.webhook.close()
                    lane.thread = None
                    self._changed.notify_all()
                    return
                now = self._clocks.seconds()
                kept = lane.next(now)
                if kept is None:
                    self._changed.wait(min(max(lane.due_at() - now, 0.0), LOOK_S))
                    continue
                lane.busy = True
            self._attempt(lane, kept)

    def _attempt(self, lane: Lane, kept: Kept) -> None:
        attempt = kept.attempts[lane.url] = kept.attempts.get(lane.url, 0) + 1
        try:
            outcome = lane.webhook.post(kept.event.body(attempt), kept.event.id)
        except Exception as error:
            # whatever it is, a thread that ends by it would leave all that waits for this address behind
            lane.webhook.close()
            outcome = _unexpected(error)
        with self._changed:
            lane.busy = False
            # the state may be another run's by now: what has just arrived is sent again by that one
            if not self._stopped:
                try:
                    self._settle(lane, kept, outcome)
                except Exception as error:
                    unexpected = _unexpected(error)
                    logger.warning("%s %s after an attempt", host_of(lane.url), unexpected.text)
                    lane.failed(unexpected, self._clocks.seconds(), 0.0, self._rng)
            self._changed.notify_all()

    def _settle(self, lane: Lane, kept: Kept, outcome: Outcome) -> None:
        urls = self._addresses.get(kept.event.alert.lower(), ())
        alert = kept.event.alert.lower()
        if outcome.kind == "taken":
            held = lane.held.get(alert)
            failures = lane.failures if held is None else held.times
            if failures:
                failed = "1 failed attempt" if failures == 1 else f"{failures} failed attempts"
                logger.warning("%s takes events again, after %s", host_of(lane.url), failed)
            lane.taken()
            with _noting("that an event was taken"):
                self.outbox.took(kept, lane.url, urls)
            return
        if lane.url not in urls:
            # its alert was dropped, or points elsewhere, while it was under way
            lane.current = None
            lane.forget()
        else:
            self._failed[alert] = self._failed.get(alert, 0) + 1
        asked = retry_seconds(outcome.retry_after, self._clocks.now()) if outcome.retry_after else 0.0
        if lane.failed(outcome, self._clocks.seconds(), asked, self._rng):
            logger.warning(
                "%s %s: what alerts have to tell it waits, and is tried again",
                host_of(lane.url),
                outcome.text,
            )

    # --- looking and stopping --------------------------------------------------------------------

    def waiting(self) -> dict[str, int]:
        """By alert: events that some address has not taken."""
        counts: dict[str, int] = {}
        with self._changed:
            owed = {id(kept): kept for lane in self._lanes.values() for kept in lane.events()}
        for kept in owed.values():
            name = kept.event.alert.lower()
            counts[name] = counts.get(name, 0) + 1
        return counts

    def lost(self) -> dict[str, int]:
        """By alert: events that were dropped since the run was started, once for each address."""
        with self._changed:
            return dict(self._lost)

    def failed(self) -> dict[str, int]:
        """By alert: attempts that have failed since the run was started."""
        with self._changed:
            return dict(self._failed)

    def trouble(self, alert: str, urls: Sequence[str]) -> list[str]:
        """Why addresses did not take the last event of an alert; nothing of those that did."""
        found = []
        with self._changed:
            for url in urls:
                lane = self._lanes.get(url)
                held = None if lane is None else lane.held.get(alert.lower())
                if held is not None:
                    found.append(_said(url, held.text, held.times))
                elif lane is not None and lane.trouble:
                    found.append(_said(url, lane.trouble, lane.failures))
        return found

    def drain(self, seconds: float) -> bool:
        """Wait until all is taken by those who take anything at present; whether it was in time."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not any(lane.waits_for_takers for lane in self._lanes.values()), seconds
            )

    def stop(self, grace: float = 0.0) -> None:
        """Send no more, after some grace; what is under way is broken off, and sent again by the next run."""
        if self._running:
            self.drain(grace)
        with self._changed:
            self._running, self._stopped = False, True
            threads = [lane.thread for lane in self._lanes.values() if lane.thread is not None]
            self._changed.notify_all()
            for lane in self._lanes.values():
                if lane.thread is not None:
                    lane.webhook.interrupt()
        deadline = time.monotonic() + JOIN_S
        for thread in threads:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))


@contextmanager
def _noting(what: str) -> Iterator[None]:
    """Where a note cannot be written, a run that goes on sends what it is about again at worst."""
    try:
        yield
    except OSError as error:
        logger.warning("cannot note %s: %s", what, error.strerror or error)


def _said(url: str, trouble: str, times: int) -> str:
    return f"{host_of(url)} {trouble}" + (f", {times} times in a row" if times > 1 else "")


def _unexpected(error: Exception) -> Outcome:
    """The outcome of an attempt that met with what nobody had thought of; more of it may hold secrets."""
    return Outcome("later", f"met with an unexpected {type(error).__name__}")


def host_of(url: str) -> str:
    """Where an address points, for logs: the rest of it may be secret.

    >>> host_of("https://ann:sesame@hooks.example:8443/T0/secret?token=1")
    'https://hooks.example:8443'
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
