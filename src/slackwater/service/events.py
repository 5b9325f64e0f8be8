"""Server-sent events: what has come since, for any number of readers, each at its own pace.

The bytes of an event are made once, and handed out in pieces, so that no reader has more than one of them
waiting. A reader that is slow is sent what is still kept when it is ready again, or a whole frame: nobody
waits for it, and nothing is kept for it alone.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from slackwater.service.keeping import AnswerKeeper
from slackwater.service.problems import Refusal
from slackwater.service.watched import Watched

READERS_AT_MOST = 1_000
QUIET_S = 10.0
"""After so long without an event a comment is sent, so that a reader that is gone is noticed."""
PARTS_AT_A_TIME = 20
"""Parts of answers that are sent at once."""
AT_A_TIME = 200
"""Frames that are sent at once to a reader that comes back."""
PIECE = 64 * 2**10
"""Bytes that are written at once: what a reader takes slowly waits here and not in its connection."""
SHARED = 8
"""Events whose bytes are kept for the next reader: those who follow all want the newest ones."""
MEDIA_TYPE = "text/event-stream"
KEEP_ALIVE = b": still here\n\n"


def event(name: str, number: int, data: bytes) -> bytes:
    """One event on the wire.

    >>> event("frame", 3, b"{}")
    b'event: frame\\nid: 3\\ndata: {}\\n\\n'
    """
    return b"event: %s\nid: %d\ndata: %s\n\n" % (name.encode(), number, data)


def number_of(frame: bytes) -> int:
    """The number of a frame that is JSON: its first field.

    >>> number_of(b'{"number":42,"at":"2026"}')
    42
    """
    return int(frame[len(b'{"number":') : frame.index(b",")])


class Shared:
    """Events whose bytes are the same for many readers; used in the loop of the server."""

    def __init__(self) -> None:
        self._made: OrderedDict[int, tuple[bytes, bytes]] = OrderedDict()

    def event(self, name: str, number: int, data: bytes) -> bytes:
        """The event of some data, the same object each time while it is one of the last."""
        # data that is kept here is the only one with its id
        known = self._made.get(id(data))
        if known is None:
            known = self._made[id(data)] = (data, event(name, number, data))
            while len(self._made) > SHARED:
                self._made.popitem(last=False)
        return known[1]


def pieces(events: Sequence[bytes]) -> Iterator[bytes]:
    """What is written at once: small events together, large ones in parts.

    >>> [len(piece) for piece in pieces([b"a" * 10, b"b" * 20, b"c" * (PIECE + 7), b"d"])]
    [30, 65536, 7, 1]
    """
    few: list[bytes] = []
    size = 0
    for one in events:
        if few and size + len(one) > PIECE:
            yield b"".join(few)
            few, size = [], 0
        if len(one) > PIECE:
            for start in range(0, len(one), PIECE):
                yield one[start : start + PIECE]
            continue
        few.append(one)
        size += len(one)
    if few:
        yield b"".join(few)


@dataclass
class Readers:
    """All who listen; lives in the loop of the server, and is woken from other threads."""

    count: int = 0
    sent: int = 0
    """Events so far, of all readers."""
    shared: Shared = field(default_factory=Shared)
    _loop: asyncio.AbstractEventLoop | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _closed: bool = False

    def attach(self) -> None:
        """Called once in the loop of the server."""
        self._loop = asyncio.get_running_loop()

    def wake(self) -> None:
        """Something has come; may be called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def close(self) -> None:
        """Nothing more will come: readers are let go."""
        self._closed = True
        self.wake()

    def check(self) -> None:
        """Raises where there are too many."""
        if self.count >= READERS_AT_MOST:
            raise Refusal(
                503,
                f"{READERS_AT_MOST:,} readers listen already, which is the most",
                headers={"Retry-After": "10"},
            )

    async def follow(
        self, news: Callable[[], list[bytes]], ended: Callable[[], bool], *, slow: bool = False
    ) -> AsyncIterator[bytes]:
        """What ``news`` has whenever it has some, until ``ended``; ``slow``: others need not wait for it,
        and the reader is told meanwhile that somebody is there."""
        self.count += 1
        try:
            while True:
                waiting = self._news
                if slow:
                    looking = asyncio.ensure_future(asyncio.to_thread(news))
                    while not (await asyncio.wait({looking}, timeout=QUIET_S))[0]:
                        yield KEEP_ALIVE
                    found = looking.result()
                else:
                    found = news()
                if found:
                    for piece in pieces(found):
                        yield piece
                    self.sent += len(found)
                    continue
                if self._closed or ended():
                    return
                try:
                    async with asyncio.timeout(QUIET_S):
                        await waiting.wait()
                except TimeoutError:
                    yield KEEP_ALIVE
        finally:
            self.count -= 1


def frames_for(
    watched: Watched, after: int | None, shared: Shared | None = None
) -> Callable[[], list[bytes]]:
    """Frames for one reader: a whole one first, unless it has seen a recent one; then what has changed."""
    made = event if shared is None else shared.event
    position = after
    recorded = watched.mode == "recorded"
    over = False

    def news() -> list[bytes]:
        nonlocal position, over
        if recorded and position is None:
            position = 0
        elif position is None or not watched.kept_from() - 1 <= position <= watched.number:
            # number and picture are of one moment: the whole frame says which
            whole = watched.whole()
            position = number_of(whole)
            return [made("frame", position, whole)]
        found = [] if position >= watched.number else list(watched.frames(position, AT_A_TIME))
        if found:
            position = number_of(found[-1])
        # those that are missed long after are sent to one reader alone
        written = made if len(found) < SHARED else event
        events = [written("frame", number_of(frame), frame) for frame in found]
        if recorded and not found and not over:
            over = True
            events.append(event("end", position, b"{}"))
        return events

    return news


def answers_for(keeper: AnswerKeeper, query: str | None, after: int | None) -> Callable[[], list[bytes]]:
    """Answers for one reader, from now on or from after a number; what was not kept is said to be lost."""
    # 0: all that is kept
    position = keeper.number if after is None else after or keeper.began
    known = keeper.began <= position <= keeper.number

    def news() -> list[bytes]:
        nonlocal position, known
        if not known:
            # a number of another run: how much came after it in that one nobody knows
            known, position = True, keeper.began if position < keeper.began else keeper.number
            return [event("lost", position, b'{"parts":null}')]
        if position >= keeper.number:
            return []
        parts, lost, newest = keeper.after(position, query)
        if len(parts) > PARTS_AT_A_TIME:
            # the rest when these have been sent
            parts, newest = parts[:PARTS_AT_A_TIME], parts[PARTS_AT_A_TIME - 1].number
        position = newest
        # who comes back with the number of this event has seen none of those that follow it
        before = parts[0].number - 1 if parts else newest
        events = [event("lost", before, b'{"parts":%d}' % lost)] if lost else []
        return [*events, *(event("answers", part.number, keeper.json(part, query)) for part in parts)]

    return news
