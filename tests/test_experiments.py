"""The experiments run on small data and give the figures they promise; what they rest on is tested beside."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.progress import Progress
from typer.testing import CliRunner

from slackwater.benchmarks.report import read, write
from slackwater.experiments import plots, sampling_burst, sampling_load, sampling_time
from slackwater.experiments.app import reproduce
from slackwater.experiments.bricks import ORIGIN, Wall, make_bricks
from slackwater.experiments.coverage import check_faithful
from slackwater.experiments.hashing import identity, numbers
from slackwater.experiments.packets import COPIES, generated_packets, landed, real_packets
from slackwater.experiments.page import filled
from slackwater.experiments.prefixes import UNKNOWN, made_from, to_number
from slackwater.experiments.replica import stream_of
from slackwater.experiments.runs import INPUT, OURS, PAPER, governor, run
from slackwater.experiments.workload import workloads
from slackwater.traffic import Traffic


@pytest.fixture
def progress() -> Progress:
    return Progress(disable=True)


def test_numpy_hashes_as_spark_does(spark: Any) -> None:
    random = np.random.default_rng(3)
    part, seq = random.integers(0, 2**20, 50), random.integers(0, 2**62, 50)
    rows = spark.createDataFrame(list(zip(part.tolist(), seq.tolist(), strict=True)), "p BIGINT, s BIGINT")
    hashed = rows.selectExpr("shiftrightunsigned(xxhash64(p, s, -7L), 11) AS u").collect()
    assert [row.u for row in hashed] == numbers(identity(part, seq), -7).tolist()


def test_the_longest_of_all_prefixes_is_found() -> None:
    random = np.random.default_rng(1)
    addresses = [".".join(map(str, a)) for a in random.integers(0, 40, (400, 4)).tolist()]
    table = made_from(addresses[:300], 300, seed=2)
    assert len({length for length, networks in table.by_length if networks}) > 3
    found = []
    for address in addresses:
        number = to_number(address)
        matching = [
            (length, network)
            for length, networks in table.by_length
            for prefix, network in networks.items()
            if number >> (32 - length) == prefix
        ]
        found.append(max(matching, default=(0, UNKNOWN))[1])
    assert [table(a) for a in addresses] == found
    assert len(set(found)) > 5


def test_real_packets_come_at_real_times_as_often_as_the_papers(real_data: Path) -> None:
    packets = real_packets(real_data, 60, seed=1)
    assert 800 < packets.num_rows / 60 < 2400
    times = packets["ts"].cast("int64").to_numpy()
    assert (np.diff(times) >= 0).all()
    assert COPIES == 7
    for workload in workloads(packets, 500, 1).values():
        shares = {name: mask.mean() for name, mask in workload.masks(packets).items()}
        assert all(share > 0 for share in shares.values())
        many = [q.name for q in workload.queries[:3]]
        assert min(shares[n] for n in many) > max(s for n, s in shares.items() if n not in many)


def test_the_replica_gives_the_answers_of_the_run(spark: Any, tmp_path: Path) -> None:
    packets = generated_packets(330, 60.0, 5)
    stream = landed(spark, packets, tmp_path, 5000)
    workload = workloads(packets, 100, 1)["network"]
    whole = run(spark, stream, workload, tmp_path, governor(spark, OURS, 1.0))
    assert not any(r.thresholds for r in whole.governor.rulings)
    view = stream_of(stream, workload)
    # windows that begin before the stream does are answered too
    ends = np.arange(stream.begins // 10**6 + 20, stream.ends // 10**6, 5, dtype=np.int64) * 10**6
    for strategy, load in ((OURS, 4.0), (PAPER, 4.0), (INPUT, 30.0)):
        ruler = governor(spark, strategy, load, whole.governor)
        shed = run(spark, stream, workload, tmp_path, ruler, salt=3)
        assert all(r.thresholds and r.measured for r in ruler.rulings)
        assert check_faithful(shed, strategy, view, 3, ends) == pytest.approx(0, abs=1e-9)


def test_a_governor_starts_from_what_another_has_learnt(spark: Any, tmp_path: Path) -> None:
    packets = generated_packets(30, 300.0, 5)
    stream = landed(spark, packets, tmp_path, 2000)
    workload = workloads(packets, 50, 1)["cheap"]
    first = run(spark, stream, workload, tmp_path, governor(spark, OURS, 1.0)).governor
    (learnt,) = first.snapshot()
    assert learnt.batches > 0
    second = run(spark, stream, workload, tmp_path, governor(spark, PAPER, 2.0, first)).governor
    (used,) = second.snapshot()
    assert used.costs == learnt.costs
    assert used.queries.keys() == learnt.queries.keys()
    assert first.snapshot() == (learnt,)


def test_error_against_load(spark: Any, tmp_path: Path, progress: Progress) -> None:
    sizes = replace(sampling_load.QUICK, rate=60.0)
    found = sampling_load.sampling_load(spark, tmp_path, None, sizes, progress)
    assert all(math.isfinite(f) for f in found.figures.values())
    wanted = {"network.input_over_paper.3", "network.ours_over_paper.3", "cheap.ours_over_paper.max"}
    assert wanted | {"network.ours_error.3", "coverage_shortfall.max", "network.spent.input.3"} <= set(
        found.figures
    )
    plots.plot_load(found.curves, tmp_path / "load.svg")
    assert (tmp_path / "load.svg").stat().st_size > 1000


def test_error_over_time(spark: Any, tmp_path: Path, progress: Progress) -> None:
    sizes = replace(sampling_load.QUICK, rate=60.0)
    found = sampling_time.sampling_time(spark, tmp_path, None, sizes, progress)
    assert {len(e) for e in found.errors.values()} == {len(found.seconds)}
    series = {"seconds": found.seconds, "errors": found.errors}
    plots.plot_time(series, tmp_path / "time.svg")
    write("reproduce sampling-time", found.figures, tmp_path / "time.json", series)
    assert read(tmp_path / "time.json")["figures"].keys() == found.figures.keys()


def test_a_burst_and_a_flood_live(spark: Any, tmp_path: Path, progress: Progress) -> None:
    found = sampling_burst.sampling_burst(spark, tmp_path, sampling_burst.QUICK, progress)
    assert {"batches_in_time", "batches_to_exact"} <= set(found.figures)
    for part in ("burst", "flood"):
        assert sum(found.series[part]["arrived"]) > 0
        assert len(found.series[part]["at"]) == len(found.series[part]["batch_s"])
    assert len(found.series["plain.windows"]["at"]) == len(found.series["plain.windows"]["lag_s"]) > 3
    json.dumps(found.series, default=float)
    plots.plot_burst(found.series, tmp_path / "burst.svg")


def test_a_wall_holds_every_brick_at_its_second(tmp_path: Path) -> None:
    bricks = make_bricks(tmp_path, Traffic(rate=50.0), 4)
    wall = Wall(bricks, (1, 3, 3, 2))
    assert [wall.of(s) for s in range(4)] == [[0], [1, 2, 3], [0, 1, 2], [3, 0]]
    courses = list(wall.courses(ORIGIN, wall.end))
    assert courses == [{0: 0, 1: 1, 2: 1, 3: 1}, {0: 2, 1: 2, 2: 2}, {3: 3, 0: 3}]
    assert list(wall.courses(ORIGIN + 10, ORIGIN + 20)) == [{0: 0}]
    assert wall.span(0, 0, ORIGIN, ORIGIN + 10**6) == (0, len(bricks.times[0]))


def test_the_page_is_filled_from_figures_and_says_what_is_missing() -> None:
    text = "{sampling-load:network.average.ours.3:.1%} and {sampling-burst:capacity}"
    assert filled(text, {"sampling-load": {"network.average.ours.3": 0.0123}}) == "1.2% and —"


def test_the_command_line_lists_the_experiments() -> None:
    shown = CliRunner().invoke(reproduce, ["--help"]).output
    assert all(name in shown for name in ("sampling-load", "sampling-time", "sampling-burst"))
