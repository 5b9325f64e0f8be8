"""Which windows of one drop are left out: coins for batches of windows, or an even spread.

Either way no run of missing windows is longer than the gap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

STRIDES = (
    0x9E3779B97F4A7C15,
    0x6A09E667F3BCC908,
    0xBB67AE8584CAA73B,
    0x4D82B446159F360F,
    0xA54FF53A5F1D36F1,
    0xCA91D722A3D0A666,
)
"""Fractions of the golden ratio and others that no ratio of small numbers comes near, in units of 2⁻⁶⁴."""
UNITS_AT_MOST = 200_000
"""Decided at a time; those before are kept: a stream that jumps further has windows that nobody has seen."""


def coin(salt: int, point: str, batch: int) -> float:
    """A number from 0 up to 1 for each batch of windows: the same whenever it is asked for.

    Guarantee: each is as likely as any other over salts, and those of any stretch of batches are spread
    evenly, so that a share is kept to within few batches: experiments have some dozens. Variant: multiples
    of a quadratic irrational from a random start, of another one for another drop, or two would leave out the
    same windows more or less often. Reference: Weyl's sequence; the paper tosses independent coins.

    >>> coin(1, "a", 7) == coin(1, "a", 7), coin(1, "a", 7) == coin(2, "a", 7)
    (True, False)
    >>> sum(coin(1, "a", batch) < 0.3 for batch in range(100))
    29
    """
    drawn = blake2b(f"{salt}/{point}".encode(), digest_size=9).digest()
    stride = STRIDES[drawn[8] % len(STRIDES)]
    return ((int.from_bytes(drawn[:8], "big") + batch * stride) % 2**64) / 2**64


@dataclass(frozen=True)
class Run:
    """How far a drop has decided: the next of its windows, and what it has left out before it."""

    unit: int
    missing: int = 0
    """Windows in a row that were left out."""
    owed: float = 0
    """Windows to be left out that were not yet: those that the gap did not allow, and parts of the next."""


def decide(run: Run, gap: int, share: float, to: int, coin: Callable[[int], float]) -> tuple[list[int], Run]:
    """The windows that are left out from where a run stands up to another, and the run after them.

    Guarantee: no more than ``gap`` windows in a row are left out, ever. In the long run ``share`` of them
    are, if that is less than gap/(gap + 1). Variant: one coin for each batch of ``gap`` windows, counted from
    window 0. Where two batches in a row are to be dropped, a window is kept between them and owed; what is
    owed is left out in batches that the coin keeps.
    Reference: Tatbul, Zdonik (VLDB 2006), section 3.4. There the first window of every further batch is kept;
    here only where the run would be too long otherwise, or the share could not be had.

    >>> dropping = lambda batch: 0.0 if batch < 2 else 1.0
    >>> decide(Run(0), 3, 0.7, 12, dropping)
    ([0, 1, 2, 4, 5, 6], Run(unit=12, missing=0, owed=0))
    """
    if to <= run.unit:
        return [], run
    if share <= 0.0:
        return [], Run(to)
    unit, missing, owed = run.unit, run.missing, run.owed
    if to - unit > UNITS_AT_MOST:
        unit, missing, owed = to - UNITS_AT_MOST, gap, 0
    out: list[int] = []
    batch, dropped = None, False
    while unit < to:
        if unit // gap != batch:
            batch = unit // gap
            dropped = coin(batch) < share
        if (dropped or owed > 0) and missing < gap:
            out.append(unit)
            missing += 1
            owed -= not dropped
        else:
            owed += dropped
            missing = 0
        unit += 1
    return out, Run(unit, missing, owed)


def spread(
    run: Run, gap: int, share: float, least: int, to: int, coin: Callable[[int], float]
) -> tuple[list[int], Run]:
    """Like ``decide``, with the windows that are left out spread as evenly as can be.

    While windows are kept, all their rows are taken and batches pile up: the fewer are kept in a row, the
    less the answers are late. But where windows overlap only runs of them save rows: so that ``least`` are
    left out in a row at least.

    Guarantee: no more than ``gap`` in a row are left out, ever; of any stretch ``share`` are, to within one
    run, if that is less than gap/(gap + 1). Variant: what is owed grows by the share with every window, from
    a random start, and is paid back once it is enough for a run. Reference: systematic sampling; for runs of
    one Bresenham's line.

    >>> spread(Run(0), 10, 0.7, 1, 10, lambda unit: 0.5)[0]
    [0, 2, 3, 5, 6, 7, 9]
    >>> spread(Run(0), 10, 0.5, 4, 20, lambda unit: 0.0)[0]
    [1, 2, 3, 4, 9, 10, 11, 12, 17, 18, 19]
    """
    if to <= run.unit:
        return [], run
    if share <= 0.0:
        return [], Run(to)
    enough = 1 + (least - 1) * (1 - share)
    unit, missing, owed = run.unit, run.missing, run.owed
    if to - unit > UNITS_AT_MOST:
        unit, missing = to - UNITS_AT_MOST, gap
    if missing == 0 and owed == 0:
        # all windows have been kept so far: a burst need not begin with a run of more
        owed = enough - 1 + coin(unit)
    out: list[int] = []
    while unit < to:
        owed += share
        if missing < gap and owed >= (1.0 if missing else enough):
            out.append(unit)
            missing += 1
            owed -= 1
        else:
            missing = 0
        # what the gap does not allow is not owed for ever
        owed = min(owed, max(enough, least))
        unit += 1
    return out, Run(unit, missing, owed)
