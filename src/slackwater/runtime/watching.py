"""Governors for those who want to know: every batch is measured, whether or not load is shed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from slackwater.plan.slots import Slots
from slackwater.plan.tables import Plan
from slackwater.planners.ruling import NO_PARTS, Ruling
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

    def rule(
        self,
        stream: str,
        plan: Plan,
        slots: Slots,
        size: int | None,
        *,
        least: float,
        parts: Mapping[str, float] = NO_PARTS,
    ) -> Ruling:
        """The batch whole, and measured."""
        name = stream.lower()
        self._turns[name] = self._turns.get(name, -1) + 1
        self.known(stream, plan, slots)
        return Ruling(measured=True)


@dataclass
class Watcher(Observer):
    """Sheds as the governor does, and measures every batch: what `explain --live` shows."""

    def rule(
        self,
        stream: str,
        plan: Plan,
        slots: Slots,
        size: int | None,
        *,
        least: float,
        parts: Mapping[str, float] = NO_PARTS,
    ) -> Ruling:
        """As the governor rules; a stream that is read as fast as it goes has no interval to keep to."""
        if self.unpaced.get(stream.lower(), False) or not slots.sheddable:
            return super().rule(stream, plan, slots, size, least=least, parts=parts)
        ruling = Governor.rule(self, stream, plan, slots, size, least=least, parts=parts)
        return replace(ruling, measured=True)
