"""One Spark session for the whole suite, and where real data may lie."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def needs_spark(item: pytest.Item) -> bool:
    """Whether a test uses the session, itself or by its fixtures."""
    return "spark" in getattr(item, "fixturenames", ())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need Spark go to one of the processes that share the suite, whose session serves them all.

    Those of the rest that are in a module stay together, since they share what they have made.
    """
    twice = [name for name, number in Counter(item.nodeid for item in items).items() if number > 1]
    if twice:
        raise pytest.UsageError(f"only one of each would be run: {', '.join(twice)}")
    for item in items:
        item.add_marker(pytest.mark.xdist_group("spark" if needs_spark(item) else item.nodeid.split("::")[0]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Tell of a test by the name that it can be run by: the group is put behind it on its way here."""
    if "PYTEST_XDIST_WORKER" not in os.environ and report.nodeid.rfind("@") > report.nodeid.rfind("]"):
        report.nodeid = report.nodeid.rpartition("@")[0]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from slackwater.spark.session import build_session

    # much is run a few times and little often: code that is compiled well would cost more than it saves
    session = build_session("slackwater-tests", cores=2, jvm_options="-XX:TieredStopAtLevel=1")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def real_data() -> Path:
    if not DATA.exists():
        pytest.skip("the real data sets are not beside the project")
    return DATA
