"""One Spark session for the whole suite, and where real data may lie."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def needs_spark(nodeid: str, root: Path) -> bool:
    """Whether a test uses the session, by the text of its module: who shares out the tests has not loaded them."""
    module, _, rest = nodeid.partition("::")
    names = spark_users(root / module)
    # a test that a module makes as it is loaded is like those that stand there
    return names[rest.partition("[")[0]] if rest.partition("[")[0] in names else any(names.values())


@cache
def spark_users(path: Path) -> dict[str, bool]:
    """Of the functions of a module, whether they have the fixture, or one of those here that have it."""
    if path.parent != Path(__file__).parent:
        return {}
    functions = [
        f for f in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(f, ast.FunctionDef)
    ]
    given = {f.name: {a.arg for a in (*f.args.args, *f.args.kwonlyargs)} for f in functions}
    users = {"spark"}
    while more := {name for name, has in given.items() if has & users} - users:
        users |= more
    return {name: name in users for name in given}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    from xdist.scheduler import LoadScopeScheduling

    class OneSession(LoadScopeScheduling):
        """What needs Spark goes to one of the processes that share the suite, whose session serves it all.

        Those of the rest that are in a module stay together, since they share what they have made.
        """

        def _split_scope(self, nodeid: str) -> str:
            return "spark" if needs_spark(nodeid, self.config.rootpath) else nodeid.partition("::")[0]

    return OneSession(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse what processes that share the suite would not do: they know tests by their names and texts."""
    hidden = {
        item.nodeid
        for item in items
        if "spark" in getattr(item, "fixturenames", ()) and not needs_spark(item.nodeid, config.rootpath)
    }
    if hidden:
        raise pytest.UsageError(
            f"have the fixture spark in {', '.join(sorted(hidden))}: it would start a second session"
        )
    twice = [name for name, number in Counter(item.nodeid for item in items).items() if number > 1]
    if twice:
        raise pytest.UsageError(f"only one of each would be run: {', '.join(twice)}")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from slackwater.spark.session import build_session

    session = build_session("slackwater-tests", cores=2)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def real_data() -> Path:
    if not DATA.exists():
        pytest.skip("the real data sets are not beside the project")
    return DATA
