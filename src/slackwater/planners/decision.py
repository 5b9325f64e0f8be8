"""What is decided for a batch before it runs, and recorded: a replayed batch obeys its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

TurnKind = Literal["batch", "tick", "end"]


@dataclass(frozen=True)
class Decision:
    """One turn of one stream.

    ``thresholds`` are the sampling rates by slot and ``schedule`` the windows to be left out; an
    exact run has neither. ``salt`` makes repetitions of random choices independent.
    """

    stream: str
    turn: int
    kind: TurnKind
    version: int
    watermark: int
    """Rows below it are late. For a tick or the end: where the watermark is moved to."""
    batch: int | None = None
    offsets: Mapping[str, Any] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """Sampling rates below 1, by slot."""
    schedule: Mapping[str, Any] = field(default_factory=dict)
    """Which windows are left out (`window_schedule.Schedule`); empty where none can be."""
    salt: int = 0
    spread: tuple[str, ...] = ()
    """Tables whose partials Spark writes itself, being too many for the driver."""
    level: float = 0.0
    """The loss level that the rates come from."""
    suspended: tuple[str, ...] = ()
    """Queries that get nothing in this batch, for want of capacity."""
    blocks: tuple[int, ...] = ()
    """Blocks of the batch that are read, the rest being skipped at the source; none: all of it is read."""
    share: float = 1.0
    """Of the batch's rows, how many lie in those blocks."""
    frequent: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By slot: hashes of the groups that its rate is for; all others have the rate of its rare ones."""
    sizes: Mapping[str, float] = field(default_factory=dict)
    """By slot: the τ of rows that are kept in proportion to their size, with the chance |v|/τ."""
    calibrated: bool = True
    """Whether a kept row weighs arrived over kept, rather than one over its rate."""
    measured: bool = False
    """Whether the batch is also measured: rows by operator, moments by slot."""
    deferral: Mapping[str, Any] = field(default_factory=dict)
    """How current values are evaluated (`deferring.Rules`); empty where no evaluation is put off."""

    @property
    def sheds(self) -> bool:
        """Whether rows are dropped, or tested as if some were."""
        return bool(self.thresholds) or self.measured or bool(self.blocks) or self.leaves_out

    @property
    def leaves_out(self) -> bool:
        """Whether rows are tested for being needed by a window that is kept."""
        queries = self.schedule.get("queries", {}).values()
        return any(q["out"] or q["shut"] for q in queries) or bool(self.schedule.get("always"))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Decision:
        lists = {name: tuple(value.get(name, ())) for name in ("spread", "suspended", "blocks")}
        return cls(**{**value, **lists})


def exact(
    stream: str,
    turn: int,
    batch: int,
    version: int,
    watermark: int,
    offsets: Mapping[str, Any],
    sizes: Mapping[str, int | None],
    driver_rows: int,
) -> Decision:
    """The decision that sheds nothing: every contract is honoured by exact answers.

    ``sizes`` are the rows that each grouped table had in its last batch (None: never ran); those
    above ``driver_rows`` stay in Spark.

    >>> exact("s", 1, 0, 1, 0, {}, {"t": None, "u": 5}, 100).spread
    ('t',)
    """
    spread = tuple(sorted(t for t, rows in sizes.items() if rows is None or rows > driver_rows))
    return Decision(stream, turn, "batch", version, watermark, batch, dict(offsets), spread=spread)
