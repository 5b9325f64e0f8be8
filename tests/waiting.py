"""Waiting for a condition, with a bound."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from slackwater.runtime.session import Session

PATIENCE_S = 120.0


def until(condition: Callable[[], bool], session: Session) -> None:
    """Wait for a condition on a session; what breaks the run is raised, and so is losing patience."""
    wait_for(condition, session.poll, lambda: f"still waiting: {session.status()}")


def wait_for(
    condition: Callable[[], bool],
    look: Callable[[], object] = lambda: None,
    complaint: Callable[[], str] = lambda: "still waiting",
    seconds: float = PATIENCE_S,
) -> None:
    """Wait for a condition; ``look`` is called meanwhile and may raise."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        look()
        if time.monotonic() > deadline:
            raise TimeoutError(complaint())
        pause.wait(0.01)
