"""Whether a query can honour its contract; what it gets without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slackwater.language.contracts import Contract, Drift, Error, Exact, Precision, Standing, Subset
from slackwater.language.statements import CreateStream
from slackwater.plan.algebra import algebra
from slackwater.plan.functions import Functions
from slackwater.plan.model import Call, Step, TupleWindow

_SHOWN = {
    "count_distinct": "COUNT(DISTINCT)",
    "sum_distinct": "SUM(DISTINCT)",
    "avg_distinct": "AVG(DISTINCT)",
}
_LINEAR = ("count", "sum", "avg")


def _shown(call: Call) -> str:
    return _SHOWN.get(call.function, call.function.upper())


class Refused(ValueError):
    """A contract that the query cannot honour: the reason, and the contract that would do."""

    def __init__(self, reason: str, instead: str) -> None:
        self.instead = instead
        super().__init__(reason)


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
    """Raise Refused where the query cannot keep the contract."""
    if isinstance(contract, Error):
        _error(step, steps, functions)
    elif isinstance(contract, Subset):
        _subset(step, contract)
    elif isinstance(contract, Precision):
        _precision(step, stream)
    elif isinstance(contract, Drift):
        _drift(step)


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
            return f"{_shown(call)} cannot be estimated from a sample without bias"
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
    for call in step.calls:
        if call.function not in (*_LINEAR, "min", "max"):
            raise Refused(
                f"no interval follows for {_shown(call)} from intervals of its inputs",
                "use SUM, AVG, COUNT, MIN or MAX, or the contract EXACT",
            )


def _drift(step: Step) -> None:
    if not step.current:
        raise Refused(
            "DRIFT defers the evaluation of current values, and this query reads windows or rows",
            f"read FROM LATEST({step.stream}), or use ERROR 5% or SUBSET GAP 10",
        )
    for call in step.calls:
        if call.function in ("min", "max"):
            raise Refused(
                f"{call.function.upper()} over keys has no drift of its own to extrapolate",
                "use PRECISION d with agents, or EXACT",
            )
        if call.function not in _LINEAR:
            raise Refused(
                f"{_shown(call)} is not linear in the values",
                "use SUM, AVG or COUNT, or the contract EXACT",
            )
