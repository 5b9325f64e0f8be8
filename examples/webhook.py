"""A webhook to try alerts with: prints what it is told, and what it is told twice only once.

Side by side, each in a terminal of its own:

    python examples/webhook.py --port 8600
    slackwater run examples/alerts.sql
"""

from __future__ import annotations

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar


class Webhook(BaseHTTPRequestHandler):
    """Takes events. One may come twice, so it goes by their ids."""

    seen: ClassVar[set[str]] = set()

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        # what must not get lost is put on disk here, before the answer
        if event["id"] not in self.seen:
            self.seen.add(event["id"])
            print(line(event), flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: events are printed."""


def line(event: dict[str, Any]) -> str:
    """An event for people."""
    keys = "".join(f" {name}={value}" for name, value in event["keys"].items())
    value = "no answer" if event["value"] is None else f"{event['value']} [{event['low']}, {event['high']}]"
    when = event["window_end"] or event["at"]
    return f"{when} {event['alert']} {event['state']}:{keys} {event['column']} = {value}"


def serving(port: int) -> ThreadingHTTPServer:
    """The webhook on loopback, for `serve_forever`."""
    return ThreadingHTTPServer(("127.0.0.1", port), Webhook)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A webhook that prints what it is told.")
    parser.add_argument("--port", type=int, default=8600, help="where it listens on 127.0.0.1")
    with serving(parser.parse_args().port) as server:
        server.serve_forever()
