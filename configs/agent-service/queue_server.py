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

from service import Handler, serve

WAIT = 20.0  # seconds that a worker's request waits for an episode
episodes: queue.Queue[Any] = queue.Queue()


class QueueHandler(Handler):
    """POST /episodes puts one in, POST /next takes one out."""

    def do_POST(self) -> None:
        """Take or give an episode."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.is_let_in():
            return self.answer(401, {"error": "the key is missing or wrong"})
        if self.path == "/episodes":
            episodes.put(json.loads(body))
            return self.answer(202, {})
        try:
            self.answer(200, episodes.get(timeout=WAIT))
        except queue.Empty:
            self.answer(200, None)


if __name__ == "__main__":
    serve(QueueHandler, int(sys.argv[1]))
