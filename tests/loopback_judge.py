"""A judge for tests: a real HTTP server that speaks OpenAI's protocol, and misbehaves on command.

    with LoopbackJudge(refused(500), then=scored(quality)) as judge:
        cfg = JudgeConfig(model=judge.model, api_base=judge.api_base)
    judge.asked[1].document["trajectories"]

Each request takes the next step; when they are used up, `then` answers all others.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from loopback import Loopback

QUALITY = re.compile(r"quality (\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request as it came in."""

    body: dict[str, Any]
    headers: dict[str, str]  # names in lower case
    raw: bytes

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation."""
        return self.body["messages"]

    @property
    def text(self) -> str:
        """The user message."""
        return self.messages[1]["content"]

    @property
    def document(self) -> dict[str, Any]:
        """The user message, which must be strict JSON: nothing else, no NaN."""
        return json.loads(self.text, parse_constant=_refuse)

    @property
    def ids(self) -> list[str]:
        """Of the trajectories, in the order in which they were shown."""
        return [t["id"] for t in self.document["trajectories"]]

    @property
    def is_first_question(self) -> bool:
        """Whether it is the one that art asks before the first rollout."""
        return "What is 2 + 2?" in self.text


USAGE = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the server does with a request."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()  # of tools: name, arguments as JSON
    finish: str = "stop"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hangs: float = 0.0  # seconds before anything is sent
    dies: bool = False  # half of the body, then the connection is closed
    usage: Any = field(default_factory=lambda: USAGE)  # None: the body has none
    raw: bytes | None = None  # the whole body, instead of a completion


Step = Callable[[Ask], Answer]
Entries = list[dict[str, Any]]
Block = dict[str, Any]


def quality(block: Block) -> float:
    """The last number behind the word quality in a trajectory's messages, or 0.5."""
    found = QUALITY.findall(json.dumps(block["messages"]))
    return float(found[-1]) if found else 0.5


def entries(ask: Ask, score: Callable[[Block], float] = quality) -> Entries:
    """One entry for each trajectory of the document."""
    return [
        {"trajectory_id": t["id"], "explanation": f"because of {n}", "score": score(t)}
        for n, t in enumerate(ask.document["trajectories"])
    ]


def scored(
    score: Callable[[Block], float] = quality,
    change: Callable[[Entries], Entries] = lambda found: found,
    wrap: str = "{}",
) -> Step:
    """A good answer; `change` spoils its entries, `wrap` is what stands around the JSON."""
    return lambda ask: Answer(
        text=wrap.replace("{}", json.dumps({"scores": change(entries(ask, score))}))
    )


def says(text: str, finish: str = "stop") -> Step:
    """The same text to everything."""
    return lambda ask: Answer(text=text, finish=finish)


def refused(status: int, message: str = "refused", **headers: str) -> Step:
    """An HTTP error; `Retry_After` becomes the header Retry-After."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda ask: Answer(text=message, status=status, headers=named)


def hanging(seconds: float = 60.0) -> Step:
    """No answer for so long, or until the server is closed."""
    return lambda ask: Answer(text="late", hangs=seconds)


def dying(ask: Ask) -> Answer:
    """Closes the connection in the middle of an answer."""
    return Answer(text=json.dumps({"scores": entries(ask)}), dies=True)


class LoopbackJudge(Loopback):
    """See the head of this file. Threads; `asked` holds every request in the order of arrival."""

    model = "openai/loopback"

    def __init__(self, *steps: Step, then: Step | None = None, latency: float = 0.0) -> None:
        """`latency` in seconds, of every answer."""
        self.asked: list[Ask] = []
        self._steps = list(steps)
        self._then = then or scored()
        self._latency = latency
        self._lock = threading.Lock()
        super().__init__(self._handler())
        self.api_base = f"{self.url}/v1"

    @property
    def judged(self) -> list[Ask]:
        """The requests, but for the question before the first rollout."""
        return [ask for ask in self.asked if not ask.is_first_question]

    def answer(self, ask: Ask) -> Answer:
        """Note the request and take the next step."""
        with self._lock:
            self.asked.append(ask)
            step = self._steps.pop(0) if self._steps else self._then
        answer = step(ask)
        self.closing.wait(answer.hangs + self._latency)
        return answer

    def _handler(judge) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                _send(self, 200, b'{"object": "list", "data": []}', {})

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                ask = Ask(body=json.loads(raw), headers=headers, raw=raw)
                answer = judge.answer(ask)
                body = completion(ask.body, answer)
                if answer.status != 200:
                    body = {"error": {"message": answer.text, "type": "error", "code": None}}
                data = json.dumps(body).encode() if answer.raw is None else answer.raw
                _send(self, answer.status, data, answer.headers, half=answer.dies)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        return Handler


def completion(request: dict[str, Any], answer: Answer) -> dict[str, Any]:
    """The body of a chat completion: 1000 tokens read and 100 written, if nothing else is said."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.calls:
        message["tool_calls"] = [
            {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for n, (name, arguments) in enumerate(answer.calls)
        ]
    body = {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 0,
        "model": request["model"],
        "choices": [{"index": 0, "finish_reason": answer.finish, "message": message}],
    }
    return body if answer.usage is None else body | {"usage": answer.usage}


def _send(
    handler: BaseHTTPRequestHandler,
    status: int,
    data: bytes,
    headers: dict[str, str],
    half: bool = False,
) -> None:
    handler.send_response(status)
    for name, value in {"Content-Type": "application/json", **headers}.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data[: len(data) // 2] if half else data)
    if half:
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
