"""``slackwater explain --live`` and ``--load``: a plan with what it costs, learnt by running it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live

from slackwater.errors import RunError
from slackwater.language.contracts import Contract
from slackwater.language.statements import CreateStream
from slackwater.planners.relief import relaxable, with_contracts
from slackwater.planners.terms import StreamLoad
from slackwater.runtime.governor import WARMING
from slackwater.runtime.insight import insight, machine, stream_loads
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.watching import Observer, Watcher
from slackwater.spark.session import passing_session
from slackwater.terminal.forecast_view import forecast_view
from slackwater.terminal.insight_view import insight_view

REFRESH_S = 0.5
PATIENCE_S = 60.0
"""How long the first batches may take, or a silent stream be waited for."""


@dataclass(frozen=True)
class Trial:
    """A file to be run for a while, in a folder that goes afterwards."""

    text: str
    file: str
    seconds: float
    settings: Mapping[str, Any]
    register: Callable[[Session], None]


def explain_live(trial: Trial, console: Console, talk: Console) -> None:
    """Run a file and show what it does: refreshed on a terminal, elsewhere once at the end."""
    with _running(trial, Watcher, talk) as session:
        with talk.status("warming up …"):
            _warm_up(session)
        if console.is_terminal:
            with Live(console=console, refresh_per_second=4, transient=True) as live:
                _wait(session, trial.seconds, lambda: live.update(_shown(session)))
        else:
            _wait(session, trial.seconds, lambda: None)
        console.print(_shown(session))
        _unmeasured(session, talk)


def _shown(session: Session) -> RenderableType:
    current = [q for q in session.status().queries if session.catalog.queries[q.name.lower()].current]
    return insight_view(insight(session.engine), current)


def explain_load(trial: Trial, multiple: float, cores: int | None, console: Console, talk: Console) -> None:
    """Measure a file for a while, then say what its queries would get at a multiple of the load."""
    with _running(trial, Observer, talk, relax=True) as session:
        promised = _promised(trial)
        with talk.status("warming up …") as status:
            _warm_up(session)
            status.update(f"measuring for {trial.seconds:g} seconds …")
            _wait(session, trial.seconds, lambda: None)
        measured = [load for load in stream_loads(session.engine) if load.statistics.batches]
        if not measured:
            raise RunError(
                "nothing was measured: no stream brought three batches of rows that can be told apart; "
                "give it more time with --for, or, at speed 'max', smaller batches with --set rows_per_batch"
            )
        loads = [_paced(with_contracts(load, promised), session) for load in measured]
        console.print(forecast_view(loads, machine(session.engine), multiple, cores))
        _unmeasured(session, talk)


def _promised(trial: Trial) -> Mapping[str, Contract]:
    """The contracts of the file, by name in lower case."""
    declared = Session()
    trial.register(declared)
    declared.sql(trial.text, file=trial.file)
    return declared.catalog.contracts


def _paced(load: StreamLoad, session: Session) -> StreamLoad:
    """A stream whose batches have what arrives in one interval, whatever the last one had."""
    name = load.statistics.stream.lower()
    speed = declared_speed(session.catalog.streams[name])
    a_second = load.statistics.rate * speed if speed is not None else 0.0
    if speed is None:
        streams = {s.name.lower(): s for s in session.status().streams}
        status = streams[name]
        # one that ended or fell silent while it was measured comes as fast as it came
        a_second = status.last_rate if status.state in ("idle", "ended") else status.rate
    return replace(load, size=a_second * session.settings.trigger_ms / 1000)


def declared_speed(stream: CreateStream) -> float | None:
    """Event seconds for each second of a trace that is replayed in time; None for all else."""
    text = {k.lower(): v for k, v in stream.options}.get("speed", "1").lower()
    return float(text) if stream.format.lower() in ("replay", "traffic", "walks") and text != "max" else None


def _unmeasured(session: Session, talk: Console) -> None:
    """Say which streams nothing is known of."""
    known = {s.stream.lower() for s in insight(session.engine).streams if s.measured}
    missing = [s for s in session.engine.sources if s not in known]
    unnumbered = [s for s in missing if not session.engine.sources[s].identifies_rows]
    if unnumbered:
        talk.print(
            f"{', '.join(unnumbered)}: the rows of this source cannot be told apart when read again, so that "
            "none is ever dropped, and nothing is measured",
            highlight=False,
        )
    if rest := [s for s in missing if s not in unnumbered]:
        talk.print(f"{', '.join(rest)}: too few batches to say anything", highlight=False)


@contextmanager
def _running(
    trial: Trial, governor: type[Observer], talk: Console, *, relax: bool = False
) -> Iterator[Session]:
    """The file running; with ``relax`` as if what is EXACT need not be, so that its values are looked at."""
    with (
        tempfile.TemporaryDirectory(prefix="slackwater-explain-") as folder,
        talk.status("starting Spark …") as status,
        passing_session(f"slackwater explain {trial.file}", Path(folder) / "spark.log") as spark,
    ):
        settings = Settings(**trial.settings)
        # whoever asks what a run would shed is told so, even where the run itself would shed nothing
        settings = replace(settings, shedding="minimax") if settings.shedding == "off" else settings
        session = Session(spark, Path(folder) / "state", settings, governor=governor, alerting=False)
        trial.register(session)
        session.sql(trial.text, file=trial.file)
        for name, contract in relaxable(session.plan).items() if relax else ():
            session.alter(session.catalog.queries[name].name, contract)
        status.update("opening streams and tables …")
        try:
            session.start()
            status.stop()
            yield session
        finally:
            session.stop()


def _warm_up(session: Session) -> None:
    """Until Spark has compiled its code: the first batches say nothing of those to come."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and not session.wait(0.1):
        streams = session.status().streams
        if len(streams) == len(session.engine.sources) and all(s.batch >= WARMING for s in streams):
            return


def _wait(session: Session, seconds: float, look: Callable[[], None]) -> None:
    """Until the time is over or the streams have ended."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0 and not session.wait(min(left, REFRESH_S)):
        look()
