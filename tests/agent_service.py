"""An agent as a service, with the standard library alone: python agent_service.py PORT HOW [PAUSE]

HOW it ends its episodes: `answers`, `posts` (202, then its end), `twice` (posts it two times, and
answers too), `wrong key`, `silent` (takes it and never ends), `loses` (so, and says it), `mute`
(never answers), `fails`, `busy` (503 at first). It asks the policy once, PAUSE seconds after it was
given the episode.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REWARD = 0.25


def post(url: str, key: str, body: Any) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


class Service(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int, how: str, pause: float) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.how, self.pause = how, pause
        self.asked: list[tuple[str, Any]] = []  # headers' key, and the task
        self.told: list[tuple[int, Any]] = []  # what it was answered to its ends

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/episodes"


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        self._answer(410 if self.server.how == "loses" and "?episode=" in self.path else 405, {})

    def do_POST(self) -> None:
        task = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        service, how = self.server, self.server.how
        service.asked.append((self.headers["Authorization"] or "", task))
        time.sleep(service.pause)
        if how == "mute":
            return time.sleep(60)
        if how == "busy" and len(service.asked) < 3:
            return self._answer(503, {"error": "not yet"})
        if how == "posts":
            self._answer(202, {})
        key = "another" if how == "wrong key" else task["api_key"]
        body = {"model": "policy", "messages": task["messages"]}
        status, said = post(f"{task['base_url']}/chat/completions", key, body)
        if how == "fails" or status != 200:
            return self._answer(500, {"error": f"no idea: {status} {said}"})
        if how in ("silent", "loses"):
            return self._answer(202, {})
        end = {"answer": said["choices"][0]["message"]["content"], "reward": REWARD}
        end |= {"metrics": {"steps": 3}, "logs": ["done", {"an": "event"}]}
        if how == "posts":
            service.told.append(post(task["end_url"], key, end))
        elif how == "twice":
            service.told += [post(task["end_url"], key, end | {"reward": n}) for n in (0.25, 9.0)]
            time.sleep(0.3)
            service.told.append(post(task["end_url"], key, end))
        return None if how == "posts" else self._answer(200, end)

    def _answer(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def started(how: str, port: int = 0, pause: float = 0.0) -> Service:
    """Serve in a thread of this process."""
    service = Service(port, how, pause)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    return service


if __name__ == "__main__":
    port, how, *pause = sys.argv[1:]
    service = Service(int(port), how, float(*pause or [0]))
    print(service.url, flush=True)
    service.serve_forever()
