"""Tables of a report: streams, agents, alerts, what an audit has found, and what was run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slackwater.language.shown import shown_sql
from slackwater.plan.catalog import Catalog
from slackwater.runtime.show import compact
from slackwater.service.models import AgentsFrame, AlertFrame, StreamFrame
from slackwater.service.report_parts import NONE, panel, percent, table, text


def stream_table(streams: Sequence[StreamFrame]) -> str:
    rows = [
        (
            f"<b>{text(stream.name)}</b>",
            f"{stream.rows:,}",
            f"{stream.batch:,}",
            f"{stream.late:,}",
            f"{stream.unreadable:,}",
            text(f"{stream.watermark:%Y-%m-%d %H:%M:%S}") if stream.watermark else NONE,
            text(stream.state),
        )
        for stream in streams
    ]
    return table(("stream", "rows", "batches", "late", "unreadable", "watermark", "state"), rows)


def agents_part(agents: Sequence[AgentsFrame], most: int) -> str:
    """Agents by stream, and the widths they hold."""
    parts = []
    for stream in agents:
        saved = NONE if stream.saved is None else percent(stream.saved)
        parts.append(
            f"<p><b>{text(stream.stream)}</b>: {stream.there:,} of {stream.known:,} agents there, "
            f"{stream.keys:,} keys, {compact(stream.messages_per_second)} messages/s; "
            f"{saved} of what sending everything would send was saved</p>"
        )
        rows = [
            (
                f"{text(w.query)}.{text(w.column)}",
                *(_width(v) for v in (w.smallest, w.median, w.largest, w.used, w.allowed)),
            )
            for w in stream.widths[:most]
        ]
        if rows:
            parts.append(table(("widths for", "smallest", "median", "largest", "used", "allowed"), rows))
        away = [agent.name for agent in stream.agents if not agent.there]
        if away:
            parts.append(f'<p class="note">away at the end: {text(", ".join(away[:most]))}</p>')
    return "".join(map(panel, parts))


def _width(value: float | None) -> str:
    return NONE if value is None else f"{value:.4g}"


def alert_table(alerts: Sequence[AlertFrame]) -> str:
    rows = [
        (
            f"<b>{text(alert.name)}</b>",
            text(alert.query),
            f"<code>{text(alert.condition)}</code>",
            f"{alert.events:,}",
            f"{alert.raised:,}",
            f"{alert.waiting:,}",
            text(alert.trouble) or NONE,
        )
        for alert in alerts
    ]
    headings = ("alert", "on", "when", "events", "raised at the end", "not taken", "trouble")
    return table(headings, rows, words=(0, 1, 2, 6))


def audit_part(report: Mapping[str, Any]) -> str:
    """What an audit has found."""
    kind, verdict = (
        ("good", "✓ All that was promised was kept.")
        if report.get("passed")
        else ("bad", "✗ Promises were broken.")
    )
    problems = "".join(f"<li>{text(problem)}</li>" for problem in report.get("problems", ()))
    rows = []
    for column in report["columns"]:
        # of cached answers: at how many ticks they were within their bound
        cached = (column.get("drift") or {}).get("fidelity")
        coverage, error = column.get("coverage") or cached or {}, column.get("relative_error") or {}
        rows.append(
            (
                f"<b>{text(column.get('query'))}.{text(column.get('column'))}</b>",
                f"<code>{text(column.get('contract'))}</code>",
                f"{column.get('answers', 0):,}",
                f"{column.get('true_answers', 0):,}",
                percent(coverage.get("share")),
                percent(coverage.get("claimed")),
                percent(error.get("median")),
                percent(error.get("max")),
                f"{column.get('differing', 0):,}",
                f"{column.get('missing', 0):,}",
            )
        )
    headings = (
        "column",
        "contract",
        "answers",
        "true",
        "held",
        "claimed",
        "median error",
        "largest",
        "differ",
        "missing",
    )
    listed = f'<ul class="problems bad">{problems}</ul>' if problems else ""
    return f'<p class="verdict {kind}">{verdict}</p>{listed}{table(headings, rows, words=(0, 1))}'


def settings_list(settings: Mapping[str, Any]) -> str:
    items = "".join(f"<div><dt>{text(k)}</dt><dd>{text(v)}</dd></div>" for k, v in settings.items())
    return f'<dl class="settings">{items}</dl>'


def safe_sql(catalog: Catalog) -> str:
    """The statements of a query set, without what is secret in them: a report is passed on."""
    return shown_sql(catalog.sql())
