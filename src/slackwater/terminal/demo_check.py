"""``slackwater demo --check``: whether the story went as it is told, held against the truth."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slackwater.language.contracts import Contract, Drift, Error, Exact, Precision, Subset
from slackwater.runtime.answers import Answer
from slackwater.runtime.audit_report import AuditReport
from slackwater.runtime.json_values import to_micros
from slackwater.terminal.demo_load import Batch
from slackwater.terminal.demo_story import Chapter

LEAST_RISE = 4.0
"""Times as many rows a second as in the calm before it: a capacity that shrinks makes no burst."""
LEAST_MULTIPLE = 3.0
"""Times the capacity that the burst must have been at least, though five are aimed at."""
SHED_SHARE = 0.8
ONSET_S = 4.0
"""What of a burst is not looked at: the batch that it begins in, and its first one."""
IN_TIME = 0.9
"""Of the batches, how many must have ended within their interval: few may be late on a busy machine."""
LATEST = 3.0
"""Intervals after which every row must have been in its batch's answers."""
EXACT_AT_END = 5
FEWEST = 10
"""Estimates, or bounds, without which nothing has been tested."""
MET = 0.8
CLOSE = 1e-9

Truth = Callable[[Answer], float | None]
"""What is true where an answer says what it says; None where nobody knows."""
Chapters = Sequence[tuple[int, Chapter]]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    found: str
    wanted: str
    held: bool


def span(chapters: Chapters, name: str) -> tuple[int, int]:
    """From when to when a chapter was told, in microseconds; nothing where it was not."""
    for place, (begin, chapter) in enumerate(chapters):
        if chapter.name == name:
            end = chapters[place + 1][0] if place + 1 < len(chapters) else 2**62
            return begin, end
    return 0, 0


def burst_findings(batches: Sequence[Batch], chapters: Chapters) -> list[Finding]:
    """Whether there was a burst, above what the machine can do, and whether load was shed."""
    begin, end = span(chapters, "burst")
    inside = [b for b in batches if b.oldest >= begin + ONSET_S * 1e6 and b.newest <= end]
    multiple = statistics.median([b.multiple for b in inside]) if inside else 0.0
    shed = sum(b.sheds for b in inside) / len(inside) if inside else 0.0
    calm = [b for b in batches if b.oldest >= span(chapters, "calm")[0] > 0 and b.newest <= begin]
    rise = _rate(inside) / _rate(calm) if _rate(calm) else 0.0
    return [
        Finding(
            "rows a second in the burst",
            f"{rise:.1f} times those of the calm",
            f"at least {LEAST_RISE:g} times",
            rise >= LEAST_RISE,
        ),
        Finding(
            "load in the burst",
            f"{multiple:.1f} times the capacity",
            f"at least {LEAST_MULTIPLE:g} times (5 are aimed at)",
            multiple >= LEAST_MULTIPLE,
        ),
        Finding(
            "batches of it that were shed",
            f"{shed:.0%} of {len(inside)}",
            f"at least {SHED_SHARE:.0%}",
            shed >= SHED_SHARE,
        ),
    ]


def _rate(batches: Sequence[Batch]) -> float:
    """Rows a second of some batches; 0 where there are none."""
    seconds = sum(b.newest - b.oldest for b in batches) / 1e6
    return sum(b.rows for b in batches) / seconds if seconds else 0.0


def latency_findings(batches: Sequence[Batch], chapters: Chapters, interval: float) -> list[Finding]:
    """Whether batches kept to their interval, from the beginning of the story on.

    The oldest row of a batch has come an interval before it began: it is at most two intervals old when a
    batch ends in time, whatever Spark or other streams did meanwhile.
    """
    begin = span(chapters, "calm")[0]
    told = [b for b in batches if b.oldest >= begin > 0]
    in_time = sum(b.age <= 2 * interval for b in told) / len(told) if told else 0.0
    oldest = max((b.age for b in told), default=0.0)
    last = told[-1].age if told else 0.0
    return [
        Finding(
            "batches that ended within their interval",
            f"{in_time:.0%} of {len(told)}",
            f"at least {IN_TIME:.0%}",
            in_time >= IN_TIME,
        ),
        Finding(
            "oldest row when its batch was done",
            f"{oldest:.1f} s",
            f"at most {(1 + LATEST) * interval:g} s",
            bool(told) and oldest <= (1 + LATEST) * interval,
        ),
        Finding(
            "the same in the last batch",
            f"{last:.1f} s",
            f"at most {2 * interval:g} s",
            bool(told) and last <= 2 * interval,
        ),
    ]


