"""Watching a run from a terminal: the picture at known sizes, connections that break, and what is refused."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from frames import at, frame, point, query, recording, stream, turn, write_frames
from slackwater.cli import app
from slackwater.errors import SlackwaterError
from slackwater.service.folding import moment_of
from slackwater.service.frame_log import FRAMES
from slackwater.service.models import AgentFrame, AgentsFrame, AlertFrame, Frame, WidthFrame
from slackwater.service.recorded import Recorded
from slackwater.service.server import serving
from slackwater.terminal.following import Following, Place, Seen, events
from slackwater.terminal.serve import VARIABLE
from slackwater.terminal.watch import watch_url
from slackwater.terminal.watch_view import picture
from waiting import wait_for

runner = CliRunner()
ALERT = AlertFrame(
    name="much\x1b[2J", query="web", condition="n > 5", url="u", raised=1, events=3, waiting=2, trouble="503"
)
AGENTS = AgentsFrame(
    stream="p",
    there=3,
    known=4,
    keys=1200,
    updates_per_second=10.0,
    grants_per_second=50.0,
    offered_per_second=1000.0,
    late=0,
    agents=[],
    widths=[],
)


def shown(seen: Seen, *, width: int = 120, height: int = 40) -> list[str]:
    """The picture as lines of plain text."""
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, force_terminal=True, color_system="truecolor")
    console.print(picture(seen, "http://127.0.0.1:8400", width=width, height=height))
    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in out.getvalue().splitlines()]


def seen_of(*frames: Frame, **more: Any) -> Seen:
    return Seen(frames[-1], tuple(moment_of(f) for f in frames), **more)


def a_frame(number: int = 9, **more: Any) -> Frame:
    queries = [
        query("calm", [point(n, float(n)) for n in range(8)], last_text="7"),
        query("wide", error=0.04, rate=0.25, how="sampled", last_text="1,000 ± 40 (95%)"),
        query("late", met=False, error=0.3, rate=0.02, how="sampled", keys={"host": "a\x1b[2J"}),
        query("shut", suspended=True, met=None, error=None, last_text=""),
        query("new", met=None, error=None, how=None, expected_error=0.01, rate=None, last_text=""),
    ]
    return frame(number, queries, whole=True, **more)


# --- the picture ----------------------------------------------------------------------------------


def test_what_needs_attention_comes_first() -> None:
    lines = shown(seen_of(a_frame()))
    names = [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in _names()]
    assert names == ["late", "shut", "wide", "calm", "new"]
    text = "\n".join(lines)
    assert "5 queries: 2 met, 1 not" in text
    late, shut, wide, calm, new = (next(line for line in lines if line.startswith(name)) for name in names)
    assert "✗" in late
    assert "2.0%" in late
    assert "30.00%" in late
    assert "host=a\\x1b[2J" in late
    assert "suspended" in shut
    assert re.search(r"✓ +1,000 ± 40 \(95%\) +sampled +25% +4\.00%", wide)
    assert re.search(r"exact +100% +none +8 +▁▂▃▄▅▆▇█", calm)
    assert re.search(r"waiting +– +≈1\.00%", new)


def _names() -> set[str]:
    return {q.name for q in a_frame().queries}


def test_load_against_capacity_and_the_level() -> None:
    run = [frame(n, load=n / 10, capacity=0.5, level=0.0 if n < 6 else 0.5) for n in range(1, 9)]
    lines = shown(seen_of(*run))
    assert lines[1] == "load   800 ms of 500 ms a batch, 800 ms kept  ▂▃▄▅▅▆▇█"
    assert lines[2] == "level  ℓ 0.50 shedding  ▁▁▁▁▁███"
    calm = shown(seen_of(frame(1, level=0.0, load=None, capacity=None)))
    assert calm[1] == "load   50 rows/s, not measured yet  █"
    assert calm[2] == "level  ℓ 0.00 slack water"
    late = shown(seen_of(frame(1, level=0.0, load=2.0, capacity=0.5)))
    assert "late: nothing is shed, it would not help" in late[2]
    assert "flood: contracts are not kept" in shown(seen_of(frame(1, level=3.0)))[2]


def test_agents_alerts_and_messages() -> None:
    lines = shown(seen_of(a_frame(agents=[AGENTS], alerts=[ALERT], message="a full disk\x1b[2J")))
    assert lines[-3] == "agents p 3 of 4 there, 1.20k keys, 60 messages/s of 1.00k (94% saved)"
    assert lines[-2] == "alerts 1 of 1 raised: much\\x1b[2J  2 events not taken yet  503"
    assert lines[-1] == "a full disk\\x1b[2J"
    grouped = ALERT.model_copy(
        update={"raised": 4, "groups": [{"host": "a\x1b", "port": 1}, {"host": "b", "port": 2}]}
    )
    lines = shown(seen_of(a_frame(alerts=[grouped])))
    assert lines[-1].startswith(
        "alerts 1 of 1 raised: much\\x1b[2J (host=a\\x1b port=1, host=b port=2 and 2 more)"
    )


def away(name: str, since: float | None) -> AgentFrame:
    gone = None if since is None else at(since)
    return AgentFrame(name=name, there=False, keys=1, updates=1, offered_per_second=None, since=gone)


def width(column: str, used: float | None, allowed: float = 5.0) -> WidthFrame:
    return WidthFrame(
        query="web", column=column, smallest=0.5, median=1234.5678, largest=None, used=used, allowed=allowed
    )


def test_agents_that_are_away_are_named() -> None:
    gone = [away("a\x1b", 5), away("b", None), away("c", -71), away("d", 2)]
    there = AgentFrame(name="e", there=True, keys=1, updates=1, offered_per_second=None, since=None)
    stream = AGENTS.model_copy(update={"there": 1, "known": 4, "agents": [*gone[:3], there]})
    [line] = [x for x in shown(seen_of(a_frame(agents=[stream])), width=200) if x.startswith("agents")]
    assert line.startswith("agents p 1 of 4 there (away: c for 1 min 20 s, a\\x1b for 4.0 s, b), 1.20k keys")
    # not all of many agents are told one by one
    stream = AGENTS.model_copy(update={"there": 1, "known": 500, "agents": gone})
    [line] = [x for x in shown(seen_of(a_frame(agents=[stream])), width=200) if x.startswith("agents")]
    assert "(away: c for 1 min 20 s, d for 7.0 s, a\\x1b for 4.0 s and 496 more)" in line


@pytest.mark.parametrize(("there", "how"), [(3, "interrupted"), (4, "waiting")])
def test_an_answer_without_an_interval_is_told_as_that(there: int, how: str) -> None:
    last = point(5, None, how="bounded").model_copy(update={"met": False})
    one = query("total", [last], how="bounded", met=False, last_text="–")
    agents = AGENTS.model_copy(update={"there": there})
    run = frame(9, [one], whole=True, streams=[stream()], agents=[agents])
    [line] = [x for x in shown(seen_of(run), width=120) if x.startswith("total")]
    assert "no interval" in line
    assert how in line
    assert "bounded" not in line


def test_the_widths_that_agents_hold() -> None:
    stream = AGENTS.model_copy(update={"widths": [width("rx", 4.25), width("tx\x1b", None)]})
    lines = shown(seen_of(a_frame(agents=[stream], alerts=[ALERT])))
    assert lines[-4].startswith("agents p ")
    assert lines[-3] == "widths web.rx  least 0.5, middle 1,230, most –; 4.25 of 5 used"
    assert lines[-2] == "       web.tx\\x1b  least 0.5, middle 1,230, most –; – of 5 used"
    assert lines[-1].startswith("alerts ")
    many = AGENTS.model_copy(update={"widths": [width(f"c{n}", 6.0) for n in range(9)]})
    lines = shown(seen_of(a_frame(agents=[many])))
    assert lines[-1].startswith("       web.c5 ")
    assert lines[-1].endswith("6 of 5 used  … and 3 more")


@pytest.mark.parametrize("height", range(6, 60, 2))
def test_widths_take_no_room_from_queries(height: int) -> None:
    agents = AGENTS.model_copy(update={"widths": [width(f"c{n}", 6.0) for n in range(9)]})
    many = [query(f"q{n}") for n in range(100)]
    run = frame(1, many, whole=True, streams=[stream()], agents=[agents], alerts=[ALERT])
    lines = shown(seen_of(run), height=height)
    assert len(lines) <= height - 1 or height < 8
    widths = [line for line in lines if " used" in line]
    assert len(widths) <= 6
    if widths:
        assert sum(bool(re.match(r"q\d", line)) for line in lines) >= 8
    if height >= 40:
        assert len(widths) == 6


def test_trouble_is_told_above_what_was_last_seen() -> None:
    lines = shown(seen_of(a_frame(), trouble="http://h: nothing has come for a while", again=2.0))
    assert lines[1] == "http://h: nothing has come for a while; trying again in 2.0 s"
    assert shown(Seen(trouble="connecting …")) == ["connecting …"]


@pytest.mark.parametrize(("width", "height"), [(40, 10), (80, 24), (200, 60), (120, 8)])
def test_a_thousand_queries_fit_into_any_terminal(width: int, height: int) -> None:
    many = [query(f"query_with_a_long_name_{n}", [point(1)], met=n % 7 != 3) for n in range(1000)]
    streams = [stream(f"stream_{n}") for n in range(30)]
    run = frame(1, many, whole=True, streams=streams, agents=[AGENTS], alerts=[ALERT], message="m" * 500)
    lines = shown(seen_of(run, trouble="t" * 300, again=1.0), width=width, height=height)
    assert max(cell_len(line) for line in lines) <= width
    assert len(lines) <= height - 1
    assert any(re.search(r"… and (9\d\d|1,000) more", line) for line in lines)
    assert height < 20 or any(line.startswith("agents") for line in lines)


# --- addresses and events -------------------------------------------------------------------------


def test_addresses_as_people_have_them() -> None:
    assert Place.of("localhost:8400") == Place("http://localhost:8400")
    assert Place.of("https://h/slack/") == Place("https://h/slack")
    assert Place.of("http://127.0.0.1:8400/#token=abc") == Place("http://127.0.0.1:8400", "abc")
    assert Place.of("http://h/#token=abc", "mine").token == "mine"
    for wrong in ("ftp://h", "http://", "", "http://[::1", "http://h:port"):
        with pytest.raises(SlackwaterError, match="expected the address of a service"):
            Place.of(wrong)
    with pytest.raises(SlackwaterError, match="copy it again"):
        Place.of("http://h/#token=abc%0Ad")


def test_events_are_read_line_by_line() -> None:
    text = b": hello\n\nevent: frame\r\nid: 1\r\ndata: a\r\ndata: b\r\n\r\ndata:c\n\nevent: end\ndata: {}\n\ndata: cut\n"
    assert list(events(io.BytesIO(text))) == [("frame", b"a\nb"), ("message", b"c"), ("end", b"{}")]


# --- following a service --------------------------------------------------------------------------


@dataclass
class Scripted:
    """A service that answers as it is told, one connection after the other."""

    connections: list[Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""


@contextmanager
def scripted(*connections: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[Scripted]:
    script = Scripted(list(connections))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            script.asked.append((self.path, self.headers.get("Authorization", "")))
            if self.path.startswith("/api/moments"):
                body = json.dumps([json.loads(moment_of(frame(1)).model_dump_json())]).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)
            elif script.connections:
                script.connections.pop(0)(self)
            else:
                self.send_error(503)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def sends(*frames: Frame, last: bytes = b"") -> Callable[[BaseHTTPRequestHandler], None]:
    """Some frames, then the end of the connection."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for made in frames:
            handler.wfile.write(b"event: frame\nid: 1\ndata: " + made.model_dump_json().encode() + b"\n\n")
        handler.wfile.write(last)

    return send


