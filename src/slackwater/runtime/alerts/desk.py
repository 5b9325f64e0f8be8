"""All alerts of a run, as the engine sees them: looked at in a turn, kept with its commit, told after it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from slackwater.language.statements import CreateAlert
from slackwater.language.urls import shown_url
from slackwater.plan.catalog import Catalog
from slackwater.plan.model import TimeWindow
from slackwater.runtime.alerts.delivering import Delivery
from slackwater.runtime.alerts.events import Edge, Event, event_id, event_of
from slackwater.runtime.alerts.outbox import Addresses, Outbox
from slackwater.runtime.alerts.silence import Stretch, awaited, is_zero
from slackwater.runtime.alerts.standing import StandingText, read_standings
from slackwater.runtime.alerts.watching import RAISED_AT_MOST, Look, Standing
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.board import places_by_query
from slackwater.runtime.clocks import Clocks

GROUPS_TOLD = 3
"""Groups in which an alert is raised that are told by name."""
GRACE_S = 5.0
"""How long a run that ends waits for webhooks which take what they are sent."""


@dataclass(frozen=True)
class AlertStatus:
    """An alert at one moment."""

    name: str
    query: str
    condition: str
    certainty: str
    urls: tuple[str, ...]
    """Without what is secret in them."""
    raised: int
    """In how many groups; 1 without groups."""
    groups: tuple[Mapping[str, Any], ...]
    """The keys of some of these, the last that were found first."""
    events: int
    """Raised and cleared since it was declared."""
    waiting: int
    """Events that some address has not taken."""
    lost: int
    """Events that were dropped since the run was started, since too many waited."""
    failed: int
    """Attempts to tell a webhook that have failed since the run was started."""
    trouble: str
    """What is wrong, in words; empty where nothing is."""


class Alerts:
    """Raises and clears alerts. With ``sends`` off nothing is looked at, and nobody is told."""

    def __init__(
        self,
        folder: Path,
        clocks: Clocks,
        *,
        sends: bool = True,
        delivery: Delivery | None = None,
        room: int = RAISED_AT_MOST,
    ) -> None:
        self.delivery = delivery or Delivery(Outbox(folder), clocks)
        self._outbox = self.delivery.outbox
        self._sends = sends
        self._room = room
        self._text = StandingText()
        self.run = ""
        """What tells a run from all others; it stays when the run goes on after a stop."""
        self._standings: dict[str, Standing] = {}
        """By alert, in lower case, as committed; replaced and never changed, since others read it."""
        self._pending: tuple[int, dict[str, Standing], list[Event]] | None = None
        self._declared: tuple[CreateAlert, ...] = ()

    def open(self, kept: str, step: int, catalog: Catalog) -> None:
        """Go on from what the last commit holds."""
        self.run, self._standings = read_standings(kept)
        self.run = self.run or uuid.uuid4().hex
        self._declared = tuple(catalog.alerts.values())
        if self._sends:
            self.delivery.open(step, addresses_of(catalog))

    def declare(self, catalog: Catalog) -> None:
        """Take what is declared now; what is raised changes with the next turn of each stream."""
        self._declared = tuple(catalog.alerts.values())
        if self._sends:
            self.delivery.declare(addresses_of(catalog))

    # --- a turn ----------------------------------------------------------------------------------

    def turn(
        self,
        step: int,
        stream: str,
        catalog: Catalog,
        delivered: Callable[[], Iterator[AnswerBatch]],
        dropped: Collection[str] = (),
        stretches: Mapping[str, Stretch] = MappingProxyType({}),
    ) -> None:
        """Look at the answers of a turn, and put on disk what it has to tell; nothing counts yet.

        ``stretches``: by query without groups, in lower case, the windows that have closed.

        ``dropped``: alerts that were not there in some version since the last turn of the stream, though
        they may be now. What they had to tell is gone, so they start anew.
        """
        standings = self._adopted(stream, catalog, dropped)
        looks = [
            Look(
                alert,
                standings[name],
                _in_order(catalog, alert),
                _counts_all(catalog, alert),
                self._room,
                stretches.get(alert.query.lower()),
                is_zero(catalog.steps[alert.query.lower()], alert.column),
            )
            for name, alert in catalog.alerts.items()
            if name in standings and standings[name].stream == stream.lower()
        ]
        if looks:
            _read(delivered(), looks, Look.find)
            for look in looks:
                look.listen()
            followed = [look for look in looks if look.follows]
            for look in followed:
                look.begin()
            if followed:
                _read(delivered(), followed, Look.follow)
            for look in followed:
                look.follow_silence()
        events: list[Event] = []
        for look in looks:
            name = look.alert.name.lower()
            standings[name], edges = look.settle()
            events += self._events(step, look.alert, edges)
        if self._sends:
            self._outbox.write(step, events)
        self._pending = step, standings, events

    def _adopted(self, stream: str, catalog: Catalog, dropped: Collection[str]) -> dict[str, Standing]:
        """What is known of the alerts of a version: nothing yet of new ones, dropped ones are not there."""
        if not self._sends:
            return {}
        found = dict(self._standings)
        for name, standing in self._standings.items():
            if standing.stream == stream.lower() and (name not in catalog.alerts or name in dropped):
                del found[name]
        for name, alert in catalog.alerts.items():
            step = catalog.steps[alert.query.lower()]
            watches = _watches(catalog, alert)
            if step.stream.lower() != stream.lower():
                continue
            if name not in found or found[name].watches != watches:
                found[name] = Standing(watches, stream.lower())
        return found

    def _events(self, step: int, alert: CreateAlert, edges: Sequence[Edge]) -> Iterator[Event]:
        numbers: dict[str, int] = {}
        for edge in edges:
            number = numbers[edge.group] = numbers.get(edge.group, -1) + 1
            yield event_of(alert, edge, event_id(self.run, step, alert.name, edge.group, number))

    def mark(self) -> str:
        """What a commit keeps."""
        standings = self._pending[1] if self._pending is not None else self._standings
        return self._text.write(self.run, standings)

    def committed(self) -> None:
        """The turn counts: what it has to tell is told."""
        if self._pending is None:
            return
        (step, self._standings, events), self._pending = self._pending, None
        if self._sends:
            self.delivery.admit(step, events)

    def awaited(self, stream: str, catalog: Catalog) -> Sequence[TimeWindow]:
        """Windows of a stream's queries of which one without rows would change an alert, as committed."""
        found: list[TimeWindow] = []
        for name, alert in catalog.alerts.items() if self._sends else ():
            if catalog.steps[alert.query.lower()].stream.lower() != stream.lower():
                continue
            known = self._standings.get(name)
            # one that is new is known from the next turn on, for which it may wait
            raised = known is not None and known.watches == _watches(catalog, alert) and bool(known.raised)
            found += awaited(catalog, alert, raised=raised)
        return found

    # --- around it -------------------------------------------------------------------------------

    def start(self) -> None:
        """Let threads tell webhooks."""
        if self._sends:
            self.delivery.start()

    def stop(self, grace: float = GRACE_S) -> None:
        """Wait a little for those who take what they are sent, and send no more."""
        if self._sends:
            self.delivery.stop(grace)

    def status(self) -> tuple[AlertStatus, ...]:
        """All alerts at this moment, in the order of their declaration; from any thread."""
        standings, declared = self._standings, self._declared
        waiting, lost, failed = self.delivery.waiting(), self.delivery.lost(), self.delivery.failed()
        found = []
        for alert in declared:
            name = alert.name.lower()
            standing = standings.get(name, Standing())
            said = self.delivery.trouble(name, alert.urls)
            found.append(
                AlertStatus(
                    alert.name,
                    alert.query,
                    alert.condition,
                    alert.certainty,
                    tuple(map(shown_url, alert.urls)),
                    len(standing.raised),
                    _some_groups(standing),
                    standing.events,
                    waiting.get(name, 0),
                    lost.get(name, 0),
                    failed.get(name, 0),
                    "; ".join([*said, *_troubles(standing, lost.get(name, 0))]),
                )
            )
        return tuple(found)


