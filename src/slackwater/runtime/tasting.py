"""Rows of a run for those who ask: the next batch is read once more, and some of its rows are given out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from slackwater.language.statements import CreateStream
from slackwater.runtime.clocks import Clocks
from slackwater.spark.execute import DataFrame
from slackwater.spark.taste import taste

logger = logging.getLogger(__name__)
ROWS = 20_000
FRESH_S = 60.0
"""For so long rows are given out again, before others are read."""


class Tasting:
    """Who waits for rows of which stream, and the rows that were read last; may be used from any thread."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._lock = threading.Condition()
        self._wanted: set[str] = set()
        self._tasted: dict[str, tuple[float, pa.Table]] = {}

    def ask(self, stream: str, seconds: float) -> pa.Table | None:
        """Rows of a stream; None where none came in so many seconds."""
        name = stream.lower()
        with self._lock:
            known = self._fresh(name)
            if known is None:
                self._wanted.add(name)
                self._lock.wait_for(lambda: self._fresh(name) is not None, timeout=seconds)
                self._wanted.discard(name)
                known = self._fresh(name)
            return known

    def _fresh(self, name: str) -> pa.Table | None:
        at, rows = self._tasted.get(name, (-FRESH_S, None))
        return rows if rows is not None and self._clocks.seconds() - at < FRESH_S else None

    def after(self, stream: CreateStream, frame: Callable[[], DataFrame | None], arrived: int) -> None:
        """A batch has been answered: read some of its rows where somebody waits for them."""
        name = stream.name.lower()
        if name not in self._wanted or not arrived:
            return
        try:
            found: Any = frame()
            rows = taste(found, stream, arrived, ROWS) if found is not None else None
        except Exception:
            # a look must not end a run; whoever waits is told that no rows came
            logger.warning("rows of %s could not be read for a preview", stream.name, exc_info=True)
            self._wanted.discard(name)
            return
        if rows is not None and rows.num_rows:
            with self._lock:
                self._tasted[name] = (self._clocks.seconds(), rows)
                self._lock.notify_all()
