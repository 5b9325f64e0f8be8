"""``make docs``: the results page and its plot, from the figures that the benchmarks wrote."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot as plt

from slackwater.benchmarks import report

RESULTS = Path("docs/results")
COMPARED = {
    "panes": "Seven queries (COUNT and SUM, shared filters, windows of 10 s to 5 min sliding by 1 s) beside "
    "the same seven as Structured Streaming `window()` queries and beside DuckDB doing the panes in one "
    "statement; an empty micro-batch; code compiled in 50 batches with changing parameters.",
    "queries": "1 to 1,000 queries over one stream. *Alike*: one shape, other constants. *Unlike*: different "
    "predicates and aggregates. Each figure is the time of a median batch over that of one query.",
    "shedding": "*Idle*: seven queries with the closed loop on and a budget that no batch exceeds, over the "
    "same with shedding off. *Gain*: rows a second at a sampling rate of 0.1 over those at 1, on a stream "
    "parsed from JSON and on one that lies in columns. *Held*: how many times the rows of an unshed batch "
    "are taken in its time. *Planner*: rates for 1,000 queries.",
    "deferral": "When a million queries with mixed bounds, drifts, variances and beliefs are due next: by "
    "equation 7 (*solve*), by the average over an interval, and of extremes (*crossing*), in milliseconds on "
    "one core, with the time to lay out the tables; and the largest relative difference to exact solvers.",
    "hub": "Agents that connect to one hub all at once, each with a key; then each sends a row, waits until "
    "it is acknowledged from the hub's disk, and sends the next. The hub is killed, and all come back. "
    "*Lost*: acknowledged rows that are not in the log, or twice.",
    "agent-memory": "The process of an agent with a million keys, each granted a width of 0, so that every "
    "value makes a row: its resident memory at the peak, interpreter and the caller's lists included, and "
    "processor seconds for one value of every key. All keys in one call while the hub takes the rows "
    "(*drained*), while it does not read them (*waiting*) or is *away*; with values in a *list* in place of "
    "an array; in *pieces* of 10,000; and two million objects in *two columns*.",
    "service": "One run of five queries, after it has warmed up in three stretches: nobody looks; 200 "
    "readers of event streams and 50 requests a second for two minutes; nobody. *Batch time ratio*: the "
    "median batch while they read over that of the two quiet stretches together. *Memory slope*: of the "
    "driver, in each stretch.",
    "recovery": "A run is killed (`kill -9`) at random points and started again with the same command; its "
    "answers are compared with those of a run that nobody killed.",
}
LABELS = {
    "alike_eq": "alike, equality",
    "alike_range": "alike, ranges",
    "unlike": "unlike",
}


def read() -> dict[str, dict[str, float]]:
    """The figures of every benchmark that has been run."""
    files = sorted(RESULTS.glob("*.json"))
    # experiments have a page of their own
    return {kept["name"]: kept["figures"] for kept in map(report.read, files) if "series" not in kept}


def curves(figures: dict[str, float]) -> dict[str, list[tuple[int, float]]]:
    """Time of a batch by number of queries, for each kind of queries.

    >>> curves({"unlike_10_ms": 5.0, "unlike_1_ms": 2.0, "alike_1000_over_1": 3.0})
    {'unlike': [(1, 2.0), (10, 5.0)]}
    """
    found: dict[str, list[tuple[int, float]]] = {}
    for name, value in figures.items():
        kind, _, rest = name.rpartition("_ms")[0].rpartition("_")
        if name.endswith("_ms") and rest.isdigit():
            found.setdefault(kind, []).append((int(rest), value))
    return {kind: sorted(points) for kind, points in found.items()}


def shown(value: float) -> str:
    """A figure as a reader wants it: whole where it is large.

    >>> shown(17484252.75), shown(3.645)
    ('17,484,253', '3.645')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def plot(figures: dict[str, float], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(6.4, 4))
    for kind, points in curves(figures).items():
        axes.plot(*zip(*points, strict=True), marker="o", label=LABELS.get(kind, kind))
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.0f}")
        axis.set_minor_formatter("")
    axes.set_yticks([100, 200, 400, 800])
    axes.set_xlabel("queries over one stream")
    axes.set_ylabel("time of a batch [ms]")
    axes.grid(visible=True, which="both", alpha=0.2)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def page(results: dict[str, dict[str, float]]) -> str:
    """The results as Markdown, each with the command that makes it."""
    lines = ["# Results: benchmarks", ""]
    lines += [
        "Ratios are between things run side by side in one process; times are one machine's (2 cores).",
        "",
    ]
    for name, figures in results.items():
        lines += [f"## {name}", "", COMPARED.get(name, ""), ""]
        lines += [f"    slackwater bench {name} --json docs/results/{name}.json", ""]
        lines += ["| figure | value | limit |", "| --- | ---: | ---: |"]
        lines += [f"| `{n}` | {shown(v)} | {report.LIMITS.get(n, '')} |" for n, v in figures.items()]
        lines.append("")
        if name == "queries":
            lines += ["![Time of a batch by number of queries](queries.svg)", ""]
    notes = RESULTS / "notes.md"
    return "\n".join([*lines, ""]) + (notes.read_text() if notes.exists() else "")


def main() -> None:
    results = read()
    if "queries" in results:
        plot(results["queries"], RESULTS / "queries.svg")
    (RESULTS / "benchmarks.md").write_text(page(results))


if __name__ == "__main__":
    main()