def addresses_of(catalog: Catalog) -> Addresses:
    """By alert: where its events go."""
    return {name: alert.urls for name, alert in catalog.alerts.items()}


def _watches(catalog: Catalog, alert: CreateAlert) -> str:
    """What an alert looks at; where that is another thing, what is known of it is nothing any more."""
    return f"{catalog.declared[alert.query.lower()].sql}\n{alert.column}"


def _some_groups(standing: Standing) -> tuple[Mapping[str, Any], ...]:
    newest = islice(reversed(standing.raised.values()), GROUPS_TOLD)
    return tuple(keys for raised in newest if (keys := json.loads(raised.line)["keys"]))


def _in_order(catalog: Catalog, alert: CreateAlert) -> bool:
    return isinstance(catalog.steps[alert.query.lower()].window, TimeWindow)


def _counts_all(catalog: Catalog, alert: CreateAlert) -> bool:
    return catalog.steps[alert.query.lower()].having is None


def _read(
    batches: Iterator[AnswerBatch], looks: Sequence[Look], read: Callable[[Look, AnswerBatch], None]
) -> None:
    """Hand the answers of a turn to those that look at their query and column."""
    by_column: dict[str, dict[str, list[Look]]] = {}
    for look in looks:
        queries = by_column.setdefault(look.alert.column, {})
        queries.setdefault(look.alert.query.lower(), []).append(look)
    for batch in batches:
        wanted = by_column.get(batch.column)
        if not wanted or not any(query.lower() in wanted for query in batch.queries):
            continue
        if isinstance(batch.query, str):
            parts = [(batch.query, batch)]
        else:
            parts = [
                (query, replace(batch.take(places), query=query))
                for query, places in places_by_query(batch)
                if query.lower() in wanted
            ]
        for query, part in parts:
            for look in wanted.get(query.lower(), ()):
                read(look, part)


def _troubles(standing: Standing, lost: int) -> Iterator[str]:
    if lost:
        yield f"{lost:,} events were dropped, since too many waited"
    if standing.beyond:
        yield (
            f"{standing.beyond:,} more groups are beyond the limit and nobody is told: "
            f"it is raised in {len(standing.raised):,}"
        )
    if standing.trouble:
        yield standing.trouble
