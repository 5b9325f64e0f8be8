"""A hub in a thread: for a driver that brings its own, for demos and for tests."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, Self

from slackwater.edge.hub import Hub


class HubThread:
    """A hub that runs from entering to leaving; options are those of `Hub`."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self._directory = directory
        self._options = options
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="hub", daemon=True)
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        self._raise()
        return self

    def __exit__(self, *_: object) -> None:
        self._end(self._stopped.set)
        self._raise()

    def crash(self) -> None:
        """Stop as a crash would: what is not on disk yet never will be, and nobody is told."""

        def begin() -> None:
            self._crashing = asyncio.ensure_future(self._hub.abandon())
            self._crashing.add_done_callback(lambda _: self._stopped.set())

        self._end(begin)
        self._raise()

    def _end(self, call: Any) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(call)
            self._thread.join()

    def _raise(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # it is raised where the hub was asked for
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        async with Hub(self._directory, **self._options) as self._hub:
            self.url = self._hub.url
            self._ready.set()
            await self._hub.serve_until(self._stopped)
