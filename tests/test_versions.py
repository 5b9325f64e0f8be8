"""A restart applies what has changed in the file, and keeps what was changed while running."""

from __future__ import annotations

from pathlib import Path

import pytest

from slackwater.errors import StateError
from slackwater.language.parse import parse
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.runtime.journal import Journal
from slackwater.runtime.versions import Versions, changed_live, reconcile
from slackwater.terminal.run import _warn_of

STREAM = "CREATE STREAM p (ts TIMESTAMP, x INT) USING replay OPTIONS (path 'x') TIMESTAMP BY ts;\n"
VIEW = "CREATE VIEW v AS SELECT SUM(x) AS s FROM p GROUP BY window(ts, '1 minute');\n"
READER = "CREATE QUERY w AS SELECT MAX(s) AS m FROM v GROUP BY window(ts, '1 hour');\n"
COUNT = "CREATE QUERY n AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '1 minute') WITH ERROR 5%;\n"


def after(script: str, live: str, again: str) -> Catalog:
    """The catalog after a run of a script, changes while running, and a restart with another script."""
    catalog = Catalog.from_sql(script, Functions()).apply_all(parse(live))
    return reconcile(catalog, [s.sql for s in parse(script)], again)[0]


def test_the_same_file_changes_nothing() -> None:
    script = STREAM + VIEW + READER + COUNT
    live = "DROP QUERY w; ALTER QUERY n WITH EXACT"
    found = after(script, live, script)
    assert set(found.queries) == {"n"}
    assert str(found.contracts["n"]) == "EXACT"


def test_an_alert_that_was_gone_in_between_is_told_from_one_that_stayed(tmp_path: Path) -> None:
    alerts = {name: f"CREATE ALERT {name} ON n WHEN n > 1 TO 'http://127.0.0.1:9/';\n" for name in "ab"}
    journal = Journal(tmp_path / "state")
    versions = Versions(journal, Functions())
    for names in ("ab", "b", "ab", "ab"):
        versions.propose(Catalog.from_sql(STREAM + COUNT + "".join(alerts[n] for n in names), Functions()))
    assert versions.alerts_dropped(1, 3) == versions.alerts_dropped(1, 4) == {"a"}
    assert versions.alerts_dropped(3, 4) == versions.alerts_dropped(3, 3) == set()
    assert Versions(journal, Functions()).alerts_dropped(1, 3) == {"a"}, "a restart knows it"


def test_another_query_of_the_same_name_is_told_from_one_that_stayed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state")
    versions = Versions(journal, Functions())
    altered, other = COUNT + "ALTER QUERY n WITH EXACT;\n", COUNT.replace("COUNT(*)", "SUM(x)")
    inner = VIEW.replace("SUM", "MIN") + READER
    for sql in (VIEW + READER + COUNT, VIEW + READER + altered, inner + other, inner, inner + other):
        versions.propose(Catalog.from_sql(STREAM + sql, Functions()))
    for known in (versions, Versions(journal, Functions())):
        assert known.others(0, 1) == {"w", "n"}
        assert known.others(1, 2) == set(), "its contract does not make it another"
        assert known.others(2, 3) == known.others(1, 3) == {"w", "n"}, "nor is one whose view is another"
        assert known.others(3, 5) == {"n"}, "it was gone in between"
        assert known.others(5, 5) == known.others(3, 4) == set()


def test_a_changed_view_takes_its_readers_along() -> None:
    changed = VIEW.replace("SUM(x)", "MIN(x)")
    found = after(
        STREAM + VIEW + READER + COUNT, "ALTER QUERY n WITH EXACT", STREAM + changed + READER + COUNT
    )
    assert found.steps["v"].calls[0].function == "min"
    assert "w" in found.queries
    assert str(found.contracts["n"]) == "EXACT", "what was altered while running stays so"


def test_a_query_that_the_file_has_lost_goes_and_a_new_one_comes() -> None:
    live = "CREATE QUERY live AS SELECT MAX(x) AS m FROM p GROUP BY window(ts, '1 second')"
    found = after(STREAM + COUNT, live, STREAM + COUNT.replace("QUERY n", "QUERY other"))
    assert set(found.queries) == {"other", "live"}


def test_a_contract_changed_in_the_file_goes_before_one_changed_while_running() -> None:
    found = after(STREAM + COUNT, "ALTER QUERY n WITH EXACT", STREAM + COUNT.replace("5%", "1%"))
    assert str(found.contracts["n"]) == "ERROR 1%"


def test_a_changed_stream_is_refused() -> None:
    with pytest.raises(StateError, match="stream p has changed"):
        after(STREAM + COUNT, "", STREAM.replace("x INT", "x BIGINT") + COUNT)


def test_what_was_changed_while_running_is_told() -> None:
    script = STREAM + VIEW + READER + COUNT
    file = Catalog.from_sql(script, Functions())
    assert changed_live(file, after(script, "", script)) == []
    live = """DROP QUERY w; ALTER QUERY n WITH EXACT; DROP VIEW v;
      CREATE VIEW v AS SELECT MIN(x) AS s FROM p GROUP BY window(ts, '1 minute');
      CREATE QUERY more AS SELECT MAX(x) AS m FROM p GROUP BY window(ts, '1 second')"""
    assert changed_live(file, after(script, live, script)) == [
        "v is another one",
        "w was dropped",
        "n is WITH EXACT, not ERROR 5%",
        "more was created",
    ]
    # a contract that the file sets again counts
    again = script + "ALTER QUERY n WITH ERROR 5%;"
    found = after(script, "ALTER QUERY n WITH EXACT", again)
    assert changed_live(Catalog.from_sql(again, Functions()), found) == []


def test_a_run_says_what_it_goes_on_with(capsys: pytest.CaptureFixture[str]) -> None:
    _warn_of([], Path("state"))
    assert capsys.readouterr().err == ""
    _warn_of(["w was dropped", "n is WITH EXACT, not ERROR 5%"], Path("state"))
    told = capsys.readouterr()
    assert told.out == ""
    assert "warning: the state in state was changed while it ran" in told.err
    assert "w was dropped; n is WITH EXACT, not ERROR 5%" in told.err
    assert "--fresh" in told.err
