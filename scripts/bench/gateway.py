"""Measure the gateway's share of a program's time. Needs no model and no network.

    python scripts/bench/gateway.py

For each protocol 256 episodes at once, each of 20 calls with tools and a history that grows,
through a real socket; their clients are a process of their own. The engine is a wait of about a
second (0.5 to 1.5), so that what is left of a call's time is the gateway, the socket and the
client. Printed: the median and the 95th percentile of that, for a single episode too; whether any
call was lost; and the same of a bare server of aiohttp in the gateway's place, which waits as long
and then sends one prepared answer: what HTTP, the socket and the client cost by themselves. `own`
is the difference of the two medians.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import random
import statistics
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import ClientSession, TCPConnector, web

from art_cli.chat.render import Renderer
from art_cli.config.sections.model import TinyConfig
from art_cli.envs.tools import schemas_of
from art_cli.models import tiny
from art_cli.rollout.episode import Episode
from art_cli.rollout.gateway.hosted_episode import Hosted
from art_cli.rollout.gateway.served import Served
from art_cli.rollout.gateway.server import Gateway
from art_cli.training.demonstrations import texts_of
from art_cli.types import Completion, Trajectory
from art_envs.order_desk import OrderDesk

EPISODES, CALLS = 256, 20
SHORTEST, LONGEST = 0.5, 1.5  # seconds of the engine
DIGITS = 9  # of how long that was, in microseconds
GOAL = 2.0  # ms, of the median
CALL = '{"name": "get_order", "arguments": {"order_id": "W4"}}'
SAYS = f" exchange delivered <tool_call>{CALL}</tool_call>"
ASKS = "Please exchange my order W4."
RESULT = json.dumps({"order_id": "W4", "item": "mug", "in_stock": ["small"], "status": "pending"})


class Desk(OrderDesk):
    """Any number of calls."""

    max_turns = 10**6


async def wait() -> str:
    """Wait as long as an engine might. Return for how many microseconds that was."""
    began = time.monotonic()
    await asyncio.sleep(random.uniform(SHORTEST, LONGEST))
    return f"{1e6 * (time.monotonic() - began):0{DIGITS}.0f}"


@dataclass
class Waiting:
    """A Session that says one thing after a while."""

    renderer: Renderer

    async def generate(self, ids: list[int], **_: Any) -> Completion:
        """See Session. The client cannot know how long this took, so it is told."""
        said = self.renderer.encode(f"{await wait()}{SAYS}{self.renderer.end_of_turn}")
        return Completion(
            token_ids=[*said],
            logprobs=[-0.1] * len(said),
            finish_reason="stop",
            policy_version=0,
        )

    def expect(self, coming: bool) -> None:
        """See Session."""

    def close(self) -> None:
        """See Session."""


@dataclass
class WaitingEngine:
    """An Engine of such sessions."""

    renderer: Renderer
    policy_version: int = 0
    cached_tokens: int = 8
    grammars: Any = None  # nobody asks for a schema here

    def open(self, seed: int, *, awaited: bool = True) -> Waiting:
        """See Engine."""
        return Waiting(self.renderer)

    async def sync(self, version: int) -> None:
        """See Engine."""

    async def rest(self) -> None:
        """See Engine."""

    async def close(self) -> None:
        """See Engine."""


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=[*PROTOCOLS])
    args = parser.parse_args()
    head = "protocol | episodes at once | calls | lost | median ms | 95% ms | CPU ms a call"
    print(f"| {head} | bare server: median | 95% | CPU | own: median ms | CPU | goal |")
    print("|---" * 13 + "|")
    for name in args.protocols:
        for num in (1, args.episodes):
            ours = asyncio.run(measure(name, num))
            bare = asyncio.run(measure(name, num, bare=True))
            own = ours.median - bare.median, ours.cpu - bare.cpu
            print(
                f"| {name} | {num} | {len(ours.over)} | {ours.lost} | {ours} | {bare} "
                f"| {own[0]:.2f} | {own[1]:.2f} | {GOAL} |",
                flush=True,
            )


@dataclass
class Measured:
    """The times of some calls."""

    over: list[float]  # seconds beyond the engine's, of each
    lost: int  # calls without an answer
    seconds: float  # of our CPU

    @property
    def median(self) -> float:
        """Milliseconds."""
        return 1000 * statistics.median(self.over)

    @property
    def cpu(self) -> float:
        """Milliseconds a call."""
        return 1000 * self.seconds / len(self.over)

    def __str__(self) -> str:
        high = statistics.quantiles(self.over, n=20)[-1]
        return f"{self.median:.2f} | {1000 * high:.1f} | {self.cpu:.2f}"


async def measure(name: str, num: int, *, bare: bool = False) -> Measured:
    """Let so many clients play, against the gateway or a bare server."""
    played = OrderDesk.demonstrations(OrderDesk.Config(), 50)
    demonstrations = await asyncio.to_thread(list, played)  # it plays on a loop of its own
    _, tokenizer = tiny.make(TinyConfig(), texts_of(demonstrations, schemas_of(OrderDesk)), 0)
    plain = Renderer(tokenizer)
    engine = WaitingEngine(plain)
    gateway = Gateway(Served(engine, partial(Renderer, tokenizer), 10**6))
    await gateway.start()
    hosted = [await host(gateway, n) for n in range(num)]
    urls = [f"{gateway.url}{h.path}{PROTOCOLS[name].path}" for h in hosted]
    tools = hosted[0].tools
    runner = None
    if bare:
        last = await host(gateway, num)
        runner, url = await serve(await recorded(name, gateway.url + last.path, tools))
        urls = [url] * num
    gc.collect()
    gc.freeze()  # as a run does once its model is there
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=clients, args=(name, urls, tools, queue), daemon=True)
    process.start()
    await asyncio.to_thread(queue.get, timeout=120)
    cpu = time.process_time()
    over, lost = await asyncio.to_thread(queue.get, timeout=600)
    cpu = time.process_time() - cpu
    await asyncio.to_thread(process.join)
    if runner:
        await runner.cleanup()
    await gateway.close()
    gc.unfreeze()
    return Measured(over, lost + num * CALLS - len(over), cpu)


async def recorded(name: str, base: str, tools: list[Any]) -> bytes:
    """Return the gateway's answer to a first call."""
    agent = PROTOCOLS[name](tools)
    async with ClientSession() as session, session.post(base + agent.path, json=agent.body()) as r:
        return await r.read()


