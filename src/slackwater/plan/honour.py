"""Whether a query can honour its contract; what it gets without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slackwater.language.contracts import Contract, Drift, Error, Exact, Precision, Standing, Subset
from slackwater.language.statements import CreateStream
from slackwater.plan.algebra import algebra
from slackwater.plan.bounded import bounded_form
from slackwater.plan.functions import Functions
from slackwater.plan.linear import LINEAR, NotLinear, affine, arithmetic, linear_form, reads
from slackwater.plan.model import Step, TupleWindow


class Refused(ValueError):
    """A contract that the query cannot honour: the reason, and what would do.

    ``parts`` are of the SELECT that is to blame, the first to be found there counts (as in `NotLinear`).
    """

    def __init__(self, reason: str, instead: str, *parts: str) -> None:
        self.instead = instead
        self.parts = parts
        super().__init__(reason)


class Impossible(Refused):
    """What no contract makes possible; ``function`` is the one that asks for it."""

    def __init__(self, reason: str, instead: str, function: str) -> None:
        self.function = function
        super().__init__(reason, instead)


def settle(
    contract: Contract | None, standing: Standing, step: Step, steps: Mapping[str, Step], functions: Functions
) -> Contract:
    """The contract of a query: the one it asks for, or the default of its kind."""
    if contract is not None:
        return contract
    if step.current:
        return Exact(weight=standing.weight, priority=standing.priority)
    scalable = _unscalable(step, steps, functions) is None
    kind = Error() if scalable else Exact()
    return replace(kind, weight=standing.weight, priority=standing.priority)


def honour(
    contract: Contract, step: Step, steps: Mapping[str, Step], stream: CreateStream, functions: Functions
) -> None:
    """Raise Refused where the query cannot keep the contract, Impossible where it could keep none."""
    if isinstance(contract, Error):
        _error(step, steps, functions)
    elif isinstance(contract, Subset):
        _subset(step, contract)
    elif isinstance(contract, Precision):
        _precision(step, stream)
    elif isinstance(contract, Drift):
        _drift(step, stream)
    if step.current:
        _current(step, stream, functions)
        if not isinstance(contract, Precision):
            _no_means(step)


def _no_means(step: Step) -> None:
    """A mean over time is of bounds, which hold at every moment; ticks say nothing of what is between."""
    for move in step.moves:
        if move.extreme == "avg":
            raise Impossible(
                f"{move.function} is the mean of bounds over time, which only PRECISION has",
                "give the query WITH PRECISION d where agents send the values, or average over a window",
                move.function,
            )


def _error(step: Step, steps: Mapping[str, Step], functions: Functions) -> None:
    if step.current:
        raise Refused(
            "ERROR samples rows, and LATEST holds one current value per key",
            "use DRIFT e BELIEF p, or PRECISION d where agents send the values",
        )
    problem = _unscalable(step, steps, functions)
    if problem is not None:
        windowed = "SUBSET GAP 10 or " if step.window is not None else ""
        raise Refused(problem, f"use {windowed}EXACT")


def _unscalable(step: Step, steps: Mapping[str, Step], functions: Functions) -> str | None:
    """Why no unbiased estimate of a step comes from a sample; None where one does."""
    for call in step.calls:
        if not algebra(call, functions).scalable:
            return f"{call.label} cannot be estimated from a sample without bias"
    if step.having is not None:
        return "HAVING on an estimate would deliver groups that do not qualify and miss some that do"
    below = steps.get(step.path.source.lower())
    if below is not None and below.aggregates:
        return f"it reads {below.name}, which aggregates already: an estimate of an estimate cannot be scaled"
    return None


def _subset(step: Step, contract: Subset) -> None:
    if step.current:
        raise Refused("SUBSET leaves out windows, and LATEST has none", "use DRIFT e BELIEF p, or EXACT")
    if step.window is None:
        raise Refused(
            "SUBSET leaves out whole windows, and this query delivers single rows", "use ERROR 5%, or EXACT"
        )
    if contract.fill is not None and isinstance(step.window, TupleWindow):
        raise Refused(
            "FILL predicts windows from those before and after them in time, and these are windows over rows",
            f"use {Subset(contract.gap)}, or a window over time",
        )


def _precision(step: Step, stream: CreateStream) -> None:
    if not step.current:
        raise Refused(
            "PRECISION bounds current values, and this query reads windows or rows",
            f"read FROM LATEST({stream.name}), or use ERROR 5%",
        )
    if stream.format.lower() != "agents":
        raise Refused(
            f"PRECISION needs filters at the sources, and stream {stream.name} has no agents "
            f"(it is USING {stream.format})",
            "use DRIFT e BELIEF p, or declare the stream USING agents",
        )
    for index, call in enumerate(step.calls):
        if call.function not in (*LINEAR, "min", "max"):
            raise Refused(
                f"no interval follows for {call.label} from intervals of its inputs",
                "use SUM, AVG, COUNT, MIN or MAX, or the contract EXACT",
                *(output.name for output in step.outputs if reads(output.sql, [f"a{index}"])),
            )
    try:
        bounded_form(step, stream)
    except NotLinear as reason:
        raise Refused(
            f"no interval follows from intervals of the values: {reason}",
            f"{reason.instead or 'use sums of values times weights'}, or use EXACT",
            *reason.parts,
        ) from None


def _drift(step: Step, stream: CreateStream) -> None:
    if not step.current:
        raise Refused(
            "DRIFT defers the evaluation of current values, and this query reads windows or rows",
            f"read FROM LATEST({step.stream}), or use ERROR 5% or SUBSET GAP 10",
        )
    if not step.calls:
        raise Refused("DRIFT bounds an aggregate, and this query delivers single rows", "use EXACT")
    for call in step.calls:
        if call.function in ("min", "max"):
            raise Refused(
                f"{call.function.upper()} over keys has no drift of its own to extrapolate",
                "use PRECISION d with agents, or EXACT; for an extreme over time, "
                f"{call.function}_over(AVG(x), '30 minutes')",
            )
        if call.function not in LINEAR:
            raise Refused(
                f"{call.label} is not linear in the values",
                "use SUM, AVG or COUNT, or the contract EXACT",
            )
    if step.having is not None:
        raise Refused(
            "HAVING would be decided by an answer that may have drifted",
            "leave HAVING out and select where the answers are read, or use EXACT",
        )
    _only_linear(step, stream)


def _only_linear(step: Step, stream: CreateStream) -> None:
    """Raise where an item of a query is not a constant plus multiples of values."""
    try:
        form = linear_form(step, stream)
    except NotLinear as reason:
        raise Refused(f"{reason}, so how it drifts does not follow from how they do", "use EXACT") from None
    moving = [f"a{i}" for i, call in enumerate(form.calls) if call.moves]
    for move in step.moves:
        if not affine(move.sql, moving):
            raise Refused(f"what {move.function} is taken of is not linear in the values", "use EXACT")
    extremes = [f"m{i}" for i in range(len(step.moves))]
    for output in step.outputs:
        if not output.aggregated:
            continue
        both = reads(output.sql, extremes) and (output.sql not in extremes)
        plain = arithmetic(output.sql) or output.sql in extremes
        if both or not plain or not affine(output.sql, moving):
            raise Refused(
                f"{output.name} is not linear in the values",
                "select what it is made of as items of their own, or use EXACT",
            )


def _current(step: Step, stream: CreateStream, functions: Functions) -> None:
    """What no contract makes possible over current values."""
    for call in step.calls:
        if functions.aggregate(call.function) is not None:
            raise Impossible(
                f"{call.function} is defined in Python, and such aggregates go over windows only",
                "use SUM, AVG, COUNT, MIN, MAX or another aggregate of SQL",
                call.function,
            )
    if not step.moves:
        return
    for move in step.moves:
        if not arithmetic(move.sql):
            raise Impossible(
                f"{move.function} is taken of sums, products and quotients of aggregates, "
                f"and {step.readable(move.sql)} is more",
                "take it of the aggregate itself",
                move.function,
            )
    try:
        linear_form(step, stream)
    except NotLinear as reason:
        raise Impossible(
            f"an extreme over time is kept of SUM, AVG, COUNT, MIN and MAX of values: {reason}",
            "leave it out of this query, or take the extreme of something linear",
            step.moves[0].function,
        ) from None
