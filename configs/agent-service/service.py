"""The agent as a service: art posts an episode, and is answered with its end.

    python configs/agent-service/service.py 8900

With SERVICE_KEY set, callers have to show that key (`agent.api_key_env`), and may be elsewhere.
"""

from __future__ import annotations

import hmac
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agent import play

KEY = os.environ.get("SERVICE_KEY", "")


class Handler(BaseHTTPRequestHandler):
    """Plays each episode in the thread of its request."""

    def do_GET(self) -> None:
        """Say that it is there: art asks before a run."""
        self.answer(200 if self.is_let_in() else 401, {})

    def do_POST(self) -> None:
        """Play an episode."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.is_let_in():
            return self.answer(401, {"error": "the key is missing or wrong"})
        try:
            self.answer(200, play(json.loads(body)))
        except Exception as e:  # it is counted as a crash, with these words
            self.answer(500, {"error": f"{type(e).__name__}: {e}"})

    def is_let_in(self) -> bool:
        """Return whether the key is shown."""
        shown = self.headers["Authorization"] or ""
        return not KEY or hmac.compare_digest(shown.encode(), f"Bearer {KEY}".encode())

    def answer(self, status: int, body: Any) -> None:
        """Send JSON."""
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class Server(ThreadingHTTPServer):
    """A thread a request; as many connections may wait as art opens at once."""

    request_queue_size = 256
    daemon_threads = True


def serve(handler: type[Handler], port: int) -> None:
    """Serve until the process is ended: on this machine only where there is no key."""
    Server(("0.0.0.0" if KEY else "127.0.0.1", port), handler).serve_forever()


if __name__ == "__main__":
    serve(Handler, int(sys.argv[1]))