async def serve(answer: bytes) -> tuple[web.AppRunner, str]:
    """Start a bare server: it reads a body, waits, and sends this answer. Return its address."""
    begin = answer.index(SAYS.split("<")[0].strip().encode()) - 1 - DIGITS
    before, digits, behind = answer[:begin], answer[begin:][:DIGITS], answer[begin + DIGITS :]
    assert digits.isdigit()

    async def reply(request: web.Request) -> web.Response:
        await request.read()
        body = before + (await wait()).encode() + behind
        return web.Response(body=body, content_type="application/json")

    app = web.Application(client_max_size=2**25)
    app.router.add_post("/", reply)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/"


async def host(gateway: Gateway, n: int) -> Hosted:
    """One episode of the order desk."""
    scenario = next(iter(OrderDesk.scenarios(OrderDesk.Config(), "train")))
    episode = Episode(Desk(scenario, OrderDesk.Config()), Trajectory(scenario=scenario))
    return gateway.open(episode, await episode.start(), n)


class Chat:
    """A client of OpenAI's chat completions."""

    path = "/v1/chat/completions"

    def __init__(self, tools: list[Any]) -> None:
        self.tools = tools
        self.said: list[Any] = [{"role": "user", "content": ASKS}]

    def body(self) -> dict[str, Any]:
        """Return the next request."""
        return {"model": "m", "messages": self.said, "tools": self.tools}

    def read(self, answer: Any) -> str:
        """Return what was said, and go on behind it."""
        message = answer["choices"][0]["message"]
        call = message["tool_calls"][0]["id"]
        self.said += [message, {"role": "tool", "tool_call_id": call, "content": RESULT}]
        return message["content"]


