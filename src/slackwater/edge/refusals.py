"""Whom a hub has refused, and why: told in its log, and not each time that the same is tried again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

REMEMBERED = 1_000
AGAIN_S = 3_600.0
"""After which room is made for others, and the same may be told again."""
logger = logging.getLogger(__name__)


class Refusals:
    """Tells each refusal once.

    With many in an hour, as of somebody who tries all sorts of things, no more are told until that is over:
    whoever does not know the token can fill neither log nor memory.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: dict[tuple[str, str], float] = {}

    def tell(self, who: str, reason: str) -> None:
        """Say that somebody was refused."""
        if (who, reason) in self._told:
            return
        now = self._clock()
        if len(self._told) >= REMEMBERED:
            self._told = {pair: at for pair, at in self._told.items() if now - at < AGAIN_S}
        if len(self._told) >= REMEMBERED:
            return
        self._told[who, reason] = now
        logger.warning("refused %s: %s", who, reason)
        if len(self._told) == REMEMBERED:
            logger.warning("so many were refused that no more are told for up to an hour")
