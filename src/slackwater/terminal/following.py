"""A run that is watched from afar: its events read over HTTP, and read again when the connection is lost."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pydantic import ValidationError

from slackwater.errors import SlackwaterError
from slackwater.runtime.show import printable
from slackwater.service.folding import fold, moment_of
from slackwater.service.guard import is_loopback
from slackwater.service.models import Frame, Moment
from slackwater.terminal.serve import VARIABLE, is_plain

POINTS = 60
MOMENTS = 300
SILENT_S = 30.0
"""The service says something every ten seconds; after so long without a word the connection is lost."""
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 5.0
OVER = ("ended", "stopped", "failed")


@dataclass(frozen=True)
class Place:
    """Where a service is, and the token for it."""

    url: str
    token: str = ""

    @classmethod
    def of(cls, text: str, token: str = "") -> Place:
        """From an address as people have it: without a scheme, or copied from a browser with its token.

        >>> Place.of("localhost:8400/"), Place.of("http://127.0.0.1:8400/#token=abc").token
        (Place(url='http://localhost:8400', token=''), 'abc')
        """
        wrong = SlackwaterError(
            f"{text}: expected the address of a service, such as http://127.0.0.1:8400; "
            "slackwater run prints it"
        )
        try:
            parts = urlsplit(text if "://" in text else f"http://{text}")
            _ = parts.port
        except ValueError:
            raise wrong from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise wrong
        given = parse_qs(parts.fragment).get("token", [""])[0]
        if not is_plain(given):
            raise SlackwaterError("the token in the address has characters that no token has: copy it again")
        return cls(f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}", token or given)

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""


@dataclass(frozen=True)
class Seen:
    """What is known at one moment; ``trouble`` says why nothing newer is."""

    frame: Frame | None = None
    moments: tuple[Moment, ...] = ()
    trouble: str = ""
    again: float | None = None
    """In how many seconds it is tried again."""
    over: bool = False
    """Nothing more will come."""

    @property
    def words(self) -> str:
        """The trouble, and what is done about it."""
        return self.trouble if self.again is None else f"{self.trouble}; trying again in {self.again:.1f} s"


class Following:
    """Follows a service in a thread of its own; `seen` may be read from any thread."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.refused: SlackwaterError | None = None
        """Why there is no use in trying again."""
        # a proxy has no way to this machine's own loopback
        proxies = [urllib.request.ProxyHandler({})] if is_loopback(place.host) else []
        self._opener = urllib.request.build_opener(_NoRedirects(), *proxies)
        self._frame: Frame | None = None
        self._moments: deque[Moment] = deque(maxlen=MOMENTS)
        self._trouble = f"connecting to {place.url} …"
        self._again: float | None = None
        self._over = False
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self.news = threading.Event()
        """Set whenever something has changed."""

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True, name="slackwater-watch").start()

    def stop(self) -> None:
        self._stopping.set()

    def seen(self) -> Seen:
        with self._lock:
            return Seen(self._frame, tuple(self._moments), self._trouble, self._again, self._over)

    def _run(self) -> None:
        wait = FIRST_WAIT_S
        while not self._stopping.is_set() and not self._over:
            try:
                if self._read():
                    return
                wait = FIRST_WAIT_S
                why = "the service has closed the connection"
            except SlackwaterError as error:
                self.refused = error
                self._say(str(error), over=True)
                return
            except (OSError, HTTPException, ValidationError, ValueError) as error:
                why = _reason(error)
            if self._frame is not None and self._frame.phase in OVER and self._frame.mode == "live":
                self._say("", over=True)
                return
            self._say(f"{self.place.url}: {why}", again=wait)
            self._stopping.wait(wait)
            wait = min(wait * 2, LONGEST_WAIT_S)

    def _read(self) -> bool:
        """Take frames until the connection ends; True where the service says that there are no more."""
        if self._frame is None:
            self._past()
        # a run that was started again counts from 1: only what it sends says where it is
        after = "" if self._frame is None else f"?after={self._frame.number}"
        with self._get(f"/api/events{after}") as answer:
            for name, data in events(answer):
                if self._stopping.is_set():
                    return True
                if name == "end":
                    self._say("", over=True)
                    return True
                if name == "frame":
                    self._take(Frame.model_validate_json(data))
        return False

    def _past(self) -> None:
        """The tide line until now, so that a look at once shows where the load comes from."""
        with self._get("/api/moments?limit=300") as answer:
            moments = [Moment.model_validate(moment) for moment in json.load(answer)]
        with self._lock:
            self._moments.extend(moments)

    def _take(self, frame: Frame) -> None:
        with self._lock:
            self._frame = fold(self._frame, frame, POINTS)
            moment = moment_of(frame)
            # a recording is sent from its start, and its moments are there already
            if not self._moments or moment.at > self._moments[-1].at:
                self._moments.append(moment)
        self._say("")

    def _say(self, trouble: str, *, again: float | None = None, over: bool = False) -> None:
        with self._lock:
            self._trouble, self._again, self._over = trouble, again, over
        self.news.set()

    def _get(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self.place.token}"} if self.place.token else {}
        request = urllib.request.Request(self.place.url + path, headers=headers)
        try:
            return self._opener.open(request, timeout=SILENT_S)
        except urllib.error.HTTPError as error:
            if error.code in (401, 403):
                raise SlackwaterError(
                    f"{self.place.url} wants a token: {_detail(error)}; give it with --token-file FILE, in "
                    f"{VARIABLE}, or with the address that slackwater run has printed"
                ) from None
            if 300 <= error.code < 400:
                error.close()
                said = printable(f"{error.code} {error.reason}")
                where = printable(error.headers.get("Location") or "nowhere")[:200]
                raise SlackwaterError(
                    f"{self.place.url} answered {said} and points to {where}: redirects are not followed, "
                    "name the address itself"
                ) from None
            if error.code == 404:
                error.close()
                raise SlackwaterError(
                    f"{self.place.url} is no service of slackwater's: it has no {path.partition('?')[0]}"
                ) from None
            raise


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows none: whoever is pointed to would be given the token of the run."""

    def redirect_request(self, *_: Any) -> None:
        return None


def events(lines: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Server-sent events: their names and data. One that was cut off is none.

    >>> list(events([b"event: frame\\n", b"data: {}\\n", b"\\n", b": still here\\n", b"\\n", b"data: x"]))
    [('frame', b'{}')]
    """
    name = "message"
    data: list[bytes] = []
    for raw in lines:
        line = raw.rstrip(b"\r\n")
        if not line:
            if data:
                yield name, b"\n".join(data)
            name, data = "message", []
            continue
        field, _, text = line.partition(b":")
        text = text.removeprefix(b" ")
        if field == b"event":
            name = text.decode()
        elif field == b"data":
            data.append(text)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the service answered {error.code}: {_detail(error)}"
    if isinstance(error, urllib.error.URLError):
        error = error.reason if isinstance(error.reason, Exception) else error
    if isinstance(error, ConnectionRefusedError):
        return "no service answers there; is the run still there?"
    if isinstance(error, TimeoutError):
        return "nothing has come for a while"
    if isinstance(error, ValidationError):
        return "what the service says is of another version of slackwater"
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


def _detail(error: urllib.error.HTTPError) -> str:
    """What the service said was wrong."""
    try:
        with error:
            return str(json.load(error)["detail"])
    except (ValueError, KeyError, TypeError, OSError):
        return str(error.reason)
