"""Governors for those who want to know: every batch is measured, whether or not load is shed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slackwater.planners.ruling import Coming, Ruling
from slackwater.runtime.governor import Governor


@dataclass
class Observer(Governor):
    """Measures every batch and sheds nothing: what `explain --load` learns from."""

    @property
    def paced(self) -> bool:
        # asked for streams that are read as fast as it goes too: they are measured all the same
        return False

    @property
    def measures_all(self) -> bool:
        return True

    def rule(self, coming: Coming) -> Ruling:
        """The batch whole, and measured."""
        self._turns[coming.name] = self._turns.get(coming.name, -1) + 1
        self.known_of(coming)
        return Ruling(measured=True)


@dataclass
class Watcher(Observer):
    """Sheds as the governor does, and measures every batch: what `explain --live` shows."""

    def rule(self, coming: Coming) -> Ruling:
        """As the governor rules; a stream that is read as fast as it goes has no interval to keep to."""
        if self.unpaced.get(coming.name, False) or not coming.slots.sheddable:
            return super().rule(coming)
        ruling = Governor.rule(self, coming)
        return replace(ruling, measured=True)
