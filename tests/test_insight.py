"""What `explain --live` tells of a stream that is shed."""

from __future__ import annotations

import pytest
from rich.console import Console
from tests.test_governor import Machine

from slackwater.planners.decision import Decision
from slackwater.runtime.insight import Insight, _stream
from slackwater.runtime.status import QueryStatus
from slackwater.terminal.insight_view import insight_view


def test_shedders_stand_where_the_paper_places_them():
    machine = Machine()
    for _ in range(4):
        machine.batch(1000)
    statistician = machine.governor.known("p", machine.plan, machine.slots)
    load = machine.governor._load(statistician, 1000.0)
    rates = {name: machine.slots.by_step[name].id for name in ("volume", "rare", "large")}
    decision = Decision(
        "p", 1, "batch", 1, 0, thresholds={rates["volume"]: 0.1, rates["rare"]: 0.4, rates["large"]: 0.0}
    )
    stream = _stream(load, decision)
    standing = {o.label: o.passes for o in stream.operators if o.passes is not None}
    assert stream.operators[0].passes == 0.4, "one before all, at the largest rate"
    assert standing["port = 80"] == pytest.approx(0.25), "one before the branch that needs less"
    assert standing["size > 1000"] == 0.0
    assert "port = 53" not in standing
    ends = {name: o.label for o in stream.operators for name in o.queries}
    assert set(ends) == {q.query for q in stream.queries}, "every query hangs on one operator"
    assert ends["large"] == "size > 1000"
    assert not any("net" in label for label in standing), "none where the one above has done it"
    console = Console(width=160)
    with console.capture() as shown:
        console.print(insight_view(Insight((stream,), 1.0)))
    assert "shedder 40% ▸ " in shown.get()
    assert not any(o.passes for o in _stream(load, None).operators)


def test_queries_over_current_values_show_their_evaluations() -> None:
    machine = Machine()
    for _ in range(4):
        machine.batch(1000)
    statistician = machine.governor.known("p", machine.plan, machine.slots)
    stream = _stream(machine.governor._load(statistician, 1000.0), None)
    names = [q.query for q in stream.queries]
    current = [
        QueryStatus(name=names[0], contract="DRIFT 5 BELIEF 90%", answers=12, evaluated=1234, missed=7),
        QueryStatus(name=names[1], contract="EXACT", answers=40),
    ]
    console = Console(width=160)
    with console.capture() as captured:
        console.print(insight_view(Insight((stream,), 1.0), current))
    shown = [line.split() for line in captured.get().splitlines()]
    assert ["current", "values", "contract", "answers", "evaluations", "missed"] in shown
    assert [names[0], "DRIFT", "5", "BELIEF", "90%", "12", "1,234", "7"] in shown
    assert [names[1], "EXACT", "40", "every", "tick", "–"] in shown
    assert sum(line[:1] == [names[0]] for line in shown) == 1, "not among the sampled ones too"
