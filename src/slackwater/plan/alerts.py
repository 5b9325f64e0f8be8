"""Alerts against the queries they watch: which columns have intervals, and what EXPLAIN says."""

from __future__ import annotations

import difflib
from dataclasses import replace

from slackwater.language.statements import CreateAlert
from slackwater.language.urls import shown_url
from slackwater.plan.model import Step


def settled(statement: CreateAlert, step: Step) -> CreateAlert:
    """The alert with names as its query has them; raises where answers have no such column."""
    at = statement.places.get("column")
    columns = [output.name for output in step.outputs if output.aggregated]
    if not columns:
        raise statement.source.error(
            f"query {step.name} has no aggregate, so there is no interval to compare with a limit",
            at=at,
            hint="put an alert on a query with an aggregate such as SUM or COUNT",
        )
    wanted = statement.column
    same = [c for c in columns if c == wanted] or [c for c in columns if c.lower() == wanted.lower()]
    if same:
        return replace(statement, query=step.name, column=same[0])
    others = [output.name.lower() for output in step.outputs] + [key.name.lower() for key in step.keys]
    if wanted.lower() in others:
        message = f"{wanted} is a column that query {step.name} groups by, and has no interval"
    else:
        message = f"query {step.name} has no column {wanted}"
    near = difflib.get_close_matches(wanted.lower(), [c.lower() for c in columns], n=1)
    found = [c for c in columns if near and c.lower() == near[0]]
    hint = f"did you mean {found[0]}?" if found else f"its aggregated columns are {', '.join(columns)}"
    raise statement.source.error(message, at=at, hint=hint)


def described(alert: CreateAlert) -> str:
    """An alert in a line; what is secret in its addresses is left out."""
    to = " and ".join(map(shown_url, alert.urls))
    return f"alert {alert.name}: {alert.condition} {alert.certainty.upper()}, to {to}"
