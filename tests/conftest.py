"""One Spark session for the whole suite, and where real data may lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def needs_spark(path: Path) -> bool:
    """Whether a module may use the session, by its text: who shares out the modules has not loaded them."""
    return "spark" in path.read_text(encoding="utf-8") and path.parent == Path(__file__).parent


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    from xdist.scheduler import LoadScopeScheduling

    class OneSession(LoadScopeScheduling):
        """What needs Spark goes to one of the processes that share the suite, whose session serves it all.

        Of the rest a module stays together, since its tests share what they have made.
        """

        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.split("::")[0]
            return "spark" if needs_spark(self.config.rootpath / module) else module

    return OneSession(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse what processes that share the suite would not do: they know modules by text and tests by name."""
    hidden = {i.path for i in items if "spark" in getattr(i, "fixturenames", ()) and not needs_spark(i.path)}
    if hidden:
        raise pytest.UsageError(
            f"say spark in {', '.join(map(str, hidden))}: it would start a second session"
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
