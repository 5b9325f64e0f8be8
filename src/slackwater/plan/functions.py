"""What the user added from Python: scalar functions and aggregates, known to the plan by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slackwater.errors import PlanError
from slackwater.language.aggregates import UserAggregate
from slackwater.language.parse_source import check_type
from slackwater.plan.aggregate_names import is_built_in


@dataclass(frozen=True)
class Functions:
    """Names are compared without case, as Spark does."""

    scalars: frozenset[str] = frozenset()
    aggregates: Mapping[str, UserAggregate] = field(default_factory=dict)

    def with_scalar(self, name: str, returns: str) -> Functions:
        """These and a function of values more; raises where its type is none."""
        check_type(returns, f"function {name}: returns")
        return replace(self, scalars=self.scalars | {name.lower()})

    def with_aggregate(self, name: str, aggregate: UserAggregate) -> Functions:
        """These and an aggregate more; raises where SQL has one of that name: that would be called."""
        check_type(aggregate.returns, f"aggregate {name}: returns")
        if is_built_in(name):
            raise PlanError(f"aggregate {name}: SQL has one of that name; choose another")
        return replace(self, aggregates={**self.aggregates, name.lower(): aggregate})

    def is_scalar(self, name: str) -> bool:
        return name.lower() in self.scalars

    def aggregate(self, name: str) -> UserAggregate | None:
        return self.aggregates.get(name.lower())


class FunctionRegistry:
    """Takes what a user's register(session) registers, where there is no session."""

    def __init__(self) -> None:
        self.functions = Functions()

    def function(self, name: str, function: Callable[..., Any], returns: str) -> None:
        self.functions = self.functions.with_scalar(name, returns)

    def aggregate(self, name: str, aggregate: UserAggregate) -> None:
        self.functions = self.functions.with_aggregate(name, aggregate)
