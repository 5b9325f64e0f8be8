"""Who may ask what of the service: names, tokens, origins, sizes, and time."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from service_client import Client, raw
from service_still import Still, StillControl
from slackwater.errors import SlackwaterError
from slackwater.service import guard
from slackwater.service.guard import BODY_AT_MOST
from slackwater.service.server import DEFAULT_PORT, Address, listen, serving

TOKEN = "a-token-of-the-tests"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(Still(), StillControl(), port=0, token=TOKEN) as address:
        yield Client(address)


def test_reading_is_free_on_loopback_and_changing_is_not(client: Client) -> None:
    assert client.get("/api/health").ok()["phase"] == "running"
    assert client.ask("POST", "/api/preview", {"sql": "EXPLAIN"}).status == 200
    for method, path in (
        ("POST", "/api/queries"),
        ("PATCH", "/api/queries/q"),
        ("DELETE", "/api/queries/q"),
        ("POST", "/api/alerts"),
        ("DELETE", "/api/alerts/a"),
        ("PUT", "/api/knobs"),
        ("POST", "/api/audit"),
        ("POST", "/api/no/such/thing"),
    ):
        said = client.ask(method, path, {"sql": "EXPLAIN"})
        assert "Authorization: Bearer TOKEN" in said.problem(401)["detail"]
        assert "was sent" not in said.problem(401)["detail"]
        assert said.headers["www-authenticate"] == 'Bearer realm="slackwater"'


@pytest.mark.parametrize(
    "given", ["Bearer", "Bearer ", "Bearer another-token", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN]
)
def test_another_token_is_none(client: Client, given: str) -> None:
    said = client.ask("POST", "/api/audit", Authorization=given).problem(401)
    assert "the one that was sent is another" in said["detail"]


def test_the_token_is_taken_whatever_the_case_of_its_scheme(client: Client) -> None:
    client.ask("POST", "/api/audit", Authorization=f"bearer {TOKEN}").problem(409)


@pytest.mark.parametrize(
    "host", ["example.org", "localhost.example.org", "127.0.0.1.example.org:8400", "10.0.0.1", ""]
)
def test_a_name_that_points_here_from_elsewhere_is_refused(client: Client, host: str) -> None:
    assert "answers to localhost" in client.get("/api/frame", Host=host).problem(421)["detail"]
    assert client.get("/", Host=host).status == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:8400", "127.8.8.8"])
def test_every_name_of_loopback_will_do(client: Client, host: str) -> None:
    assert client.get("/api/health", Host=host).status == 200


def test_a_page_from_elsewhere_may_not_change_anything(client: Client) -> None:
    here = f"127.0.0.1:{client.address.port}"
    for origin in (
        "http://example.org",
        f"https://example.org:{client.address.port}",
        "null",
        f"file://{here}",
    ):
        said = client.ask("POST", "/api/audit", token=True, Origin=origin)
        assert said.problem(403)["detail"] == f"a page of {origin} may not change anything here"
        client.ask("POST", "/api/preview", {"sql": "EXPLAIN"}, Origin=origin).problem(403)
    client.ask("POST", "/api/audit", token=True, Origin=f"http://{here}").problem(409)


def test_a_body_that_is_too_large_is_not_read(client: Client) -> None:
    head = b"POST /api/preview HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    for size in (BODY_AT_MOST + 1, 10**15):
        assert "262,144 bytes" in raw(client.address, head % size).problem(413)["detail"]
    large = b'{"sql":"' + b"x" * BODY_AT_MOST + b'"}'
    chunked = client.ask("POST", "/api/preview", _chunks(large), Content_Type="application/json")
    assert chunked.problem(413)["detail"] == guard.TOO_LARGE


def _chunks(data: bytes) -> Any:
    """http.client sends what can only be gone through once in chunks."""
    return (data[i : i + 50_000] for i in range(0, len(data), 50_000))


def test_a_slow_body_is_not_waited_for(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.1)
    head = b"POST /api/preview HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    said = raw(client.address, head + b'Content-Length: 100\r\n\r\n{"sql"')
    assert said.problem(408)["detail"] == "the body did not come within 0.1 seconds"


def test_an_address_can_be_too_long(client: Client) -> None:
    assert "8,192 bytes" in client.get("/api/plan?name=" + "x" * 8_200).problem(414)["detail"]
    client.get("/api/queries/" + "x" * 9_000).problem(414)


def test_headers_can_be_too_long(client: Client) -> None:
    assert client.ask("GET", "/api/health", X_Long="x" * 15_000).status == 200
    assert "16,384 bytes" in client.ask("GET", "/api/health", X_Long="x" * 17_000).problem(431)["detail"]


def test_headers_may_be_asked_for_alone(client: Client) -> None:
    for path in ("/", "/api/health", "/api/frame", "/metrics"):
        whole, head = client.get(path), client.ask("HEAD", path)
        assert (head.status, head.body, head.kind) == (200, b"", whole.kind)
    assert client.ask("HEAD", "/api/nothing").status == 404
    assert client.ask("HEAD", "/api/events").status == 405, "it has no end"


def test_every_response_forbids_what_the_page_does_not_need(client: Client) -> None:
    for path in ("/", "/api/health", "/api/nothing", "/page/index.html"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers
    assert "access-control-allow-origin" not in client.get("/api/health", Origin="http://example.org").headers


def test_no_file_beside_the_page_is_given_out(client: Client) -> None:
    for path in ("/page/../models.py", "/page/%2e%2e/models.py", "/page//etc/passwd", "/page/..%2fguard.py"):
        assert client.get(path).status == 404


def test_elsewhere_than_on_loopback_reading_needs_the_token_too() -> None:
    with pytest.raises(SlackwaterError, match=r"--host 0\.0\.0\.0: others can reach this .* --token-file"):
        serving(Still(), host="0.0.0.0", port=0).__enter__()
    with serving(Still(), StillControl(), host="0.0.0.0", port=0, token=TOKEN) as address:
        near = Client(Address("127.0.0.1", address.port, TOKEN))
        near.get("/api/frame").problem(401)
        near.get("/api/events").problem(401)
        near.get("/metrics").problem(401)
        near.ask("POST", "/api/preview", {"sql": "EXPLAIN"}).problem(401)
        assert near.get("/").status == 200, "the page has no secrets, and asks for the token"
        assert near.change("GET", "/api/frame").status == 200
        named = near.ask("GET", "/api/health", token=True, Host="slackwater.example.org")
        assert named.status == 200, "any name may point to it"


def test_a_taken_port_is_told_and_the_usual_one_is_not_insisted_on() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SlackwaterError, match=rf"cannot listen on 127\.0\.0\.1 port {port}: .*--port 0"):
            listen("127.0.0.1", port)
    first = listen("127.0.0.1", None)
    with first, listen("127.0.0.1", None) as second:
        assert second.getsockname()[1] not in (0, DEFAULT_PORT, first.getsockname()[1])


def test_an_address_that_is_not_here_is_told() -> None:
    with pytest.raises(SlackwaterError, match=r"cannot listen on 192\.0\.2\.1 port 8400: "):
        listen("192.0.2.1", None)


def test_ipv6_has_brackets() -> None:
    assert Address("::1", 8400, "t").page == "http://[::1]:8400/#token=t"
    assert Address("127.0.0.1", 80, "t").url == "http://127.0.0.1:80"


def test_the_page_s_address_can_be_gone_to_and_tells_no_token_that_its_user_keeps() -> None:
    assert Address("::1", 8400, "t", given=True).page == "http://[::1]:8400/"
    for host in ("0.0.0.0", "::", "[::]"):
        assert Address(host, 8400, "t", given=True).page == f"http://{socket.gethostname()}:8400/"
    with serving(Still(), port=0, token=TOKEN, known=True) as address:
        assert TOKEN not in address.page
