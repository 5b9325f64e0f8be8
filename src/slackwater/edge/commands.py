"""The commands of the edge: ``slackwater agent`` and ``slackwater hub``; neither loads Spark.

Also ``python -m slackwater.edge``, for machines on which only numpy, websockets, psutil and typer are
installed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from slackwater.edge import TOKEN_VARIABLE
from slackwater.edge.limits import allow_many_files
from slackwater.edge.tls import server_tls
from slackwater.errors import SlackwaterError, SourceError

app = typer.Typer(
    name="slackwater.edge",
    help="What runs beside the data: agents, and the hub they talk to.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

TokenFile = Annotated[
    Path | None,
    typer.Option(help=f"A file with the token that hub and agents share; or the variable {TOKEN_VARIABLE}."),
]
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0}


@contextmanager
def plain_errors() -> Iterator[None]:
    """What went wrong, in words, and exit code 1; a traceback only for what nobody expected."""
    try:
        yield
    except SlackwaterError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        typer.echo(f"error: {place}{error.strerror or error}", err=True)
        raise typer.Exit(1) from None


def token_from(file: Path | None) -> str:
    """The token of a file or of the environment, empty without either.

    Never of the command line, where everybody on the machine can see it.
    """
    if file is None:
        return os.environ.get(TOKEN_VARIABLE, "").strip()
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"--token-file: cannot read {file}: {error}") from None
    if not token:
        raise SourceError(f"--token-file: {file} is empty: expected the token as its text")
    return token


def seconds_of(text: str, option: str) -> float:
    """Seconds in a text such as 500ms, 1s or 2m.

    >>> seconds_of("1.5s", "--every"), seconds_of("2m", "--every")
    (1.5, 120.0)
    """
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]+)\s*", text)
    if found is None or found[2] not in _UNITS or not float(found[1]):
        raise SourceError(f"{option}: expected a length of time such as 500ms, 1s or 2m, got {text!r}")
    return float(found[1]) * _UNITS[found[2]]


@app.command()
def agent(
    stream: Annotated[str, typer.Option(help="The stream, by the name that SQL gives it.")],
    hub: Annotated[str, typer.Option(help="Where the hub is.")] = "ws://127.0.0.1:7400",
    name: Annotated[
        str | None, typer.Option(help="Tells agents of a stream apart; the host's name by default.")
    ] = None,
    token_file: TokenFile = None,
    ca: Annotated[Path | None, typer.Option(help="Certificates to trust, for a hub with wss://.")] = None,
    counters: Annotated[
        bool, typer.Option("--counters", help="Read this host's network counters, as rates per second.")
    ] = False,
    command: Annotated[
        str | None, typer.Option(help="Run this, without a shell, and read the JSON lines that it prints.")
    ] = None,
    tail: Annotated[Path | None, typer.Option(help="Read JSON lines as they are appended to a file.")] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read JSON lines from the standard input.")] = False,
    every: Annotated[
        str | None,
        typer.Option(
            help="How long after its end --command is run again, or how often --counters are read; else 1s."
        ),
    ] = None,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="With --tail: also what the file holds already.")
    ] = False,
    moving_rate: Annotated[
        str | None,
        typer.Option(help="Send, each second, the rate of the summed values over so long, such as 60s."),
    ] = None,
    cost: Annotated[
        float, typer.Option(help="What a message of this agent costs: the dearer, the wider its bounds.")
    ] = 1.0,
    terms: Annotated[
        Path | None,
        typer.Option(
            help="JSON lines on single keys: what their messages cost, and how fast their values can change, "
            'such as {"key": "web-1", "cost": 5, "max_rate": 2.5}.'
        ),
    ] = None,
) -> None:
    """Send what leaves its bounds: an agent beside the data.

    It reads one of --counters, --command, --tail and --stdin. A JSON line is an object with the KEY columns
    of the stream and any of its value columns.
    """
    with plain_errors():
        from slackwater.edge.agent_run import Choice, run_agent
        from slackwater.edge.terms import read_terms

        chosen = {"--counters": counters, "--command": command, "--tail": tail, "--stdin": stdin}
        given = [option for option, value in chosen.items() if value]
        if len(given) != 1:
            got = ", ".join(given) or "none"
            raise SourceError(f"expected exactly one of {', '.join(chosen)}, got {got}")
        if every is not None and given[0] not in ("--command", "--counters"):
            raise SourceError("--every goes with --command or --counters")
        if from_start and tail is None:
            raise SourceError("--from-start goes with --tail")
        choice = Choice(
            counters=counters,
            command=command,
            tail=tail,
            from_start=from_start,
            every=None if every is None else seconds_of(every, "--every"),
            moving_rate=None if moving_rate is None else seconds_of(moving_rate, "--moving-rate"),
        )
        stopped = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        _log_to_stderr()
        token = token_from(token_file)
        complete = run_agent(
            choice,
            stream=stream,
            hub=hub,
            name=name,
            token=token,
            ca=ca,
            cost=cost,
            terms=None if terms is None else read_terms(terms),
            stopped=stopped,
        )
    if not complete:
        raise typer.Exit(1)


@app.command()
def forget(
    stream: Annotated[str, typer.Option(help="The stream, by the name that SQL gives it.")],
    agent: Annotated[str, typer.Option(help="The agent whose keys are gone, by its name.")],
    hub: Annotated[str, typer.Option(help="Where the hub is.")] = "ws://127.0.0.1:7400",
    token_file: TokenFile = None,
    ca: Annotated[Path | None, typer.Option(help="Certificates to trust, for a hub with wss://.")] = None,
) -> None:
    """Withdraw the keys of an agent that nobody answers for any more.

    Of an agent that is not connected all keys; of one that is, those that it has not seen since it started.
    They count in no answer from then on. A key that comes back counts again.
    """
    with plain_errors():
        from slackwater.edge.operator_link import OperatorLink

        with OperatorLink(hub, stream, token=token_from(token_file), ca=ca) as link:
            keys, connected = link.withdraw(agent)
        state = "is connected: its other keys stay" if connected else "is not connected"
        typer.echo(f"withdrew {keys} key(s) of agent {agent!r} of stream {stream!r}, which {state}")


@app.command()
def deadbands(
    stream: Annotated[str, typer.Option(help="The stream, by the name that SQL gives it.")],
    hub: Annotated[str, typer.Option(help="Where the hub is.")] = "ws://127.0.0.1:7400",
    token_file: TokenFile = None,
    ca: Annotated[Path | None, typer.Option(help="Certificates to trust, for a hub with wss://.")] = None,
    format: Annotated[str, typer.Option(help="json or csv.")] = "json",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file, replaced at once; else it is printed.")
    ] = None,
) -> None:
    """Write the widths in use as deadbands, for devices that cannot run an agent.

    A device sends a value that is further than its deadband from the one that it sent last.
    """
    with plain_errors():
        from slackwater.edge.deadbands import export, write_csv, write_json
        from slackwater.edge.operator_link import OperatorLink

        writers = {"json": write_json, "csv": write_csv}
        if format not in writers:
            raise SourceError(f"--format: expected json or csv, got {format!r}")
        with OperatorLink(hub, stream, token=token_from(token_file), ca=ca) as link:
            exported = export(link, stream)
            if output is None:
                _print(lambda: writers[format](exported, sys.stdout))
                return
            # whoever reads it never sees half of it
            temporary = output.with_name(f".{output.name}.new")
            with temporary.open("w", encoding="utf-8", newline="") as file:
                count = writers[format](exported, file)
            temporary.replace(output)
            typer.echo(f"wrote {count} deadbands to {output}")


def _print(write: Callable[[], object]) -> None:
    """Write to the standard output for as long as somebody reads it: `head` has seen enough early."""
    try:
        write()
        sys.stdout.flush()
    except BrokenPipeError:
        # what is left in the buffer would be written again at the end of the process, and complained of
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.command()
def hub(
    directory: Annotated[Path, typer.Option(help="Where the log of every stream is kept.")],
    listen: Annotated[str, typer.Option(help="Host and port; port 0 takes a free one.")] = "127.0.0.1:7400",
    token_file: TokenFile = None,
    cert: Annotated[
        Path | None, typer.Option(help="A certificate (PEM): the hub then speaks wss://.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="The key of the certificate (PEM).")] = None,
    ping: Annotated[
        str,
        typer.Option(help="How often agents are pinged: one that does not answer for so long again is lost."),
    ] = "10s",
) -> None:
    """Run the hub that agents and queries connect to.

    Stopped or killed, the same command goes on where it was.
    """
    with plain_errors():
        host, separator, port = listen.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not separator or not host or not port.isdecimal() or int(port) > 65_535:
            raise SourceError(f"--listen: expected host:port such as 127.0.0.1:7400, got {listen!r}")
        if (cert is None) != (key is None):
            raise SourceError("--cert and --key go together")
        ping_s = seconds_of(ping, "--ping")
        tls = None if cert is None or key is None else server_tls(cert, key)
        _log_to_stderr()
        allow_many_files()
        # who comes and goes is news to whoever runs a hub; what they say is not
        logging.getLogger("slackwater.edge").setLevel(logging.INFO)
        asyncio.run(_serve(host, int(port), directory, token_from(token_file), tls, ping_s))


async def _serve(
    host: str, port: int, directory: Path, token: str, tls: ssl.SSLContext | None, ping_s: float
) -> None:
    from slackwater.edge.hub import Hub

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with Hub(directory, host=host, port=port, token=token, tls=tls, ping_s=ping_s) as hub:
        typer.echo(f"listening on {hub.url}, logs in {directory}")
        sys.stdout.flush()
        await hub.serve_until(stopped)


def _log_to_stderr() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
