"""Event streams: what a reader is sent first, what next, when it comes back, and when nothing happens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from service_client import Client
from service_still import Still, StillControl, a_frame
from slackwater.service import events
from slackwater.service.events import (
    AT_A_TIME,
    KEEP_ALIVE,
    Readers,
    Shared,
    answers_for,
    event,
    frames_for,
    number_of,
)
from slackwater.service.keeping import AnswerKeeper
from slackwater.service.problems import Refusal
from slackwater.service.server import app_for, serving
from test_service_keeping import batch
from waiting import wait_for


def moved(still: Still, number: int) -> None:
    """The run goes on by one frame."""
    still.kept.append(a_frame(number, whole=False))
    still.shown = a_frame(number)


def told(found: list[bytes]) -> list[tuple[str, int, bool]]:
    """Name, number, and whether it is whole."""
    return [(e.split(b"\n")[0][7:].decode(), int(e.split(b"\n")[1][4:]), b'"whole":true' in e) for e in found]


def test_the_first_frame_is_whole_and_the_others_are_changes() -> None:
    still = Still(a_frame(5), [a_frame(4, whole=False), a_frame(5, whole=False)])
    news = frames_for(still, None)
    assert told(news()) == [("frame", 5, True)]
    assert news() == []
    moved(still, 6)
    moved(still, 7)
    assert told(news()) == [("frame", 6, False), ("frame", 7, False)]
    assert news() == []


def test_who_comes_back_soon_is_sent_what_was_missed() -> None:
    still = Still(a_frame(7), [a_frame(n, whole=False) for n in (5, 6, 7)])
    assert told(frames_for(still, 5)()) == [("frame", 6, False), ("frame", 7, False)]
    assert told(frames_for(still, 4)()) == [("frame", n, False) for n in (5, 6, 7)]
    assert frames_for(still, 7)() == []


def test_who_comes_back_late_or_from_another_run_is_sent_a_whole_frame() -> None:
    still = Still(a_frame(7), [a_frame(n, whole=False) for n in (5, 6, 7)])
    assert told(frames_for(still, 3)()) == [("frame", 7, True)], "the fourth is not kept any more"
    assert told(frames_for(still, 0)()) == [("frame", 7, True)]
    assert told(frames_for(still, 99)()) == [("frame", 7, True)], "there was no such number"


def test_a_slow_reader_is_sent_a_whole_frame_where_frames_are_gone() -> None:
    still = Still(a_frame(1), [a_frame(1, whole=False)])
    news = frames_for(still, None)
    news()
    still.kept = [a_frame(n, whole=False) for n in (50, 51)]
    still.shown = a_frame(51)
    assert told(news()) == [("frame", 51, True)]


def test_many_frames_come_in_portions() -> None:
    still = Still(a_frame(450), [a_frame(n, whole=False) for n in range(1, 451)])
    news = frames_for(still, 0)
    assert [len(news()) for _ in range(4)] == [AT_A_TIME, AT_A_TIME, 50, 0]


def test_a_recording_sends_all_it_has_and_says_that_it_has_ended() -> None:
    still = Still(a_frame(3, mode="recorded"), [a_frame(n, mode="recorded", whole=n == 1) for n in (1, 2, 3)])
    news = frames_for(still, None)
    assert told(news()) == [("frame", 1, True), ("frame", 2, False), ("frame", 3, False)]
    assert told(news()) == [("end", 3, False)]
    assert news() == []


def test_answers_come_from_now_on_or_from_a_number() -> None:
    keeper = AnswerKeeper(in_all=4)
    news, others = answers_for(keeper, None, None), answers_for(keeper, "b", None)
    for name in "abab":
        keeper.take(batch(name, [1]))
        keeper.publish()
    assert [e.split(b"\n")[1] for e in news()] == [b"id: 1", b"id: 2", b"id: 3", b"id: 4"]
    assert [e.split(b"\n")[1] for e in others()] == [b"id: 2", b"id: 4"]
    assert news() == others() == []
    assert [e.split(b"\n")[1] for e in answers_for(keeper, None, 3)()] == [b"id: 4"]
    assert answers_for(keeper, None, 4)() == []


def test_answers_that_were_not_kept_are_said_to_be_lost() -> None:
    keeper = AnswerKeeper(in_all=2)
    news = answers_for(keeper, None, None)
    for _ in range(5):
        keeper.take(batch("q", [1]))
        keeper.publish()
    found = news()
    assert found[0] == event("lost", 3, b'{"parts":3}'), "who comes back with it has seen no later ones"
    assert [e.split(b"\n")[0] for e in found[1:]] == [b"event: answers"] * 2


def test_only_lost_answers_of_the_query_that_is_listened_to_are_told() -> None:
    keeper = AnswerKeeper(in_all=3)
    calm, busy = answers_for(keeper, "calm", None), answers_for(keeper, "busy", None)
    for name in ("busy", "busy", "calm", "busy", "busy"):
        keeper.take(batch(name, [1]))
        keeper.publish()
    assert [e.split(b"\n")[:2] for e in calm()] == [[b"event: answers", b"id: 3"]]
    assert busy()[0] == event("lost", 3, b'{"parts":2}')


@pytest.mark.parametrize("after", [500, 2_000])
def test_who_comes_back_with_a_number_of_another_run_is_told_that_answers_are_lost(after: int) -> None:
    keeper = AnswerKeeper(number=1_000)
    keeper.take(batch("q", [1]))
    keeper.publish()
    news = answers_for(keeper, None, after)
    (lost,) = news()
    assert lost.split(b"\n")[0::2][:2] == [b"event: lost", b'data: {"parts":null}']
    # what this run has kept was never seen by a reader of an earlier one
    assert [e.split(b"\n")[1] for e in news()] == ([b"id: 1001"] if after < 1_000 else [])
    keeper.take(batch("q", [1]))
    keeper.publish()
    assert [e.split(b"\n")[1] for e in news()] == [b"id: 1002"]


def test_answers_that_come_while_a_reader_looks_are_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = AnswerKeeper()
    news = answers_for(keeper, None, None)

    def come() -> None:
        keeper.take(batch("q", [1]))
        keeper.publish()

    looked = keeper.after

    def looking(number: int, query: str | None = None) -> Any:
        come()
        return looked(number, query)

    come()
    with monkeypatch.context() as patch:
        patch.setattr(keeper, "after", looking)
        assert [e.split(b"\n")[1] for e in news()] == [b"id: 1", b"id: 2"]
    assert news() == []


def test_an_event_is_made_once_for_all_who_follow() -> None:
    still, shared = Still(a_frame(1), [a_frame(1, whole=False)]), Shared()
    whole = still.whole()
    still.whole = lambda: whole  # type: ignore[method-assign]
    one, other = frames_for(still, None, shared), frames_for(still, None, shared)
    assert one()[0] is other()[0]
    changes = [b'{"number":2}', b'{"number":3,"x":1}']
    assert shared.event("frame", 3, changes[1]) is shared.event("frame", 3, changes[1])
    for number in range(20):
        shared.event("frame", number, b"%d" % number)
    assert shared.event("frame", 3, changes[1]) == event("frame", 3, changes[1])


def test_a_frame_says_its_number_first() -> None:
    assert number_of(a_frame(123).model_dump_json().encode()) == 123


def test_only_so_many_may_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    readers = Readers(count=999)
    readers.check()
    readers.count = 1000
    with pytest.raises(Refusal, match="1,000 readers listen already") as refused:
        readers.check()
    assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "10"})


@pytest.fixture(scope="module")
def still() -> Still:
    return Still(a_frame(1), [a_frame(1, whole=False)])


@pytest.fixture(scope="module")
def readers() -> Readers:
    return Readers()


@pytest.fixture(scope="module")
def client(still: Still, readers: Readers) -> Iterator[Client]:
    # the readers of a service are its own: these are put in their place, to be woken by a test
    patch = pytest.MonkeyPatch()
    patch.setattr("slackwater.service.server.Readers", lambda: readers)
    with serving(still, StillControl(still), port=0) as address:
        yield Client(address)
    patch.undo()


def test_a_reader_is_woken_by_the_next_frame(client: Client, still: Still, readers: Readers) -> None:
    before = readers.sent
    with client.events("/api/events") as found:
        first = next(found)
        assert (first[:2], first[2]["whole"]) == (("frame", still.number), True)
        moved(still, still.number + 1)
        readers.wake()
        name, number, data = next(found)
        assert (name, number, data["number"], data["whole"]) == ("frame", still.number, still.number, False)
        assert readers.count == 1
        # counted when it has been written, which may be after it was read
        wait_for(lambda: readers.sent == before + 2)
    wait_for(lambda: readers.count == 0, readers.wake)


def test_a_browser_that_comes_back_says_what_it_has_seen(
    client: Client, still: Still, readers: Readers
) -> None:
    moved(still, still.number + 1)
    seen = str(still.number - 1)
    with client.events("/api/events", Last_Event_ID=seen) as found:
        assert next(found)[2]["whole"] is False
    with client.events("/api/events?after=999", Last_Event_ID=seen) as found:
        assert next(found)[2]["whole"] is False, "it has seen more than its address says"
    for nonsense in ("x", "-1", "9" * 40, "²"):
        with client.events("/api/events", Last_Event_ID=nonsense.encode().decode("latin-1")) as found:
            assert next(found)[2]["whole"] is True
    wait_for(lambda: readers.count == 0, readers.wake)


def test_a_quiet_stream_says_that_it_is_still_there(
    client: Client, still: Still, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "QUIET_S", 0.05)
    with client.events(f"/api/events?after={still.number}") as found:
        assert [name for name, _, _ in islice(found, 3)] == [":", ":", ":"]


def test_a_reader_is_told_that_somebody_is_there_while_its_news_are_sought(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "QUIET_S", 0.01)
    found = threading.Event()

    def news() -> list[bytes]:
        assert found.wait(30)
        return [b"something"]

    async def read() -> None:
        told = Readers().follow(news, lambda: False, slow=True)
        assert [await anext(told) for _ in range(3)] == [KEEP_ALIVE] * 3
        found.set()
        while (piece := await anext(told)) == KEEP_ALIVE:
            pass
        assert piece == b"something"

    asyncio.run(read())


def test_too_many_readers_are_told_to_come_back(
    client: Client, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "READERS_AT_MOST", 0)
    refused = client.get("/api/events")
    assert "readers listen already" in refused.problem(503)["detail"]
    assert refused.headers["retry-after"] == "10"


def test_readers_are_let_go_when_the_service_ends() -> None:
    ended = threading.Event()
    with serving(Still(), port=0) as address:
        entered = Client(address).events("/api/events")
        found = entered.__enter__()
        next(found)

        def rest() -> None:
            assert list(found) == []
            ended.set()

        reader = threading.Thread(target=rest)
        reader.start()
    assert ended.wait(30)
    reader.join()
    entered.__exit__(None, None, None)


def test_an_app_that_nobody_serves_can_be_woken() -> None:
    readers = Readers()
    app: Any = app_for(Still(), token="x" * 16, readers=readers)
    readers.wake()
    assert app.title == "Slackwater"