class Responses:
    """A client of OpenAI's responses, that sends all of them."""

    path = "/v1/responses"

    def __init__(self, tools: list[Any]) -> None:
        self.tools = [{"type": "function", **t["function"]} for t in tools]
        self.items: list[Any] = [{"role": "user", "content": ASKS}]

    def body(self) -> dict[str, Any]:
        """Return the next request."""
        return {"model": "m", "input": self.items, "tools": self.tools}

    def read(self, answer: Any) -> str:
        """Return what was said, and go on behind it."""
        message, call = answer["output"]
        gave = {"type": "function_call_output", "call_id": call["call_id"], "output": RESULT}
        self.items += [message, call, gave]
        return message["content"][0]["text"]


class Remembered(Responses):
    """The same with `previous_response_id`."""

    last = None

    def body(self) -> dict[str, Any]:
        """Return the next request."""
        return {**super().body(), "input": self.items[-1:], "previous_response_id": self.last}

    def read(self, answer: Any) -> str:
        """Return what was said, and go on behind it."""
        self.last = answer["id"]
        return super().read(answer)


class Messages:
    """A client of Anthropic's messages."""

    path = "/v1/messages"

    def __init__(self, tools: list[Any]) -> None:
        functions = [t["function"] for t in tools]
        self.tools = [{"name": f["name"], "input_schema": f["parameters"]} for f in functions]
        self.said: list[Any] = [{"role": "user", "content": ASKS}]

    def body(self) -> dict[str, Any]:
        """Return the next request."""
        return {"model": "m", "max_tokens": 500, "messages": self.said, "tools": self.tools}

    def read(self, answer: Any) -> str:
        """Return what was said, and go on behind it."""
        words, use = answer["content"]
        gave = {"type": "tool_result", "tool_use_id": use["id"], "content": RESULT}
        self.said.append({"role": "assistant", "content": answer["content"]})
        self.said.append({"role": "user", "content": [gave]})
        return words["text"]


class Plain:
    """A client of OpenAI's completions, which writes the chat itself."""

    path = "/v1/completions"

    def __init__(self, tools: list[Any]) -> None:
        self.text = f"<|im_start|>user\n{ASKS}<|im_end|>\n<|im_start|>assistant\n"

    def body(self) -> dict[str, Any]:
        """Return the next request."""
        return {"model": "m", "prompt": self.text, "max_tokens": 500}

    def read(self, answer: Any) -> str:
        """Return what was said, and go on behind it."""
        said = answer["choices"][0]["text"]
        gave = f"<|im_end|>\n<|im_start|>tool\n{RESULT}<|im_end|>\n<|im_start|>assistant\n"
        self.text += said + gave
        return said


PROTOCOLS: dict[str, Any] = {
    "chat": Chat,
    "responses": Responses,
    "previous_response_id": Remembered,
    "messages": Messages,
    "completions": Plain,
}


def clients(name: str, urls: list[str], tools: list[Any], queue: Any) -> None:
    """All episodes, in a process of their own."""
    queue.put("ready")
    queue.put(asyncio.run(_all(name, urls, tools)))


async def _all(name: str, urls: list[str], tools: list[Any]) -> tuple[list[float], int]:
    async with ClientSession(connector=TCPConnector(limit=0)) as session:
        agents = [PROTOCOLS[name](tools) for _ in urls]
        plays = (_one(session, u, a) for u, a in zip(urls, agents, strict=True))
        results = await asyncio.gather(*plays)
    return [s for r in results for s in r if s is not None], sum(
        s is None for r in results for s in r
    )


async def _one(session: Any, url: str, agent: Any) -> list[float | None]:
    await asyncio.sleep(random.uniform(0, LONGEST))
    out: list[float | None] = []
    for _ in range(CALLS):
        body = json.dumps(agent.body())
        headers = {"Content-Type": "application/json"}
        began = time.monotonic()
        async with session.post(url, data=body, headers=headers) as answer:
            text, status = await answer.text(), answer.status
        took = time.monotonic() - began
        if status != 200:
            out.append(None)
            continue
        said = agent.read(json.loads(text))
        out.append(took - float(said.split()[0]) / 1e6)
    return out


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
