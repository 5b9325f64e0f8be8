"""How often the widths of a stream are adjusted, and how much of them goes by itself, as they are now."""

from __future__ import annotations

import numpy as np

from slackwater.edge.widths import Bools, Floats
from slackwater.plan.adjusting import Adjusting
from slackwater.planners.precision_burden import fitted_shrink
from slackwater.planners.precision_constraints import Constraints
from slackwater.planners.precision_tuning import Shrinking, fitted_period, judged
from slackwater.runtime.bounds.belief import Belief
from slackwater.runtime.bounds.mirror import Mirror

SAME = 1e-9


class Tuning:
    """Period and shrink: those that a stream's options say, or fitted to the data."""

    def __init__(self, adjusting: Adjusting) -> None:
        self._adjusting = adjusting
        self.period = adjusting.period
        """In microseconds; grants carry it along, so that whoever has one knows by which it shrinks."""
        self._shrinking = Shrinking()

    def fit(self, mirror: Mirror, constraints: Constraints) -> None:
        """Fit the period to how often values change: a function of what the log has told."""
        if self._adjusting.tuned_period:
            # what was granted must be believed before anything else is decided
            least = max(1_000_000, 2 * self._adjusting.tolerance)
            changes = mirror.rates[:, 0]
            self.period = fitted_period(changes, mirror.seconds, constraints.shared, self.period, least)

    def ended(self, messages: float, constraints: Constraints) -> None:
        """A period has ended in which there were so many messages."""
        if self._adjusting.tuned_shrink:
            fitted = float(fitted_shrink(constraints).max(initial=0.0))
            self._shrinking = judged(self._shrinking, messages, fitted)

    def shrinks(self, constraints: Constraints) -> Floats:
        """By object: what goes of a width in a period."""
        if self._adjusting.allocation != "burden":
            return np.zeros(constraints.objects)
        fitted, chosen = fitted_shrink(constraints), self._adjusting.shrink
        if self._adjusting.tuned_shrink:
            return fitted * self._shrinking.part
        return fitted if chosen is None else np.where(fitted > 0, chosen, 0.0)

    def slower(self, constraints: Constraints, belief: Belief) -> Bools:
        """Objects that shrink less than they are to, as far as is known.

        One that has grown counts as what shrinks less of what it had and has, since nobody says when it heard
        of that. To be known to shrink faster it must be narrowed, if by a hair, and say so.
        """
        manner = self._adjusting
        if manner.allocation != "burden" or not (manner.tuned_period or manner.tuned_shrink):
            return np.zeros(constraints.objects, bool)
        wanted = self.shrinks(constraints)
        less = (belief.shrink < wanted * (1 - SAME)) | (belief.period != self.period) & (wanted > 0)
        found: Bools = constraints.shared & less & np.isfinite(belief.width) & (belief.width > 0)
        return found

    def described(self, constraints: Constraints | None) -> str:
        """What EXPLAIN shows of it."""
        manner = self._adjusting
        said = f"{manner.allocation}: widths are adjusted every {self.period / 1e6:g} s"
        said += " (fitted to the data)" if manner.tuned_period else ""
        if manner.allocation == "burden" and constraints is not None:
            most = float(self.shrinks(constraints).max(initial=0.0))
            how = "fitted to the objects" if manner.shrink is None else "as the stream says"
            how = "fitted to the data" if manner.tuned_shrink else how
            said += f", and shrink by up to {most:.3g} of themselves ({how})"
        return said
