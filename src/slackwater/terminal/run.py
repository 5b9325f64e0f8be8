"""``slackwater run``: a file of SQL from start to end, shown live where somebody watches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from slackwater.runtime.journal import check_root
from slackwater.runtime.recording import check_recording_folder
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.sinks import Sink, TerminalSink, sink_for
from slackwater.runtime.status import Status
from slackwater.service.live import Live
from slackwater.spark.session import passing_session
from slackwater.terminal.console import output_console
from slackwater.terminal.serve import Serve
from slackwater.terminal.view import LiveView, summary


def run_file(
    text: str,
    *,
    file: str,
    root: Path,
    seconds: float | None,
    answers: str | None,
    settings: Mapping[str, Any],
    spark_settings: Mapping[str, str],
    fresh: bool,
    register: Callable[[Session], None],
    console: Console,
    record: Path | None = None,
    serve: Serve | None = None,
    imports: Sequence[Path] = (),
) -> None:
    """Run until the streams end, the time is over or the user interrupts; ``serve``: where the page is."""
    # what is for people goes to stderr where answers take stdout
    talk = output_console(stderr=True) if answers == "-" else console
    live = answers != "-" and console.is_terminal
    finished = _finished(root)
    # a run that came to its end starts over, and may write over its own answers, not over another's
    overwrite = fresh or finished == (answers or "")
    fresh = fresh or finished is not None
    # before Spark takes its seconds to start
    check_root(root)
    if record is not None:
        check_recording_folder(record)
    sinks: list[Sink] = []
    if answers is not None:
        sinks.append(sink_for(answers, overwrite=overwrite))
    elif not live:
        sinks.append(TerminalSink(console))
    with ExitStack() as stack:
        listening = stack.enter_context(serve.listen()) if serve is not None else None
        if root.exists() and not fresh and _committed(root):
            talk.print(f"going on from the state in {root} (--fresh starts over)")
        with talk.status("starting Spark …"):
            log = root.parent / f"{root.name}.spark.log"
            spark = stack.enter_context(passing_session(f"slackwater {file}", log, spark_settings))
        session = Session(spark, root, Settings(**settings))
        register(session)
        for explained in session.sql(text, file=file):
            talk.print(explained, highlight=False, soft_wrap=True, markup=False)
        # frames are made without a service too: a recorded run is looked at later
        watched = serve is not None or record is not None
        shown = Live(session, record=record, name=Path(file).name) if watched else None
        ended = False
        try:
            with talk.status("opening streams and tables …"):
                session.start(*sinks, fresh=fresh, record=record)
            _warn_of(session.changed_live, root)
            if shown is not None:
                shown.start()
            if serve is not None and shown is not None and listening is not None:
                address = stack.enter_context(serve.serving(shown, root, listening, record, imports))
                talk.print(f"page: {address.page}", highlight=False, soft_wrap=True, markup=False)
                if moved := serve.moved(listening):
                    talk.print(moved, highlight=False)
            ended = _watch(session, shown, console, live, seconds)
        except KeyboardInterrupt:
            talk.print("stopping after this batch …")
        finally:
            session.stop()
            if shown is not None:
                # readers see the end before the service goes
                shown.stop()
        owed = {a.name: a.waiting for a in session.alerts() if a.waiting}
        # what a webhook has not taken is sent when the same command goes on; to start over would lose it
        if ended and not owed:
            _mark_finished(root, answers)
        talk.print(summary(session.status()))
        if shown is not None and shown.trouble:
            _warn_of_missing(shown.trouble)
        if owed:
            _warn_of_owed(owed)


def _warn_of(changes: Sequence[str], root: Path) -> None:
    """Say that a run goes on with more or less than its file says."""
    if changes:
        warning = Text.assemble(
            ("warning:", "bold yellow"),
            f" the state in {root} was changed while it ran, and goes on so: {'; '.join(changes)}\n",
            "hint: --fresh starts over with the file as it is; without, what is changed in the file counts, "
            "such as ALTER QUERY at its end",
        )
        Console(stderr=True, highlight=False, soft_wrap=True).print(warning)


def _warn_of_owed(owed: Mapping[str, int]) -> None:
    """Say that webhooks have not taken all that alerts have to tell."""
    events = ", ".join(f"{number:,} of {name}" for name, number in owed.items())
    warning = Text.assemble(
        ("warning:", "bold yellow"),
        f" webhooks have not taken all events of alerts: {events}\n",
        "hint: they are kept, and sent when the same command is run again; with --fresh they are lost",
    )
    Console(stderr=True, highlight=False, soft_wrap=True).print(warning)


def _warn_of_missing(trouble: str) -> None:
    """Say that a recording has not all that was there to be seen."""
    warning = Text.assemble(
        ("warning:", "bold yellow"),
        f" {trouble}\n",
        "hint: the run itself has lost nothing; slackwater open and report may not show all of it",
    )
    Console(stderr=True, highlight=False, soft_wrap=True).print(warning)


def told(session: Session, shown: Live | None) -> Status:
    """How a run is, and what of it cannot be recorded."""
    status = session.status()
    trouble = shown.trouble if shown is not None else ""
    messages = [status.message, f"warning: {trouble}" if trouble else ""]
    return replace(status, message="  ".join(filter(None, messages)))


def _watch(session: Session, shown: Live | None, console: Console, live: bool, seconds: float | None) -> bool:
    if not live:
        return session.wait(seconds)
    deadline = None if seconds is None else time.monotonic() + seconds
    with LiveView(console, lambda: told(session, shown)):
        return session.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))


def _committed(root: Path) -> bool:
    return any((root / "commits").glob("*.json"))


def _finished(root: Path) -> str | None:
    """A run that came to its end leaves a mark: the same command then runs it again from the start.

    The mark says where its answers went; None where there is none.
    """
    mark = root / "finished"
    return mark.read_text() if mark.exists() else None


def _mark_finished(root: Path, answers: str | None) -> None:
    (root / "finished").write_text(answers or "")
