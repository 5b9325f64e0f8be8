"""The demo's routers: queues that wander, of which one can be told to be silent while they are made."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.terminal.demo_story import forget
from slackwater.walks import SCHEMA, from_options

SILENT = "k3"


class DialledWalks:
    """Walks as SQL describes them, from an origin on.

    Whether the silent key has rows in a second is decided when the second is first asked for, and stays for
    an hour.
    """

    schema = SCHEMA
    segment_us = 1_000_000

    def __init__(self, options: Mapping[str, str], origin: datetime) -> None:
        self._walks = from_options(options)
        self.origin = origin
        self._silent = False
        self._silences: dict[int, bool] = {}
        self._lock = threading.Lock()

    @property
    def rate(self) -> float:
        return self._walks.rate

    def silence(self, silent: bool) -> None:
        """Whether the key is silent in the seconds to come."""
        with self._lock:
            self._silent = silent

    @property
    def made(self) -> int:
        """How many seconds have been asked for."""
        with self._lock:
            return max(self._silences, default=-1) + 1

    def slice(self, index: int, width_us: int) -> pa.Table:
        """The rows from index * width to (index + 1) * width after the origin, in order of time."""
        with self._lock:
            silent = self._silences.setdefault(index, self._silent)
            forget(self._silences)
        rows = replace(self._walks, origin=self.origin).slice(index, width_us)
        return rows.filter(pc.not_equal(rows["key"], SILENT)) if silent else rows
