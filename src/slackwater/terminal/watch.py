"""``slackwater watch``: the essentials of the page in a terminal, of a run that may be elsewhere."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live

from slackwater.errors import SlackwaterError
from slackwater.terminal.following import Following, Place, Seen
from slackwater.terminal.serve import given_token, is_plain
from slackwater.terminal.watch_view import picture_of

PATIENCE_S = 15.0
"""How long one picture is waited for."""
_REFRESHES_PER_SECOND = 2


def watch_url(
    url: str,
    *,
    token_file: Path | None,
    once: bool,
    console: Console,
    talk: Console,
    patience: float = PATIENCE_S,
) -> None:
    """Show a run until Ctrl+C, or one picture of it: where nobody reads along that is all there is to do."""
    following = Following(Place.of(url, _token(token_file)))
    following.start()
    try:
        if once or not console.is_terminal:
            console.print(picture_of(_first(following, patience), following.place, console))
        else:
            _watch(following, console)
    except KeyboardInterrupt:
        pass
    finally:
        following.stop()
    if following.refused is not None:
        raise following.refused


def _token(file: Path | None) -> str:
    found, where = given_token(file)
    if not is_plain(found or ""):
        # what it says instead is shown to nobody
        raise SlackwaterError(f"{where}: expected a token of plain characters in one line")
    return found or ""


def _first(following: Following, patience: float) -> Seen:
    """What there is to be seen, once: the end of a recording, or the newest frame of a run."""
    deadline = time.monotonic() + patience
    while True:
        following.news.clear()
        seen = following.seen()
        if following.refused is not None:
            raise following.refused
        if seen.frame is not None and (seen.over or seen.frame.mode == "live"):
            return seen
        left = deadline - time.monotonic()
        if seen.again is not None or left <= 0:
            url = following.place.url
            raise SlackwaterError(seen.trouble or f"{url} has sent nothing whole in {patience:.0f} s")
        following.news.wait(left)


def _watch(following: Following, console: Console) -> None:
    def look() -> RenderableType:
        return picture_of(following.seen(), following.place, console)

    with Live(get_renderable=look, console=console, refresh_per_second=_REFRESHES_PER_SECOND) as live:
        while not following.seen().over:
            following.news.wait(1.0)
            following.news.clear()
        live.refresh()
