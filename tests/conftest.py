"""One Spark session for the whole suite, and where real data may lie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


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
