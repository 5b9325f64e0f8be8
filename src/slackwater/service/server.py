"""The service around a run or a recording: the app, the page's files, and the server in a thread."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from fastapi.responses import Response
from fastapi.telemetry import TelemetryConfig
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.staticfiles import StaticFiles

from slackwater.errors import SlackwaterError
from slackwater.service import problems
from slackwater.service.audit_job import AuditJob
from slackwater.service.changing import changing
from slackwater.service.connections import connections_at_most, protocol_for
from slackwater.service.events import Readers
from slackwater.service.guard import Guard, is_loopback
from slackwater.service.live import Live
from slackwater.service.metrics import registry
from slackwater.service.openapi import describe
from slackwater.service.reading import reading
from slackwater.service.watched import Control, Watched

DEFAULT_PORT = 8400
EVERYWHERE = ("", "0.0.0.0", "::", "0")
STOPPING_S = 2
QUIET: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}
"""Nothing of what is asked is told to anybody else, whatever the environment says."""


@dataclass(frozen=True)
class Address:
    """Where a service is."""

    host: str
    port: int
    token: str
    given: bool = False
    """Whether the token is one that the user has given, who knows it."""

    @property
    def url(self) -> str:
        # all addresses of a machine are none that somebody could go to
        host = socket.gethostname() if self.host.strip("[]") in EVERYWHERE else self.host.strip("[]")
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def page(self) -> str:
        """The page with the token, after # so that it is in no log; without one that the user has given."""
        return f"{self.url}/" if self.given else f"{self.url}/#token={self.token}"


def app_for(
    watched: Watched,
    control: Control | None = None,
    *,
    token: str,
    loopback: bool = True,
    audits: AuditJob | None = None,
    readers: Readers | None = None,
) -> FastAPI:
    """The app, to be served or tested."""
    readers = readers or Readers()
    keeper = watched.keeper if isinstance(watched, Live) else None

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        readers.attach()
        if isinstance(watched, Live):
            watched.listeners.append(readers.wake)
        yield
        readers.close()

    app = FastAPI(
        title="Slackwater",
        version="1",
        openapi_url="/api/openapi.json",
        # its pages of documentation load scripts from outside
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        telemetry=QUIET,
    )
    problems.install(app)
    describe(app)
    app.include_router(reading(watched, readers, keeper))
    app.include_router(changing(watched, control, audits or AuditJob(None)))
    metrics = registry(watched, readers)

    @app.get("/metrics", include_in_schema=False)
    def told() -> Response:
        return Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST)

    _page(app)
    app.add_middleware(Guard, token=token, loopback=loopback)
    return app


def _page(app: FastAPI) -> None:
    folder = Path(str(resources.files("slackwater.service") / "page"))
    index = (folder / "index.html").read_bytes()

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return Response(index, media_type="text/html", headers={"Cache-Control": "no-cache"})

    app.mount("/page", _Files(directory=folder))


class _Files(StaticFiles):
    """The page's files; a browser asks each time whether they are still the same ones."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = "no-cache"
        return response


@contextmanager
def serving(
    watched: Watched,
    control: Control | None = None,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    known: bool = False,
    recording: Path | None = None,
    imports: Sequence[Path] = (),
    listening: socket.socket | None = None,
) -> Iterator[Address]:
    """The service while the context is open; without a port on the usual one, or any where that is taken.

    ``known``: the user knows the token, so that it is not part of the page's address, which gets printed.
    ``listening`` is a socket of `listen`, for those who want to know early that the port is free.
    """
    loopback = is_loopback(host)
    check_host(host, token)
    listening = listening or listen(host, port)
    address = Address(host, listening.getsockname()[1], token or secrets.token_urlsafe(24), given=known)
    audits, readers = AuditJob(recording, imports), Readers()
    app = app_for(watched, control, token=address.token, loopback=loopback, audits=audits, readers=readers)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="on",
        server_header=False,
        http=protocol_for(connections_at_most()),
        timeout_graceful_shutdown=STOPPING_S,
        # a websocket is nothing that this service has
        ws="none",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listening]}, daemon=True, name="slackwater-service"
    )
    thread.start()
    try:
        _await(server, thread)
        yield address
    finally:
        audits.stop()
        readers.close()
        server.should_exit = True
        thread.join(timeout=STOPPING_S + 3)
        with contextlib.suppress(OSError):
            listening.close()


def check_host(host: str, token: str | None) -> None:
    """Refuse an address that others can reach, where there is no token to keep them out."""
    if not is_loopback(host) and not token:
        raise SlackwaterError(
            f"--host {host}: others can reach this address, so that a token is needed; "
            "give one with --token-file FILE or in SLACKWATER_SERVICE_TOKEN, or listen on 127.0.0.1"
        )


def listen(host: str, port: int | None) -> socket.socket:
    """A socket that listens; raises with a plain word where it cannot."""
    name = host.strip("[]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    wanted = [port] if port is not None else [DEFAULT_PORT, 0]
    trouble: OSError | None = None
    for number in wanted:
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((name, number))
            listening.listen(1024)
            return listening
        except OSError as error:
            listening.close()
            trouble = error
    assert trouble is not None
    raise SlackwaterError(
        f"cannot listen on {host} port {port if port is not None else DEFAULT_PORT}: "
        f"{trouble.strerror or trouble}; --port 0 takes any free one"
    )


def _await(server: uvicorn.Server, thread: threading.Thread) -> None:
    pause = threading.Event()
    while not server.started:
        if not thread.is_alive():
            raise SlackwaterError("the service could not be started; its log says why")
        pause.wait(0.01)
