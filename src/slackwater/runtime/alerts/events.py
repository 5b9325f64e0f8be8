"""What a webhook is told: an alert was raised in a group, or cleared, and the answer that says so."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Literal

from slackwater.language.statements import CreateAlert
from slackwater.runtime.answers import Answer
from slackwater.runtime.json_values import json_text

State = Literal["raised", "cleared"]
Reason = Literal["answer", "missing"]
"""Why a state has changed: an answer says so, or there is none where there would be one if rows had come."""


@dataclass(frozen=True)
class Edge:
    """The moment at which an alert changes its state in one group."""

    group: str
    moment: int
    state: State
    answer: Answer
    reason: Reason = "answer"


@dataclass(frozen=True)
class Event:
    """An edge as it is kept and sent: JSON that lacks only which attempt it is."""

    id: str
    alert: str
    text: str

    def body(self, attempt: int) -> bytes:
        """What is sent."""
        return f'{self.text[:-1]},"attempt":{attempt}}}'.encode()

    @classmethod
    def from_line(cls, line: str) -> Event:
        """The event that a line of the outbox holds."""
        fields = json.loads(line)
        return cls(str(fields["id"]), str(fields["alert"]), line)


def event_of(alert: CreateAlert, edge: Edge, id_: str) -> Event:
    """The event of an edge: what the alert is, then the fields of the answer."""
    said = {
        "id": id_,
        "alert": alert.name,
        "state": edge.state,
        "reason": edge.reason,
        "condition": alert.condition,
        "certainty": alert.certainty,
    }
    head = ",".join(f'"{name}":{json_text(value)}' for name, value in said.items())
    return Event(id_, alert.name, f"{{{head},{edge.answer.to_json_line()[1:]}")


def event_id(run: str, step: int, alert: str, group: str, number: int) -> str:
    """What tells an event from all others, and is the same whenever its turn is run again.

    ``number`` counts the events of a group within a step: a turn may close many windows.
    """
    parts = json.dumps([run, step, alert.lower(), group, number])
    return hashlib.sha256(parts.encode()).hexdigest()[:32]
