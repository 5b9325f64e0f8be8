"""Slackwater: standing queries over streams, run on Spark.

Everything that users call is here by name; what needs Spark is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slackwater.edge.agent import Agent
    from slackwater.edge.terms import Terms
    from slackwater.errors import SlackwaterError
    from slackwater.language.aggregates import UserAggregate
    from slackwater.language.contracts import Drift, Error, Exact, Precision, Subset
    from slackwater.runtime.answers import Answer
    from slackwater.runtime.session import Session
    from slackwater.runtime.settings import Settings
    from slackwater.runtime.sinks import JsonLinesSink, ParquetSink

__version__ = "0.1.0"
__all__ = [
    "Agent",
    "Answer",
    "Drift",
    "Error",
    "Exact",
    "JsonLinesSink",
    "ParquetSink",
    "Precision",
    "Session",
    "Settings",
    "SlackwaterError",
    "Subset",
    "Terms",
    "UserAggregate",
]

_HOMES = {
    "slackwater.edge.agent": ("Agent",),
    "slackwater.edge.terms": ("Terms",),
    "slackwater.errors": ("SlackwaterError",),
    "slackwater.language.aggregates": ("UserAggregate",),
    "slackwater.language.contracts": ("Drift", "Error", "Exact", "Precision", "Subset"),
    "slackwater.runtime.answers": ("Answer",),
    "slackwater.runtime.session": ("Session",),
    "slackwater.runtime.settings": ("Settings",),
    "slackwater.runtime.sinks": ("JsonLinesSink", "ParquetSink"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
