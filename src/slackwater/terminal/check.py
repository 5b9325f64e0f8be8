"""``slackwater check``: what Spark says to a file of SQL, before anything runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from slackwater.runtime.session import Session
from slackwater.spark.session import passing_session


def check_file(text: str, file: str, register: Callable[[Session], None], talk: Console) -> None:
    """Raise where Spark cannot analyse a query of the file or read a table."""
    with (
        talk.status("asking Spark …"),
        passing_session(f"slackwater check {file}", Path(os.devnull)) as spark,
    ):
        session = Session(spark)
        register(session)
        session.sql(text, file=file)
        session.check()
