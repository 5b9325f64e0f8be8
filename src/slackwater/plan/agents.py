"""Streams that agents send, as declared: what cannot be, and what would be without effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from slackwater.edge.tls import client_tls
from slackwater.errors import LanguageError, SourceError
from slackwater.language.contracts import Precision
from slackwater.language.statements import CreateQuery, CreateStream
from slackwater.plan.adjusting import Misdeclared, adjusting, options_of
from slackwater.plan.bounded import value_columns
from slackwater.plan.catalog import Catalog

KEY_TYPES = ("STRING", "BIGINT", "INT", "DOUBLE")
NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE")
_UNUSED: Mapping[str, str] = {
    "LATENESS": "say how long what agents send is waited for by TOLERANCE, such as TOLERANCE 1 SECOND",
    "IDLE": "leave it out: a bound holds while nothing comes, and there are no windows to close",
    "TICK": "leave it out: an answer comes whenever a bound of it changes",
    "INTERRUPTED AFTER": "leave it out: the hub knows when an agent is lost, and MAX RATE 5 PER SECOND "
    "gives answers an interval meanwhile",
}
"""Clauses that say nothing to a query under PRECISION, and what to write instead."""


def sent_by_agents(stream: CreateStream) -> bool:
    return stream.format.lower() == "agents"


def check_declared(stream: CreateStream) -> None:
    """Raise `Misdeclared` where a stream cannot be one that agents send."""
    adjusting(stream)
    _check_hub(stream)
    if not stream.key:
        raise Misdeclared(stream, "USING agents needs KEY: whose value an agent sends", "")
    for name in stream.key:
        key_type(stream, name)
    if stream.time_expression is not None:
        raise Misdeclared(
            stream,
            "the time of a row is when its agent had it; declare a TIMESTAMP column and say TIMESTAMP BY it",
            "TIMESTAMP BY",
        )
    types = {c.name: c.type.upper() for c in stream.columns}
    wrong = [n for n in value_columns(stream) if types[n] not in NUMBERS]
    if wrong:
        what = f"{wrong[0]} is {types[wrong[0]]}, and agents send numbers"
        raise Misdeclared(stream, f"{what}; make it a KEY, or look it up in a table", "")
    if not value_columns(stream):
        raise Misdeclared(stream, "agents send values, and there is no column for one", "")
    if stream.payload is not None:
        raise Misdeclared(stream, "agents send columns; leave FORMAT out", "FORMAT")


def key_type(stream: CreateStream, name: str) -> str:
    """The type of a key column, one of those that keys may have."""
    column = next(c for c in stream.columns if c.name.lower() == name.lower())
    kind = column.type.upper()
    if kind not in KEY_TYPES:
        what = f"key {column.name} is {column.type}, and keys that agents send are {', '.join(KEY_TYPES)}"
        raise Misdeclared(stream, what, "KEY")
    return kind


def _check_hub(stream: CreateStream) -> None:
    options = options_of(stream)
    hub = options["hub"]
    try:
        parts = urlsplit(hub)
        fits = parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise Misdeclared(stream, f"hub is ws://host:7400 or wss://host:7400; got {hub!r}", "hub")
    if "ca" in options and parts.scheme != "wss":
        what = f"ca is what a hub with wss:// is trusted by, and hub is {hub!r}"
        raise Misdeclared(stream, f"{what}; write wss://, or leave ca out", "ca")


def check_files(stream: CreateStream) -> None:
    """Raise `Misdeclared` where the files that a stream's options name cannot be used here."""
    token_of(stream, "")
    options = options_of(stream)
    if "ca" in options:
        try:
            client_tls(options["hub"], Path(options["ca"]))
        except SourceError as error:
            raise Misdeclared(stream, str(error), "ca") from None


def token_of(stream: CreateStream, otherwise: str) -> str:
    """The token in a stream's token_file, or another one where it names none."""
    name = options_of(stream).get("token_file")
    if name is None:
        return otherwise
    try:
        token = Path(name).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise Misdeclared(stream, f"token_file: cannot read {name}: {reason}", "token_file") from None
    if not token:
        what = f"token_file: {name} is empty; expected the token of the hub as its text"
        raise Misdeclared(stream, what, "token_file")
    return token


def check_agents(catalog: Catalog) -> list[LanguageError]:
    """Raise LanguageError where a stream cannot be one that agents send; what is only without effect.

    Needs no Spark and no hub: the hub may be started later.
    """
    streams = [s for s in catalog.streams.values() if sent_by_agents(s)]
    for stream in streams:
        pointing(check_declared, stream)
        pointing(check_files, stream)
    hasty = [_hasty(stream) for stream in streams if stream.tolerance == 0]
    all_sent = [warning for stream in streams for warning in _all_sent(catalog, stream)]
    return hasty + all_sent + [warning for stream in streams for warning in _unused(catalog, stream)]


def _hasty(stream: CreateStream) -> LanguageError:
    return stream.error(
        "TOLERANCE 0 leaves a row no time to reach the hub: nearly all are late, and of late ones nothing is "
        "promised",
        "TOLERANCE",
        hint="say how long that may take, such as TOLERANCE 400 MILLISECONDS",
    )


def _all_sent(catalog: Catalog, stream: CreateStream) -> list[LanguageError]:
    """Queries that undo what PRECISION saves: their rows are changes, so all of them are sent."""
    queries = {n: q for n, q in catalog.queries.items() if q.stream.lower() == stream.name.lower()}
    precise = [q.name for q in queries.values() if isinstance(q.contract, Precision)]
    others = {n: q.name for n, q in queries.items() if not isinstance(q.contract, Precision)}
    if not precise or not others:
        return []
    first = catalog.declared[next(iter(others))]
    assert isinstance(first, CreateQuery)
    named = f"quer{'y' if len(others) == 1 else 'ies'} {', '.join(others.values())}"
    under = f"{', '.join(precise)} {'is' if len(precise) == 1 else 'are'} under PRECISION"
    return [
        first.source.error(
            f"agents send every change of {stream.name} for {named}, and {under}, which then saves nothing",
            at=first.contract_at,
            hint="where messages matter, leave it out, or use another stream for it",
        )
    ]


def pointing(check: Callable[[CreateStream], None], stream: CreateStream) -> None:
    """Check a stream; an error points at what is wrong in its statement."""
    try:
        check(stream)
    except Misdeclared as error:
        raise stream.error(str(error), error.place) from None


def _unused(catalog: Catalog, stream: CreateStream) -> list[LanguageError]:
    contracts = [q.contract for q in catalog.queries.values() if q.stream.lower() == stream.name.lower()]
    if not contracts or not all(isinstance(contract, Precision) for contract in contracts):
        # to windows and to current values under other contracts it is a stream like any other
        return []
    return [
        stream.error(
            f"{clause} means nothing to queries under PRECISION, as all of stream {stream.name} are",
            clause,
            hint=instead,
        )
        for clause, instead in _UNUSED.items()
        if clause in stream.places
    ]