def test_a_connection_that_breaks_is_made_again() -> None:
    half = b"event: frame\ndata: {" + b'"number":3'
    with scripted(
        sends(a_frame(1), frame(2, [query("calm", [point(9)])]), last=half),
        sends(frame(3, [query("wide", met=False)]), frame(4, phase="ended")),
    ) as script:
        following = Following(Place.of(script.url))
        following.start()
        wait_for(lambda: following.seen().over)
    seen = following.seen()
    assert seen.frame is not None
    assert (seen.frame.number, seen.frame.phase) == (4, "ended")
    assert [q.met for q in seen.frame.queries if q.name in ("calm", "wide")] == [True, False]
    assert [path for path, _ in script.asked] == [
        "/api/moments?limit=300",
        "/api/events",
        "/api/events?after=2",
    ]
    assert [m.number for m in seen.moments] == [1, 2, 3, 4]


def test_while_nobody_answers_it_says_so_and_tries_again() -> None:
    with scripted() as script:
        gone = script.url
    following = Following(Place.of(gone))
    following.start()
    wait_for(lambda: following.seen().again is not None)
    assert following.seen().words.startswith(
        f"{gone}: no service answers there; is the run still there?; trying"
    )
    following.stop()
    with scripted() as script:
        following = Following(Place.of(script.url))
        following.start()
        wait_for(lambda: following.seen().again is not None)
        assert "the service answered 503" in following.seen().words
        following.stop()


