"""Bodies of responses: what they say, and that the loop of the server does not make them."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from pydantic import TypeAdapter

from frames import frame, point, query
from service_client import Client
from service_still import AT, SQL, Still, StillControl
from slackwater.service.folding import moment_of
from slackwater.service.models import AgentFrame, AgentsFrame, AlertFrame, Moment, WidthFrame
from slackwater.service.server import app_for, serving

AGENTS = AgentsFrame(
    stream="p",
    there=1,
    known=2,
    keys=3,
    updates_per_second=1e-7,
    grants_per_second=0.5,
    offered_per_second=None,
    late=0,
    agents=[
        AgentFrame(name="é\u2028", there=False, keys=1, updates=2, offered_per_second=1e20, since=AT),
    ],
    widths=[
        WidthFrame(query="q", column="bytes", smallest=1.0, median=2.0, largest=3.0, used=None, allowed=4.0)
    ],
)
ALERT = AlertFrame(
    name="a",
    query="q",
    condition="n > 5",
    url="u",
    raised=1,
    groups=[{"k": None}],
    events=3,
    waiting=2,
    trouble="",
)
SHOWN = frame(
    7, [query("q", [point(1, 2.5, half=0.5)], keys={"port": 53})], whole=True, agents=[AGENTS], alerts=[ALERT]
)
DECIDED = {"at": "2026-01-01T00:00:00Z", "stream": "p", "rates": {"a": 0.25}, "measured": None}


class Large(Still):
    """Something of all that may be large."""

    def __init__(self) -> None:
        super().__init__(SHOWN)

    def moments(self, limit: int) -> list[Moment]:
        return [moment_of(SHOWN.model_copy(update={"at": AT + timedelta(seconds=n)})) for n in range(3)]

    def decisions(self, stream: str | None, limit: int) -> list[dict[str, Any]]:
        return [DECIDED]


LOOP = "slackwater-service"
"""The thread of the server's loop."""
QUERY = {
    "name": "q",
    "stream": "p",
    "contract": "ERROR 5%",
    "columns": ["bytes"],
    "sql": SQL.splitlines()[1].rstrip(";"),
    "frame": SHOWN.queries[0].model_dump(mode="json"),
}
BODIES: dict[str, Any] = {
    "/api/queries": [QUERY],
    "/api/decisions": [DECIDED],
    "/api/moments": [moment.model_dump(mode="json") for moment in Large().moments(3)],
    "/api/statistics": Large().statistics().model_dump(mode="json"),
    "/api/agents": [AGENTS.model_dump(mode="json")],
    "/api/alerts": [ALERT.model_dump(mode="json")],
    "/api/audit": {
        "state": "none",
        "recording": None,
        "passed": None,
        "report": None,
        "message": "this run is not recorded",
    },
    "/api/preview": StillControl().preview(SQL).model_dump(mode="json"),
}


@pytest.mark.parametrize("path", BODIES)
def test_what_may_be_large_is_written_beside_the_loop(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dump, threads = TypeAdapter.dump_json, []

    def noted(*given: Any, **more: Any) -> bytes:
        threads.append(threading.current_thread().name)
        return dump(*given, **more)

    monkeypatch.setattr(TypeAdapter, "dump_json", noted)
    large = Large()
    with serving(large, StillControl(large), port=0) as address:
        client = Client(address)
        said = client.ask("POST", path, {"sql": SQL}) if path == "/api/preview" else client.get(path)
    assert said.ok() == BODIES[path]
    assert len(threads) == 1
    assert LOOP not in threads


@pytest.mark.parametrize("path", BODIES)
def test_its_type_is_in_the_document(path: str) -> None:
    made = app_for(Large(), StillControl(), token="x" * 16).openapi()
    operation = made["paths"][path]["post" if path == "/api/preview" else "get"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert "$ref" in schema or schema["type"] == "array"
