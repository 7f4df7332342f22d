"""A stand-in for an LLM judge, so that RULER can be tried without a key: rules, no intelligence.

    python scripts/rule_based_judge.py --port 8600

It speaks OpenAI's protocol and answers as a judge model would, but all it knows is the policy of
the order desk: it reads each transcript (never the env's reward) and says how well the assistant
kept to the policy. configs/quickstart-ruler.yaml starts it. For a task of your own name a real
model instead.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REQUEST = re.compile(r"Please (cancel|return|exchange) my order (\w+)(?: for size (\w+))?")
ALLOWED_STATUS = {"cancel": "pending", "return": "delivered", "exchange": "delivered"}

Answer = Callable[[dict[str, Any]], str]


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--port", type=int, default=8600)
    serve(judge, parser.parse_args().port).serve_forever()


def judge(request: dict[str, Any]) -> str:
    """A chat request as art's RULER sends it -> the answer's text."""
    document = json.loads(request["messages"][1]["content"])
    entries = []
    for trajectory in document["trajectories"]:
        score, why = assess([*document["opening"], *trajectory["messages"]])
        entries.append({"trajectory_id": trajectory["id"], "explanation": why, "score": score})
    return json.dumps({"scores": entries})


def assess(messages: list[dict[str, Any]]) -> tuple[float, str]:
    """Return how well one transcript keeps to the desk's policy, and why."""
    asked = next((m for m in map(_request, messages) if m), None)
    order, action, errors = None, None, 0
    for message in messages:
        if message["role"] != "tool":
            continue
        result = message["content"]
        if result.startswith("error"):
            errors += 1
        elif message.get("name") == "get_order":
            order = json.loads(result)
        else:
            action = message.get("name", "").removesuffix("_order")
    last = messages[-1]
    said = last["content"] if last["role"] == "assistant" else ""
    answer = said.strip().rstrip(".!").lower().rpartition(" ")[2]
    if order is None or asked is None or answer not in ("done", "sorry"):
        return 0.0, "did not look the order up, or did not answer"
    right = _right_action(asked, order)
    did = action or "nothing"
    if action != right:
        return max(0.0, 0.1 - 0.1 * errors), f"did {did} to a {order['status']} order"
    honest = answer == ("done" if action else "sorry")
    score = 1.0 if honest else 0.7
    why = f"rightly did {did}" + ("" if honest else f", but said {answer}")
    return max(0.0, score - 0.1 * errors), why + (f"; {errors} bad calls" if errors else "")


def _request(message: dict[str, Any]) -> tuple[str, str | None] | None:
    found = REQUEST.search(message["content"]) if message["role"] == "user" else None
    return (found[1], found[3]) if found else None


def _right_action(asked: tuple[str, str | None], order: dict[str, Any]) -> str | None:
    action, size = asked
    if order["status"] != ALLOWED_STATUS[action]:
        return None
    return "return" if action == "exchange" and size not in order["in_stock"] else action


def serve(answer: Answer, port: int) -> ThreadingHTTPServer:
    """A server on this machine that gives each chat request to `answer`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else the body waits 40 ms until its head is acknowledged

        def do_GET(self) -> None:
            self._send({"object": "list", "data": [{"id": "stand-in", "object": "model"}]})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._send(completion(request, answer(request)))

        def _send(self, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer.request_queue_size = 128
    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def completion(request: dict[str, Any], text: str) -> dict[str, Any]:
    """The body of a chat completion. A token is four characters here."""
    read = sum(len(m["content"]) for m in request["messages"]) // 4
    usage = {"prompt_tokens": read, "completion_tokens": len(text) // 4}
    return {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request["model"],
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": text},
            }
        ],
        "usage": usage | {"total_tokens": sum(usage.values())},
    }


if __name__ == "__main__":
    main()