def test_what_is_of_another_version_is_told() -> None:
    with scripted(sends(last=b'event: frame\ndata: {"number": 1}\n\n')) as script:
        following = Following(Place.of(script.url))
        following.start()
        wait_for(lambda: following.seen().again is not None)
        assert "another version of slackwater" in following.seen().words
        following.stop()


@pytest.mark.parametrize(
    ("code", "words"), [(401, "wants a token: .*--token-file"), (404, "no service of slackwater's")]
)
def test_where_there_is_no_use_in_trying_again(code: int, words: str, tmp_path: Path) -> None:
    def refuse(handler: BaseHTTPRequestHandler) -> None:
        handler.send_error(code)

    out = io.StringIO()
    with scripted(refuse) as script, pytest.raises(SlackwaterError, match=words):
        watch_url(script.url, token_file=None, once=True, console=Console(file=out), talk=Console(file=out))


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_nobody_else_is_given_the_token(code: int, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-secret\n")

    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        handler.send_header("Location", f"{other.url}/api/events")
        handler.end_headers()

    console = Console(file=io.StringIO())
    with scripted(sends(a_frame())) as other, scripted(elsewhere) as script:
        with pytest.raises(SlackwaterError, match=rf"answered {code} .*redirects are not followed") as told:
            watch_url(script.url, token_file=tmp_path / "token", once=True, console=console, talk=console)
        assert f"{other.url}/api/events" in str(told.value)
        assert other.asked == []
        assert len(script.asked) == 2, "there is no use in trying again"


def test_the_token_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    monkeypatch.setenv(VARIABLE, "from-the-environment")
    console = Console(file=io.StringIO(), width=200)
    for file in (tmp_path / "token", None):
        with scripted(sends(a_frame())) as script:
            watch_url(script.url, token_file=file, once=True, console=console, talk=console)
        expected = "from-a-file" if file else "from-the-environment"
        assert {authorization for _, authorization in script.asked} == {f"Bearer {expected}"}
    with pytest.raises(SlackwaterError, match="--token-file"):
        watch_url("h", token_file=tmp_path / "nothing", once=True, console=console, talk=console)


@pytest.mark.parametrize("held", [b"a-secret\nand-more", b"a secret", b"s\xe9cret", "s\u00e9cret".encode()])
def test_a_token_that_no_header_takes_is_told_and_not_shown(held: bytes, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(held)
    console = Console(file=io.StringIO())
    with pytest.raises(SlackwaterError, match="--token-file") as told:
        watch_url("h", token_file=tmp_path / "token", once=True, console=console, talk=console)
    assert "cret" not in str(told.value)


# --- the command, and the real service ------------------------------------------------------------


def test_one_picture_of_a_run_is_printed() -> None:
    with scripted(sends(a_frame())) as script:
        told = runner.invoke(app, ["watch", script.url, "--once"])
    assert told.exit_code == 0, told.output
    assert "5 queries: 2 met, 1 not" in told.output
    assert "… and" not in told.output
    refused = runner.invoke(app, ["watch", script.url, "--once"])
    assert refused.exit_code == 1
    assert "no service answers there" in refused.output
    assert "trying again" not in refused.output


def test_on_a_terminal_it_goes_on_until_the_run_ends() -> None:
    out = io.StringIO()
    console = Console(file=out, width=100, height=30, force_terminal=True)
    with scripted(
        sends(a_frame(1)), sends(frame(2, [query("calm", last_text="42")], phase="ended"))
    ) as script:
        watch_url(script.url, token_file=None, once=False, console=console, talk=console)
    assert "ended" in out.getvalue()
    assert "42" in out.getvalue()


def test_a_recording_is_watched_to_its_end(tmp_path: Path) -> None:
    folder = recording(tmp_path / "rec", turns=[turn(1, 1)])
    run = [frame(n, [query("web", [point(n)], last_text=str(n))], whole=n % 10 == 1) for n in range(1, 31)]
    write_frames(folder / FRAMES, run)
    recorded = Recorded(folder)
    out = io.StringIO()
    with serving(recorded, port=0) as address:
        following = Following(Place.of(address.page))
        following.start()
        wait_for(lambda: following.seen().over)
        seen = following.seen()
        assert seen.frame is not None
        assert (seen.frame.number, seen.frame.at, len(seen.moments)) == (30, at(30), 30)
        console = Console(file=out, width=150)
        watch_url(address.url, token_file=None, once=True, console=console, talk=console)
    recorded.close()
    assert re.search(r"web +ERROR 5% +✓ +30 ", out.getvalue())
