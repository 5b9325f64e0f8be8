"""How the widths of a stream are adjusted, as its options say."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from slackwater.errors import SourceError
from slackwater.language.durations import parse_duration
from slackwater.language.statements import CreateStream
from slackwater.plan.bounded import value_columns

TOLERANCE = 1_000_000
"""Latency tolerance in microseconds where a stream does not say."""
PERIOD = 10_000_000
"""The paper's adjustment period in microseconds."""
TUNED = "tuned"
"""Period or shrink fitted to the data, as they are where a stream does not say."""
ALLOCATIONS = ("curves", "burden", "uniform")
SUMS = ("measured", "never")
OPTIONS = ("hub", "token_file", "ca", "allocation", "period", "shrink", "sums")


class Misdeclared(SourceError):
    """A stream whose declaration cannot be carried out; ``place`` is the option or the clause at fault."""

    def __init__(self, stream: CreateStream, what: str, place: str) -> None:
        self.place = place
        super().__init__(f"stream {stream.name}: {what}")


@dataclass(frozen=True)
class Adjusting:
    """How widths are adjusted."""

    allocation: str = "curves"
    period: int = PERIOD
    shrink: float | None = None
    """Of `burden`: the share of a width that goes in a period; None: fitted to the number of objects."""
    tolerance: int = TOLERANCE
    rates: tuple[float, ...] | None = None
    """By value column: the most that its values change in a second, if that is known."""
    tuned_period: bool = False
    """Whether the period is fitted to the data; it begins as it is here."""
    tuned_shrink: bool = False
    """Of `burden`: whether the part of the fitted shrink follows from what it costs."""
    sums: str = "measured"
    """Whether agents tell sums of keys that nobody asks for apart: as is found to be cheapest, or never."""

    @property
    def padding(self) -> float:
        """By how much a bound is widened so that answers speak of now, for each unit that its values change
        in a second at most: with R that is the paper's φ."""
        return 0.0 if self.rates is None else 2 * self.tolerance / 1e6

    @property
    def lag(self) -> int:
        """How much of the last time may be missing: where bounds are padded, nothing is waited for."""
        return 0 if self.rates is None else self.tolerance


def options_of(stream: CreateStream) -> dict[str, str]:
    """The options of a stream by their names in lower case."""
    return {name.lower(): value for name, value in stream.options}


def adjusting(stream: CreateStream) -> Adjusting:
    """What a stream's options and clauses say; raises `Misdeclared` where they cannot be."""
    options = options_of(stream)
    unknown = next((name for name in options if name not in OPTIONS), None)
    if unknown is not None:
        near = difflib.get_close_matches(unknown, OPTIONS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(OPTIONS)}"
        raise Misdeclared(stream, f"there is no option {unknown}; {hint}", unknown)
    if "hub" not in options:
        raise Misdeclared(stream, "the option hub is missing: OPTIONS (hub 'ws://host:7400')", "OPTIONS")
    allocation = options.get("allocation", "curves").lower()
    if allocation not in ALLOCATIONS:
        what = f"allocation is one of {', '.join(ALLOCATIONS)}; got {allocation!r}"
        raise Misdeclared(stream, what, "allocation")
    tuned = {name: options.get(name, TUNED).strip().lower() == TUNED for name in ("period", "shrink")}
    shrink = None if tuned["shrink"] else _shrink(stream, options)
    if "shrink" in options and allocation != "burden":
        what = f"only widths by allocation 'burden' shrink, and these are by {allocation!r}; leave shrink out"
        raise Misdeclared(stream, f"{what}, or say allocation 'burden'", "shrink")
    return Adjusting(
        allocation,
        PERIOD if tuned["period"] else _period(stream, options),
        shrink,
        TOLERANCE if stream.tolerance is None else stream.tolerance,
        _rates(stream),
        tuned["period"],
        tuned["shrink"],
        _sums(stream, options),
    )


def _rates(stream: CreateStream) -> tuple[float, ...] | None:
    """By value column, the largest change in a second."""
    if stream.max_rate is None and not stream.max_rates:
        return None
    columns, own = value_columns(stream), dict(stream.max_rates)
    if other := [name for name in own if name not in columns]:
        raise Misdeclared(stream, f"MAX RATE … OF {other[0]}: agents send {', '.join(columns)}", "MAX RATE")
    found = {name: own.get(name, stream.max_rate) for name in columns}
    if none := [name for name, rate in found.items() if rate is None]:
        what = f"MAX RATE says nothing of {none[0]}: add one OF {none[0]}, or one without OF for the rest"
        raise Misdeclared(stream, what, "MAX RATE")
    return tuple(rate for rate in found.values() if rate is not None)


def _sums(stream: CreateStream, options: Mapping[str, str]) -> str:
    found = options.get("sums", "measured").lower()
    if found not in SUMS:
        raise Misdeclared(stream, f"sums is one of {', '.join(SUMS)}; got {found!r}", "sums")
    return found


def _period(stream: CreateStream, options: Mapping[str, str]) -> int:
    try:
        period = parse_duration(options["period"])
    except ValueError as error:
        what = f"period: {error}; or tuned, which fits it to the data"
        raise Misdeclared(stream, what, "period") from None
    if period < 1_000_000:
        raise Misdeclared(stream, f"period is at least a second; got {options['period']!r}", "period")
    return period


def _shrink(stream: CreateStream, options: Mapping[str, str]) -> float | None:
    text = options["shrink"].strip().lower()
    if text == "fitted":
        return None
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        what = f"shrink is a share such as 5%, tuned or fitted; got {options['shrink']!r}"
        raise Misdeclared(stream, what, "shrink")
    return share
