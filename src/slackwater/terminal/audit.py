"""``slackwater audit``: a recorded run once more, exactly, and its answers beside the true ones."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slackwater.errors import PlanError
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.runtime.answers import Answer
from slackwater.runtime.audit_report import AuditReport, ColumnAudit
from slackwater.runtime.auditing import Promise, compare, promises
from slackwater.runtime.recording import Recording
from slackwater.runtime.replaying import replay
from slackwater.runtime.session import Session
from slackwater.runtime.show import printable
from slackwater.runtime.sinks import JsonLinesSink
from slackwater.spark.execute import SparkSession
from slackwater.spark.session import passing_session
from slackwater.statistics.coverage import Coverage

Register = Callable[[Session], None]


def audit_folder(
    folder: Path,
    *,
    register: Register,
    queries: Sequence[str],
    json_file: Path | None,
    console: Console,
    talk: Console,
) -> bool:
    """Audit a recording and print what was found; whether all promises were kept."""
    # before Spark takes its seconds to start
    recording = Recording.open(folder)
    with (
        tempfile.TemporaryDirectory(prefix="slackwater-audit-") as temporary,
        talk.status("starting Spark …") as status,
        passing_session(f"slackwater audit {folder}", Path(temporary) / "spark.log") as spark,
    ):
        report = audit(
            recording,
            spark,
            register,
            queries,
            Path(temporary),
            lambda done, of: status.update(f"replaying turn {done:,} of {of:,} …"),
        )
    shed = sum(bool(t.rates) or t.share < 1 for t in recording.turns)
    rows = sum(t.arrived for t in recording.turns)
    console.print(f"{len(recording.turns):,} turns with {rows:,} rows replayed; load was shed in {shed:,}")
    show_report(report, console)
    if json_file is not None:
        json_file.write_text(json.dumps(report.as_dict(), indent=2, ensure_ascii=False) + "\n")
    return report.passed


def audit(
    recording: Recording,
    spark: SparkSession,
    register: Register,
    queries: Sequence[str],
    folder: Path,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> AuditReport:
    """Replay a recording, what it needs meanwhile in a folder, and compare."""
    functions = _functions(register)
    recording.check_functions(functions)
    promised = promises(Catalog.from_sql(sql, functions, kept=True) for sql in recording.versions.values())
    promised = _chosen(promised, queries)
    truth = folder / "truth.jsonl"
    replay(recording, spark, JsonLinesSink(truth), register, state=folder / "state", progress=progress)
    return compare(recording.answers(), _lines(truth), promised)


def _functions(register: Register) -> Functions:
    session = Session()
    register(session)
    return session.catalog.functions


def _chosen(promised: dict[str, Promise], queries: Sequence[str]) -> dict[str, Promise]:
    names = {name.lower(): name for name in promised}
    unknown = [name for name in queries if name.lower() not in names]
    if unknown:
        raise PlanError(
            f"there is no query called {unknown[0]} in the recording; there are {', '.join(promised)}"
        )
    return {names[n.lower()]: promised[names[n.lower()]] for n in queries} or promised


def _lines(path: Path) -> Iterator[Answer]:
    with path.open("rb") as file:
        yield from map(Answer.from_json, file)


def show_report(report: AuditReport, console: Console) -> None:
    """The report as tables for the eye, broken promises last."""
    estimated = [c for c in report.columns if c.coverage is not None]
    if estimated:
        console.print(_estimates(estimated))
    drifting = [c for c in report.columns if c.drift is not None]
    if drifting:
        console.print(_cached(drifting))
    console.print(_deliveries(report.columns))
    for problem in report.problems:
        console.print(Text(f"✗ {problem}", "red"), soft_wrap=True)
    if report.passed:
        console.print(Text("✓ all that was promised was kept", "green"))


def _table(title: str, *headings: str) -> Table:
    table = Table(box=None, title=title, title_justify="left", pad_edge=False, header_style="bold")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", overflow="fold")
    return table


def _estimates(columns: Sequence[ColumnAudit]) -> Table:
    table = _table(
        "estimates: how often the interval held the truth, and relative errors",
        *("query", "estimates", "held", "95 % range", "claimed", "median", "90 %", "99 %", "max", "within"),
    )
    for column in columns:
        coverage, errors = column.coverage, column.errors
        assert coverage is not None
        assert errors is not None
        table.add_row(
            printable(column.name),
            *_share(coverage),
            *(_percent(e) for e in (errors.median, errors.most, errors.nearly_all, errors.worst)),
            "–" if column.within is None else _percent(column.within),
        )
    return table


def _cached(columns: Sequence[ColumnAudit]) -> Table:
    late = any(c.drift.late for c in columns if c.drift is not None)
    modelled = any(c.drift.modelled for c in columns if c.drift is not None)
    headings = ["query", "ticks", "within", "95 % range", "belief", "answers", "saved"]
    headings += ["late", "of it within"] * late
    headings += ["modelled", "returns", "held", "95 % range", "claimed"] * modelled
    table = _table("current values: how often the cached answer was within its bound", *headings)
    for column in columns:
        drift = column.drift
        assert drift is not None
        cells = [printable(column.name), *_share(drift.fidelity), f"{column.answers:,}"]
        cells.append("–" if column.saved is None else _percent(column.saved))
        if late:
            within = _percent(drift.late_within / drift.late) if drift.late else "–"
            cells += [f"{drift.late:,}", within]
        cells += [f"{drift.modelled:,}", *_share(drift.returns)] if modelled else []
        table.add_row(*cells)
    return table


def _share(coverage: Coverage | None) -> list[str | Text]:
    """Of how many, the share that it was, where that may lie, and what was claimed."""
    if coverage is None:
        return ["0", "–", "–", "–"]
    low, high = coverage.range()
    return [
        f"{coverage.of:,}",
        Text(_percent(coverage.share), "red" if coverage.short() else ""),
        f"{_percent(low)}–{_percent(high)}",
        _percent(coverage.claimed),
    ]


def _deliveries(columns: Sequence[ColumnAudit]) -> Table:
    # what nobody has is not worth a column
    suspended, extra = any(c.suspended for c in columns), any(c.extra for c in columns)
    gaps = any(c.gap is not None for c in columns)
    headings = ["query", "contract", "how", "met", "true", "differ", "missing"]
    headings += ["suspended"] * suspended + ["extra"] * extra + ["longest gap"] * gaps
    table = _table("answers beside those of the exact run", *headings)
    table.columns[1].justify = table.columns[2].justify = "left"
    for column in columns:
        hows = ", ".join(f"{n:,} {how}" for how, n in sorted(column.hows.items()))
        missing = f"{column.missing:,}"
        if column.missing:
            missing += f" ({_percent(column.missing / column.true)})"
        cells: list[str | Text] = [
            printable(column.name),
            Text(printable(column.contract), "dim"),
            hows or "none",
            "–" if column.met is None else _percent(column.met),
            f"{column.true:,}",
            Text(f"{column.differing:,}", "red" if column.differing else ""),
            Text(missing, "red" if column.missing and not column.may_miss else ""),
        ]
        cells += [f"{column.suspended:,}"] * suspended + [f"{column.extra:,}"] * extra
        if gaps:
            cells.append("" if column.gap is None else f"{column.gap:,} of {column.gap_allowed:,}")
        table.add_row(*cells)
    return table


def _percent(share: float) -> str:
    """A share with as many digits as it takes to tell it from none and from all.

    >>> _percent(0.95), _percent(0.0123), _percent(1.0), _percent(0.9996), _percent(math.inf)
    ('95%', '1.23%', '100%', '99.96%', '∞')
    """
    if not math.isfinite(share):
        return "∞"
    return f"{share * 100:.2f}".rstrip("0").rstrip(".") + "%"