def audit_findings(report: AuditReport, contracts: Mapping[str, Contract]) -> list[Finding]:
    """Whether answers over packets and queues are what they say to be, beside the true ones."""
    columns = {c.query: c for c in report.columns}
    found = []
    for query, contract in contracts.items():
        column = columns.get(query)
        if isinstance(contract, Precision):
            continue
        if column is None or not column.compared:
            found.append(Finding(f"{query} ({contract})", "nothing compared", "answers", False))
            continue
        of = [c for c in report.columns if c.query == query]
        tested = sum(c.tests for c in report.columns)
        problems = [problem for c in of for problem in c.problems(tested)]
        if isinstance(contract, Exact | Subset):
            said = f"{sum(c.compared for c in of)} compared, {sum(c.differing for c in of)} differ"
            said += f", longest gap {column.gap}" if column.gap is not None else ""
            said += f", {column.suspended} suspended" if column.suspended else ""
            wanted = "none differ" + (f", gap at most {column.gap_allowed}" if column.gap is not None else "")
        else:
            cover = column.coverage if column.drift is None else column.drift.fidelity
            estimates = 0 if cover is None else cover.of
            said = "none was an estimate" if cover is None else f"{cover.share:.1%} of {cover.of} hold"
            said += f", {column.missing} missing" if column.missing else ""
            wanted = "" if cover is None else f"{cover.claimed:.0%}, less what chance explains"
            if isinstance(contract, Drift) and estimates < FEWEST:
                problems.append(f"{query}: {estimates} ticks are too few to tell")
        found.append(
            Finding(f"{query} ({contract})", problems[0] if problems else said, wanted, not problems)
        )
    return found


def bounds_findings(
    answers: Sequence[Answer], truth: Truth, keys: Callable[[Answer], int], late: int
) -> list[Finding]:
    """Whether intervals under PRECISION held what agents had, and said so while one was away.

    What comes later than the TOLERANCE allows is promised nothing: where some did, one in a hundred may fail.
    """
    bounded = [a for a in answers if a.how == "bounded" and a.low is not None]
    # until all keys have been heard of, answers are without them and say that they are not met
    whole = [a for a in bounded if a.met or a.rows == keys(a)]
    known = [(a, value) for a in whole if (value := truth(a)) is not None]
    outside = [a for a, value in known if not _holds(a, value)]
    allowed = 0 if not late else len(known) // 100
    met = sum(a.met for a in bounded) / len(bounded) if bounded else 0.0
    silent = sum(a.how == "bounded" and a.low is None for a in answers)
    return [
        Finding(
            "intervals under PRECISION that hold",
            f"{len(known) - len(outside):,} of {len(known):,}" + (f", {late} late" if late else ""),
            "all" if not late else "all but one in a hundred, as some came late",
            len(known) >= FEWEST and len(outside) <= allowed,
        ),
        Finding(
            "of them as narrow as asked",
            f"{met:.0%}",
            f"at least {MET:.0%}",
            met >= MET,
        ),
        Finding("answers without interval while an agent was away", f"{silent}", "at least 1", silent >= 1),
    ]


def _holds(answer: Answer, value: float) -> bool:
    slack = CLOSE * abs(value)
    low, high = float(str(answer.low)), float(str(answer.high))
    return low - slack <= value <= high + slack


def estimate_findings(
    answers: Sequence[Answer], contracts: Mapping[str, Contract], chapters: Chapters
) -> list[Finding]:
    """Whether there were estimates in the burst, most of them as good as asked, and none at the end."""
    errors = {query for query, contract in contracts.items() if isinstance(contract, Error)}
    begin, end = span(chapters, "burst")
    # a query that was given up for a while has not kept its promise either
    loose = [a for a in answers if a.query in errors and begin <= _end(a) <= end and a.how != "exact"]
    sampled = [a for a in loose if a.how == "sampled"]
    met = sum(a.met for a in loose) / len(loose) if loose else 0.0
    found = [
        Finding(
            "estimates in the burst",
            f"{len(sampled)}, {len(loose) - len(sampled)} suspended, {met:.0%} as good as asked",
            f"at least {FEWEST}, {MET:.0%}",
            len(sampled) >= FEWEST and met >= MET,
        )
    ]
    for query, contract in contracts.items():
        if isinstance(contract, Error | Subset):
            last = [a.how for a in answers if a.query == query][-EXACT_AT_END:]
            exact = last.count("exact")
            found.append(
                Finding(
                    f"the last answers of {query}",
                    f"{exact} of {len(last)} exact",
                    f"all {EXACT_AT_END}",
                    exact == EXACT_AT_END,
                )
            )
    return found


def alert_findings(events: Sequence[Mapping[str, object]]) -> list[Finding]:
    """Whether the webhook was told of the burst, and of its end."""
    states = [str(event.get("state")) for event in events]
    told = "raised" in states and states[-1] == "cleared"
    return [Finding("the webhook was told", ", ".join(states) or "nothing", "raised, at last cleared", told)]


def _end(answer: Answer) -> int:
    moment = answer.window_end or answer.at
    return 0 if moment is None else to_micros(moment)


def show(findings: Sequence[Finding], console: Console) -> bool:
    """Print what was found; whether all of it held."""
    table = Table(
        box=None, pad_edge=False, header_style="bold", title="the story, checked", title_justify="left"
    )
    for heading in ("", "what", "found", "wanted"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        mark = Text("✓", "green") if finding.held else Text("✗", "red")
        table.add_row(mark, Text(finding.what), Text(finding.found), Text(finding.wanted, "dim"))
    console.print(table)
    broken = [finding for finding in findings if not finding.held]
    for finding in broken:
        console.print(
            Text(f"✗ {finding.what}: {finding.found}; wanted: {finding.wanted}", "red"), soft_wrap=True
        )
    if not broken:
        console.print(Text("✓ latency held, intervals covered, and answers went back to exact", "green"))
    return not broken
