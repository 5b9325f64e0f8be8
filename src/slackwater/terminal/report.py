"""``slackwater report``: a recorded run as one HTML file."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from slackwater.errors import SlackwaterError
from slackwater.service.recorded import Recorded
from slackwater.service.report import report

NAME = "report.html"


def report_folder(folder: Path, out: Path | None, console: Console, talk: Console) -> None:
    """Write the report of a recording, beside it unless told otherwise."""
    path = out if out is not None else folder / NAME
    if path.is_dir():
        raise SlackwaterError(f"--out {path}: expected a file such as {path / NAME}, and this is a folder")
    with talk.status("reading the recording …"):
        recorded = Recorded(folder)
        try:
            page = report(recorded, folder.resolve().name)
        finally:
            recorded.close()
    # whole or not at all: nobody shall open half a report
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(page, encoding="utf-8")
    temporary.replace(path)
    size = len(page.encode()) / 2**20
    console.print(Text(f"{path}: {size:.1f} MB, opens in any browser"), soft_wrap=True)
