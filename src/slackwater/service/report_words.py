"""What a report says of a recorded run, in sentences and numbers, section by section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from slackwater.runtime.show import compact, duration, show_time
from slackwater.service import report_parts as parts
from slackwater.service import report_tables as tables
from slackwater.service.models import Frame, Moment, is_late
from slackwater.service.recorded import Recorded
from slackwater.service.report_data import QueryNumbers

LISTED = 2_000
"""Queries, agents or alerts that are listed in a table."""


def when(frame: Frame, moments: Sequence[Moment]) -> str:
    """From when to when it ran."""
    first, last = moments[0].at, max(frame.at, moments[-1].at)
    start = second(first).removesuffix(" UTC")
    return f"{start} to {second(last)}, {duration((last - first).total_seconds())}"


def says(moments: Sequence[Moment], queries: Sequence[QueryNumbers]) -> str:
    """The run in two sentences."""
    answers = sum(query.answers for query in queries)
    broken = [query for query in queries if query.met_share is not None and query.met_share < 1]
    tide = tide_words(moments)
    of = f"{_many(len(queries), 'query', 'queries')} gave {_many(answers, 'answer', 'answers')}"
    if not answers:
        return f"{_many(len(queries), 'query', 'queries')} gave no answer. {tide}"
    if not broken:
        return f"{of}, and every one of them kept its contract. {tide}"
    names = ", ".join(parts.text(query.name) for query in broken[:3])
    names += " and others" if len(broken) > 3 else ""
    were = "was" if len(broken) == 1 else "were"
    return f"{of}. {_many(len(broken), 'contract', 'contracts')} {were} not always met: {names}. {tide}"


def tide_words(moments: Sequence[Moment]) -> str:
    """How much was shed."""
    highest = max(moment.level for moment in moments)
    if highest <= 0:
        late = sum(is_late(moment.load, moment.capacity) for moment in moments) / len(moments)
        if late == 0:
            return "Nothing had to be shed."
        return (
            f"Nothing was shed: in {parts.percent(late)} of the time batches took longer than they may, and "
            "leaving rows out would not have made them quick enough."
        )
    share = sum(moment.level > 0 for moment in moments) / len(moments)
    flood = ", which is more than contracts allow" if highest > 1 else ""
    return f"Load was shed in {parts.percent(share)} of the time; the level was {highest:.2f} at most{flood}."


def notes(recorded: Recorded, frame: Frame) -> list[str]:
    """What a reader should know of a recording that is not all there."""
    found = []
    if not recorded.has_frames:
        found.append("This run was recorded without frames: load, capacity, agents and alerts are not known.")
    if recorded.lost:
        found.append(f"{recorded.lost:,} frames of the recording are damaged and were passed over.")
    if frame.phase == "failed":
        found.append(f"The run failed: {parts.text(frame.message)}")
    elif frame.phase in ("starting", "running"):
        found.append("The recording does not have the end of the run: it went on, or was killed.")
    return found


def tiles(frame: Frame, moments: Sequence[Moment], queries: Sequence[QueryNumbers]) -> str:
    """The main numbers of the run."""
    answers = sum(query.answers for query in queries)
    met = sum(query.met for query in queries)
    whole = sum(query.hows["exact"] + query.hows["subset"] for query in queries)
    errors = [query.largest_error for query in queries if query.largest_error is not None]
    fastest = max(moment.rows_per_second for moment in moments)
    tiles = [
        ("answers", compact(answers), f"of {_many(len(queries), 'query', 'queries')}"),
        ("contract met", parts.percent(met / answers if answers else None), "of all answers"),
        ("exact", parts.percent(whole / answers if answers else None), "of all answers"),
        ("largest error", parts.percent(max(errors, default=None)), "half an interval over its value"),
        ("highest level", f"{max(m.level for m in moments):.2f}", "above 1 contracts are not kept"),
        ("rows", compact(sum(s.rows for s in frame.streams)), f"up to {compact(fastest)} a second"),
    ]
    listed = "".join(
        f"<div><dt>{name}</dt><dd>{value}<small>{note}</small></dd></div>" for name, value, note in tiles
    )
    return f'<dl class="tiles">{listed}</dl>'


def tide_section(moments: Sequence[Moment]) -> str:
    """The plots of load, capacity and level."""
    most = max((m.load for m in moments if m.load is not None), default=None)
    capacity = max((m.capacity for m in moments if m.capacity is not None), default=None)
    words = "What arrived, and how much had to be given up."
    keys = [("--water", "rows a second", "")]
    unit = ""
    if most is not None:
        words = f"The load of a batch was {_seconds(most)} at most, its capacity {_seconds(capacity)}."
        keys = [
            ("--shed-line", "load, of which shed", ""),
            ("--water", "kept", ""),
            ("--ink", "capacity", "line"),
        ]
        unit = '<span class="unit">executor seconds a batch</span>'
    keys.append(("--level", "level ℓ", ""))
    legend = "".join(
        f'<span class="{kind}" style="--key: var({name})">{key}</span>' for name, key, kind in keys
    )
    charts = (
        f'<div class="legend" aria-hidden="true">{legend}{unit}</div>'
        f'<div class="tide-chart" role="img" aria-label="Load against capacity. {words}"></div>'
        f'<div class="level-chart" role="img" aria-label="Level. {tide_words(moments)}"></div>'
    )
    return parts.section("The tide line", parts.panel(charts), words=words)


def query_section(queries: Sequence[QueryNumbers], drawn: Mapping[str, str], most: int) -> str:
    """A card for each query that is drawn (its place by its name), and a table of all."""
    some = [query for query in queries if query.name in drawn] or list(queries[:most])
    cards = "".join(parts.card(query, drawn.get(query.name)) for query in some)
    words = "Contracts that were not met come first, then the largest errors. The band is the interval."
    if len(queries) > len(some):
        words += f" {len(some):,} of {len(queries):,} are drawn; all are in the table below."
    listed = parts.panel(parts.query_table(queries, LISTED))
    return parts.section("Queries", f'<div class="cards">{cards}</div>{listed}', words=words)


def audit_section(recorded: Recorded) -> str:
    """What an audit has found, or how to run one."""
    found = recorded.audit()
    words = "The recording replayed without shedding, and its answers beside the true ones."
    if found is not None:
        return parts.section("Audit", parts.panel(tables.audit_part(found)), words=words)
    hint = (
        "No audit has been run. <code>slackwater audit DIR --json DIR/audit.json</code> runs one, and a "
        "report that is made after it shows what it found."
    )
    return parts.section("Audit", f'<p class="note">{hint}</p>')


def run_section(recorded: Recorded) -> str:
    """The SQL and the settings."""
    sql = tables.safe_sql(recorded.catalog())
    changed = len(recorded.versions.numbers) - 1
    words = "The statements at the end of the run."
    if changed:
        words += f" The query set was changed {_many(changed, 'time', 'times')} while it ran."
    settings = tables.settings_list(recorded.settings)
    body = parts.panel(f"<pre>{parts.text(sql)}</pre>") + parts.panel(f"<p>Settings</p>{settings}")
    return parts.section("What was run", body, words=words, kind="run")


def second(moment: datetime) -> str:
    """A time to the second."""
    return f"{show_time(moment).split('.')[0]} UTC"


def _many(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _seconds(value: float | None) -> str:
    return "not known" if value is None else duration(value)
