"""A queue between art and workers that pull: art posts episodes, workers ask for the next one.

    python configs/agent-service/queue_server.py 8900
    python configs/agent-service/worker.py http://127.0.0.1:8900/next     as many as you like

An episode is answered with 202 at once; the worker that has played it posts its end to art itself.
"""

from __future__ import annotations

import json
import queue
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

from service import Handler, serve

WAIT = 20.0  # seconds that a worker's request waits for an episode
episodes: queue.Queue[Any] = queue.Queue()
known: set[str] = set()  # ids since it was started; a few bytes each


class QueueHandler(Handler):
    """POST /episodes puts one in, POST /next takes one out."""

    def do_GET(self) -> None:
        """Say that it is there; or, asked `?episode=ID`, whether it knows that one."""
        asked = parse_qs(urlsplit(self.path).query).get("episode", [])
        is_lost = self.is_let_in() and not known.issuperset(asked)
        return self.answer(410, {}) if is_lost else super().do_GET()

    def do_POST(self) -> None:
        """Take or give an episode."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.is_let_in():
            return self.answer(401, {"error": "the key is missing or wrong"})
        if self.path == "/episodes":
            episode = json.loads(body)
            known.add(episode["id"])
            episodes.put(episode)
            return self.answer(202, {})
        try:
            self.answer(200, episodes.get(timeout=WAIT))
        except queue.Empty:
            self.answer(200, None)


if __name__ == "__main__":
    serve(QueueHandler, int(sys.argv[1]))
