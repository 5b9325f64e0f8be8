"""What the user added from Python: scalar functions and aggregates, known to the plan by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slackwater.language.aggregates import UserAggregate


@dataclass(frozen=True)
class Functions:
    """Names are compared without case, as Spark does."""

    scalars: frozenset[str] = frozenset()
    aggregates: Mapping[str, UserAggregate] = field(default_factory=dict)

    def is_scalar(self, name: str) -> bool:
        return name.lower() in self.scalars

    def aggregate(self, name: str) -> UserAggregate | None:
        return self.aggregates.get(name.lower())
