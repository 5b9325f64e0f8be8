"""``slackwater check``: what Spark says to a file of SQL, before anything runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from slackwater.runtime.session import Session
from slackwater.spark.files import table_options
from slackwater.spark.session import passing_session


def check_file(text: str, file: str, register: Callable[[Session], None], talk: Console) -> None:
    """Raise where Spark cannot analyse a query of the file, or a table's files are not there."""
    with (
        talk.status("asking Spark …"),
        passing_session(f"slackwater check {file}", Path(os.devnull)) as spark,
    ):
        session = Session(spark)
        register(session)
        session.sql(text, file=file)
        for table in session.catalog.tables.values():
            table_options(spark, table)
        session.check()
