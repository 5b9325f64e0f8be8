"""``slackwater open``: a recorded run in the page, as it was."""

from __future__ import annotations

import os
import signal
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from slackwater.service.recorded import Recorded
from slackwater.service.server import serving


def open_folder(
    folder: Path,
    *,
    port: int | None,
    browser: bool,
    imports: Sequence[Path] = (),
    console: Console,
    talk: Console,
    wait: Callable[[], None] | None = None,
) -> None:
    """Serve a recording on loopback until the user interrupts, or until ``wait`` returns."""
    with talk.status("reading the recording …"):
        recorded = Recorded(folder)
    try:
        for note in notes(recorded):
            talk.print(Text(f"note: {note}", "dim"), soft_wrap=True)
        with serving(recorded, port=port, recording=folder, imports=imports) as address:
            console.print(
                f"the recording in {folder} is at {address.page}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
            talk.print(Text("Ctrl+C ends", "dim"))
            if browser and has_display():
                webbrowser.open(address.page)
            (wait or _until_told)()
    finally:
        recorded.close()


def notes(recorded: Recorded) -> list[str]:
    """What a reader should know of a recording that is not all there."""
    found = []
    if not recorded.has_frames:
        found.append(
            "this run was recorded without frames: they were made from its turns and answers, and load, "
            "capacity, agents and alerts are not known"
        )
    if recorded.lost:
        found.append(f"{recorded.lost:,} frames are damaged and passed over")
    together = recorded.frame_lines.together
    if together > 1:
        found.append(
            f"the recording is long: the page shows {together:,} frames as one; "
            "all answers are there under /api/queries/NAME/answers"
        )
    return found


def has_display() -> bool:
    """Whether a browser that is opened would be seen by somebody."""
    if sys.platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _until_told() -> None:
    """Wait for Ctrl+C, or for the word of whoever started this process."""
    told = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: told.set())
    try:
        told.wait()
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
