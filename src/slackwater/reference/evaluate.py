"""The evaluator: SQL text and recorded streams to all the answers that are true of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from slackwater.language.aggregates import UserAggregate
from slackwater.language.statements import CreateQuery
from slackwater.reference.answers import ReferenceAnswer
from slackwater.reference.grouping import Registry
from slackwater.reference.sources import Intake, Row
from slackwater.reference.steps import Evaluation

__all__ = ["ReferenceAnswer", "Row", "UserAggregate", "evaluate", "late_rows", "unreadable_rows"]

Streams = Mapping[str, Sequence[Sequence[Row]]]
T = TypeVar("T")


def evaluate(
    sql: str,
    streams: Streams,
    tables: Mapping[str, Sequence[Row]] = {},
    functions: Mapping[str, Callable[..., object]] = {},
    aggregates: Mapping[str, UserAggregate] = {},
    end: bool = True,
) -> list[ReferenceAnswer]:
    """Every answer of every query, by query, window end, window start and keys.

    ``streams`` holds the batches of each stream, ``tables`` the rows of each table; ``end`` says that
    nothing more will come, so that all windows close. Queries over LATEST are left out.
    """
    registry = Registry(_lower(functions), _lower(aggregates))
    evaluation = Evaluation(sql, _lower(streams), _lower(tables), registry, end)
    answers: list[ReferenceAnswer] = []
    for step in evaluation.steps.values():
        if isinstance(step, CreateQuery) and not evaluation.reads_latest(step.select):
            found = [replace(answer, query=step.name) for answer in evaluation.step(step).answers]
            answers.extend(sorted(found, key=lambda answer: answer.order))
    return answers


def late_rows(
    sql: str, streams: Streams, functions: Mapping[str, Callable[..., object]] = {}
) -> dict[str, int]:
    """How many rows of each stream came too late for any query."""
    return {name: intake.late for name, intake in _intakes(sql, streams, functions).items()}


def unreadable_rows(
    sql: str, streams: Streams, functions: Mapping[str, Callable[..., object]] = {}
) -> dict[str, int]:
    """How many rows of each stream have no event time."""
    return {name: intake.unreadable for name, intake in _intakes(sql, streams, functions).items()}


def _intakes(sql: str, streams: Streams, functions: Mapping[str, Callable[..., object]]) -> dict[str, Intake]:
    evaluation = Evaluation(sql, _lower(streams), {}, Registry(_lower(functions), {}), True)
    given = [stream for name, stream in evaluation.streams.items() if name in evaluation.batches]
    return {stream.name: evaluation.intake(stream) for stream in given}


def _lower(named: Mapping[str, T]) -> dict[str, T]:
    return {name.lower(): value for name, value in named.items()}
