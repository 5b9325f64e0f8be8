"""Parts of a report as HTML. Whatever comes from a run is escaped here, and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from slackwater.language.shown import shown_sql
from slackwater.runtime.show import compact, printable
from slackwater.service.picking import ROW
from slackwater.service.report_data import QueryNumbers

NONE = "–"


def text(value: object) -> str:
    """Any text, safe in HTML, control characters spelt out."""
    return escape("\n".join(map(printable, str(value).replace("\t", "  ").split("\n"))))


def percent(share: float | None) -> str:
    """A share with as many digits as it takes to tell it from none and from all.

    >>> percent(0.95), percent(0.0123), percent(1.0), percent(0.99996), percent(None)
    ('95 %', '1.23 %', '100 %', '99.996 %', '–')
    """
    if share is None:
        return NONE
    if not math.isfinite(share):
        return "∞"
    digits = 2 if share in (0.0, 1.0) or 0.0001 <= share <= 0.9999 else 4
    return f"{share * 100:.{digits}f}".rstrip("0").rstrip(".") + " %"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, words: Sequence[int] = (0,)) -> str:
    """A table of HTML; columns that are no numbers are named by their places in ``words``."""

    def cells(tag: str, row: Sequence[str]) -> str:
        kinds = ("wide" if place in words else "n" for place in range(len(row)))
        return "".join(f'<{tag} class="{kind}">{cell}</{tag}>' for kind, cell in zip(kinds, row, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>\n" for row in rows)
    head = f"<thead><tr>{cells('th', headings)}</tr></thead>"
    return f'<div class="scroll"><table>{head}<tbody>\n{body}</tbody></table></div>'


def section(heading: str, body: str, *, words: str = "", kind: str = "") -> str:
    """A section with its heading and a sentence."""
    said = f"<p>{words}</p>" if words else ""
    return f'<section class="{kind}"><h2>{heading}</h2>{said}\n{body}</section>\n'


def panel(body: str) -> str:
    return f'<div class="panel">{body}</div>'


def met_words(query: QueryNumbers) -> str:
    """Whether the contract was met, in words and a colour."""
    share = query.met_share
    if share is None:
        return '<span class="quiet">no answer</span>'
    kind = "good" if share == 1 else "bad"
    return f'<span class="{kind}">{"✓ " if share == 1 else ""}{percent(share)} met</span>'


def gap_words(query: QueryNumbers) -> str:
    """Windows without an answer; of grouped answers nobody can tell what is missing."""
    if query.slide is None or query.keys:
        return NONE
    if not query.missing:
        return "none"
    if not query.contract.startswith("SUBSET"):
        # only under SUBSET are windows left out: others have no answer where there was nothing to answer
        return f"{query.missing:,} without rows"
    return f"{query.missing:,}, {query.longest_gap:,} in a row"


def card(query: QueryNumbers, plot: str | None) -> str:
    """One query: its last answer, the plot, and the main numbers."""
    value, _, interval = query.last.partition(" ")
    last = f"{text(value or NONE)} <small>{text(interval)}</small>"
    is_row = query.column == ROW
    if is_row:
        last = text(query.last or NONE)
    drawing = (
        f'<div class="chart" id="{plot}" role="img" aria-label="{text(_in_words(query))}"></div>'
        if plot is not None
        else f'<p class="empty">{"nothing to draw" if query.answers else "no answer"}</p>'
    )
    facts = {
        "answers": compact(query.answers),
        "largest error": percent(query.largest_error) if query.largest_error != 0 else "none",
        "least kept": percent(query.least_rate if query.answers else None),
        "gaps": gap_words(query),
    }
    listed = "".join(f"<div><dt>{name}</dt><dd>{fact}</dd></div>" for name, fact in facts.items())
    unmet = query.met_share is not None and query.met_share < 1
    return (
        f'<article class="card{" unmet" if unmet else ""}"><h3><span>{text(query.name)}</span>'
        f'<span class="met">{met_words(query)}</span></h3>'
        f'<p class="contract" title="{text(query.contract)}">{text(query.contract)}</p>'
        f'<p class="last{" row" if is_row else ""}">{last}</p>'
        f'<p class="of">{text(query.shown_of) or "&nbsp;"}</p>{drawing}'
        f'<dl class="facts">{listed}</dl>{hows(query.hows)}'
        f"<details><summary>SQL</summary><pre>{text(shown_sql(query.sql))}</pre></details></article>\n"
    )


def hows(counts: Mapping[str, int]) -> str:
    """How answers were obtained: a bar and words."""
    total = sum(counts.values())
    if not total:
        return ""
    common = sorted(counts.items(), key=lambda item: -item[1])
    bar = "".join(f'<i class="{text(how)}" style="flex:{n}"></i>' for how, n in common)
    words = ", ".join(f"{n:,} {text(how)}" for how, n in common)
    return f'<div class="hows" aria-hidden="true">{bar}</div><p class="how-words">{words}</p>'


def _in_words(query: QueryNumbers) -> str:
    return f"{query.name}: {query.answers:,} answers, last {query.last or 'none'}"


def query_table(queries: Sequence[QueryNumbers], most: int) -> str:
    """All queries as numbers, for who has no scripts and for what is not drawn."""
    headings = ("query", "contract", "met", "answers", "how", "largest error", "least kept", "gaps", "missed")
    rows = [
        (
            f"<b>{text(query.name)}</b>",
            f"<code>{text(query.contract)}</code>",
            met_words(query).replace(" met<", "<"),
            f"{query.answers:,}",
            ", ".join(f"{n:,} {text(how)}" for how, n in query.hows.most_common()),
            percent(query.largest_error) if query.largest_error != 0 else "none",
            percent(query.least_rate if query.answers else None),
            gap_words(query),
            f"{query.missed:,}" if query.missed else NONE,
        )
        for query in queries[:most]
    ]
    more = f'<p class="note">… and {len(queries) - most:,} more</p>' if len(queries) > most else ""
    return table(headings, rows, words=(0, 1, 4)) + more
