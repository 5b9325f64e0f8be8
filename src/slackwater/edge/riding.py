"""What rides on the rows of an agent, or is told beside them, as it must be.

The hub asks before anything is logged: whatever is in the log every driver reads, now and after each restart.
Drivers ask too, since a log may be older than this.
"""

from __future__ import annotations

from typing import Any

from slackwater.edge.messages import number, wholes
from slackwater.edge.shadows import HIGHEST, LOWEST, POINTS

RIDER = "null, or an object of c, s, r and g: centres, slopes, response curves, and whether its key is gone"
CURVES = f"for every column a lowest rung and {POINTS + 1} numbers from 0 on"
ABSENT = "for every column a list of places"
_NAMES = frozenset("csrg")
_NUMBERS = frozenset((int, float))
_LARGEST = 1e308


def rider_fits(rider: Any, columns: int) -> bool:
    """Whether a rider says where bounds are, and what is known of their objects, for so many columns.

    >>> rider_fits(None, 2), rider_fits({"c": [1.5, None]}, 2), rider_fits({"c": ["x"]}, 1)
    (True, True, False)
    """
    if rider is None:
        return True
    if type(rider) is not dict or not rider.keys() <= _NAMES:
        return False
    for name, told in rider.items():
        if name == "g":
            fits = told is True
        elif name == "r":
            fits = curves_fit(told, columns)
        else:
            fits = _row_fits(told, columns)
            for value in told if fits else ():
                fits = fits and (number(value) or (value is None and name == "c"))
        if not fits:
            return False
    return True


def curves_fit(curves: Any, columns: int) -> bool:
    """Whether these are the response curves of a row's objects."""
    return _row_fits(curves, columns) and all(map(_curve_fits, curves))


def absent_fits(absent: Any, columns: int) -> bool:
    """Whether these are, by column, places of members of a sum; how many it has is another matter."""
    return _row_fits(absent, columns) and all(wholes(places) is not None for places in absent)


def beyond(absent: list[list[int]], members: int) -> bool:
    """Whether some place is none of so many members."""
    return any(max(places, default=-1) >= members for places in absent)


def _row_fits(row: Any, columns: int) -> bool:
    return type(row) is list and len(row) == columns


def _curve_fits(curve: Any) -> bool:
    if type(curve) is not list or len(curve) != POINTS + 2 or not _NUMBERS.issuperset(map(type, curve)):
        return False
    # no JSON holds NaN; what is infinite is beyond the largest
    lowest, *rest = curve
    return type(lowest) is int and LOWEST <= lowest <= HIGHEST and min(rest) >= 0 and max(rest) <= _LARGEST
