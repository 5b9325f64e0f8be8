"""A recorded run as one HTML file: what was run, the tide line, a plot for each query, and the numbers.

The file needs nothing beside it and asks nobody for anything: styles, fonts, the chart library and the data
are in it. Its size is bounded: at most 200 queries are drawn, the worst ones, with at most 1,000 points each.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from string import Template
from typing import Any

from slackwater.runtime.answers import HOWS
from slackwater.service import report_parts as parts
from slackwater.service import report_tables as tables
from slackwater.service import report_words as words
from slackwater.service.models import Moment
from slackwater.service.one_script import one_script
from slackwater.service.recorded import Recorded
from slackwater.service.report_data import Drawn, QueryNumbers, numbers_of

DRAWN = 200
MOMENTS = 1_500
VERSIONS = 50
"""Versions of the query set whose queries are in the report: the last ones."""
_FONTS = (
    ("Newsreader", "newsreader-latin-wght-normal", "200 800"),
    ("Instrument Sans", "instrument-sans-latin-wght-normal", "400 700"),
    ("IBM Plex Mono", "ibm-plex-mono-latin-400-normal", "400"),
)


def report(recorded: Recorded, title: str, *, made_at: datetime | None = None) -> str:
    """The report of a recording as HTML."""
    frame = recorded.frame()
    moments = recorded.frame_lines.thinned_moments(MOMENTS)
    catalogs = [recorded.versions.catalog(number) for number in recorded.versions.numbers[-VERSIONS:]]
    shown = {query.name: query for query in frame.queries}
    queries = numbers_of(catalogs, shown, recorded.recorded_answers.scan_last())
    reached = {stream.name: (stream.watermark or frame.at).timestamp() for stream in frame.streams}
    drawn: dict[str, dict[str, Any]] = {}
    for query in queries:
        points = query.series.ended()
        if points and len(drawn) < DRAWN:
            drawn[query.name] = _plot(f"q{len(drawn)}", query, points, reached.get(query.stream))
    data = {"tide": _tide(moments), "hows": HOWS, "queries": list(drawn.values())}
    sections = [
        words.tiles(frame, moments, queries),
        words.tide_section(moments),
        words.query_section(queries, {name: plot["id"] for name, plot in drawn.items()}, DRAWN),
        parts.section("Streams", parts.panel(tables.stream_table(frame.streams))),
    ]
    if frame.agents:
        sections.append(parts.section("Agents", tables.agents_part(frame.agents, words.LISTED)))
    if frame.alerts:
        sections.append(parts.section("Alerts", parts.panel(tables.alert_table(frame.alerts))))
    sections += [words.audit_section(recorded), words.run_section(recorded)]
    page = Template(_asset("report/report.html"))
    return page.substitute(
        title=parts.text(title),
        when=words.when(frame, moments),
        says=words.says(moments, queries),
        notes="".join(f'<p class="note">{note}</p>' for note in words.notes(recorded, frame)),
        sections="".join(sections),
        footer=f"Made by slackwater report, {words.second(made_at or datetime.now(UTC))}. All times are UTC.",
        fonts="\n".join(_font(*font) for font in _FONTS),
        uplot_css=_asset("vendor/uplot/uPlot.min.css"),
        css=_asset("report/report.css"),
        data=script_json(data),
        uplot=_asset("vendor/uplot/uPlot.iife.min.js"),
        script=one_script("report/report.js", _asset),
    )


def script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in.

    >>> script_json({"name": "</script><b>"})
    '{"name":"\\\\u003c/script\\\\u003e\\\\u003cb\\\\u003e"}'
    """
    plain = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return (resources.files("slackwater.service") / "page" / name).read_text(encoding="utf-8")


def _font(family: str, file: str, weight: str) -> str:
    path = resources.files("slackwater.service") / "page" / "vendor" / "fonts" / f"{file}.woff2"
    coded = base64.b64encode(path.read_bytes()).decode()
    source = f'url("data:font/woff2;base64,{coded}") format("woff2")'
    return f'@font-face {{ font-family: "{family}"; src: {source}; font-weight: {weight}; }}'


# what is drawn


def _plot(
    place: str, query: QueryNumbers, points: Sequence[Drawn], until: float | None = None
) -> dict[str, Any]:
    numbers = {
        name: [_rounded(getattr(p, name)) for p in points] for name in ("value", "low", "high", "rate")
    }
    return {
        "id": place,
        "kind": query.kind,
        "slide": None if query.slide is None else query.slide * query.series.together,
        "at": [round(p.at, 3) for p in points],
        "how": [HOWS.index(p.how) for p in points],
        "gap": [int(p.after_gap) for p in points],
        "until": None if until is None else round(until, 3),
        # of one that stands for several nobody knows where it leads
        "slope": [_rounded(p.slope) for p in points] if query.series.together == 1 else None,
        **numbers,
    }


def _tide(moments: Sequence[Moment]) -> dict[str, list[Any]]:
    columns = {
        "load": "load",
        "kept": "kept_load",
        "capacity": "capacity",
        "level": "level",
        "rows": "rows_per_second",
    }
    found: dict[str, list[Any]] = {
        name: [_rounded(getattr(moment, field)) for moment in moments] for name, field in columns.items()
    }
    return {"at": [round(moment.at.timestamp(), 3) for moment in moments], **found}


def _rounded(value: float | None) -> float | None:
    """Seven digits are more than a plot can show."""
    return None if value is None else float(f"{value:.7g}")
